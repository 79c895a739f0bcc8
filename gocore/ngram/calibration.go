package ngram

import "sync"

// Proposers' confidences are only ordered. What a level of confidence is worth is learned from what became of drafts,
// by proposer, level and place in the draft, at two speeds: over the life of the model (what this proposer's 0.8 means
// for texts like these) and over the last few steps of the request (the text just turned from copying to prose).

const (
	places        = 3    // first token of a draft, the next three, those beyond: the first accepted is evidence for more
	modelDecay    = 0.98 // experience fades to a memory of 50 drafts
	requestDecay  = 0.85 // and of 7
	priorWeight   = 2    // tokens that the proposer's own estimate counts for
	modelWeight   = 8    // and that the model's experience counts for within a request
	highestChance = 0.999
)

// levels are the upper bounds of the confidence levels; finer near 1, where deep drafts are decided.
var levels = [...]float32{0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.96, 1}

func level(p float32) int {
	for i, bound := range levels {
		if p <= bound {
			return i
		}
	}
	return len(levels) - 1
}

func place(position int) int {
	switch {
	case position == 0:
		return 0
	case position < 4:
		return 1
	default:
		return 2
	}
}

// counter counts with fading memory.
type counter struct {
	hits, n float32
}

// counters is one proposer's experience.
type counters [places][len(levels)]counter

// bank is one proposer's experience over the life of a model.
type bank struct {
	mu sync.Mutex
	at counters
}

// calibrate turns the drafts' confidences into chances of acceptance.
func (b *bank) calibrate(recent *counters, drafts []Draft, chances []float32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, d := range drafts {
		pl, le := place(i), level(d.P)
		long, short := b.at[pl][le], recent[pl][le]
		p := (priorWeight*min(max(d.P, 0), 1) + long.hits) / (priorWeight + long.n)
		p = (modelWeight*p + short.hits) / (modelWeight + short.n)
		chances[i] = min(p, highestChance)
	}
}

// learn books judged drafts: the first accepted of them were right, the one after those was not. Memory fades by
// drafts, not by tokens: most drafts end with a rejection, and if that weighed more than the tokens before it, chances
// would always be taken for lower than they are.
func (b *bank) learn(recent *counters, judged []Draft, accepted int) {
	var touched [places][len(levels)]bool
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, d := range judged {
		pl, le := place(i), level(d.P)
		long, short := &b.at[pl][le], &recent[pl][le]
		if !touched[pl][le] {
			touched[pl][le] = true
			*long = counter{long.hits * modelDecay, long.n * modelDecay}
			*short = counter{short.hits * requestDecay, short.n * requestDecay}
		}
		long.n++
		short.n++
		if i < accepted {
			long.hits++
			short.hits++
		}
	}
}
