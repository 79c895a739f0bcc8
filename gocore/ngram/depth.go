package ngram

// candidate is one proposer's draft with what it promises.
type candidate struct {
	drafts  [MaxDraft]Draft
	chances [MaxDraft]float32
	n       int
	tokens  [MaxDraft + 1]float64 // expected committed tokens when the first k drafts are verified
	whole   [MaxDraft + 1]float64 // chance that all of the first k are accepted
}

// sum fills tokens and whole: with k drafts, 1 + p₁ + p₁p₂ + … + p₁⋯pₖ tokens are expected.
func (c *candidate) sum() {
	c.tokens[0], c.whole[0] = 1, 1
	for k := 1; k <= c.n; k++ {
		c.whole[k] = c.whole[k-1] * float64(c.chances[k-1])
		c.tokens[k] = c.tokens[k-1] + c.whole[k]
	}
}

// option is a number of drafts, the width to verify them at, and what that promises.
type option struct {
	source  int // index of the candidate
	depth   int // 0: no option
	width   int
	tokens  float64
	seconds float64
}

// rate is the expected speed in tokens a second; 0 for no option.
func (o option) rate() float64 {
	if o.depth == 0 {
		return 0
	}
	return o.tokens / o.seconds
}

const (
	untriedGain = 1.02 // how much better an untimed width must promise to be than the best timed one
	probeGain   = 1.05 // and how much better at best, for a probe
)

// chooser finds the best option on a cost curve.
type chooser struct {
	curve  Curve
	widths int     // widest forward considered
	extra  float64 // cost of a partial acceptance beyond the step
}

// price is what verifying the first k drafts of c costs in a pass of the given seconds.
func (h *chooser) price(c *candidate, k int, seconds float64) float64 {
	return seconds + h.extra*(1-c.whole[k])
}

// timed is the best option among widths whose cost was measured, and untried among those only predicted.
// A draft is verified at the cheapest width that holds it, so it may be padded; and of depths at the same cost the
// deeper promises more, so it is as deep as the width and the proposer allow.
func (h *chooser) best(cands []candidate) (timed, untried option) {
	var cheapTimed, cheapUntried [MaxDraft + 1]int // by depth; 0: none
	var predicted [MaxWidth + 1]float64
	t, u := 0, 0
	for w := h.widths; w >= 2; w-- {
		predicted[w] = h.curve.predict(w)
		if h.curve.known(w) {
			if t == 0 || predicted[w] <= predicted[t] {
				t = w
			}
		} else if predicted[w] > 0 && (u == 0 || predicted[w] <= predicted[u]) {
			u = w
		}
		cheapTimed[w-1], cheapUntried[w-1] = t, u
	}
	for i := range cands {
		c := &cands[i]
		for k := 1; k <= min(c.n, h.widths-1); k++ {
			timed = h.better(timed, c, i, k, cheapTimed[k], &predicted)
			untried = h.better(untried, c, i, k, cheapUntried[k], &predicted)
		}
	}
	return timed, untried
}

func (h *chooser) better(old option, c *candidate, source, k, width int, cost *[MaxWidth + 1]float64) option {
	if width == 0 {
		return old
	}
	o := option{source, k, width, c.tokens[k], h.price(c, k, cost[width])}
	if o.rate() > old.rate() {
		return o
	}
	return old
}

// probe is the unsure width that would beat the given rate by most if it cost as little as it plausibly might, with
// the draft to time it with.
func (h *chooser) probe(cands []candidate, rate float64) option {
	var found option
	high := rate * probeGain
	for w := 2; w <= h.widths; w++ {
		if !h.curve.unsure(w) {
			continue
		}
		least := h.curve.optimistic(w)
		if least == 0 {
			break
		}
		for i := range cands {
			c := &cands[i]
			k := min(c.n, w-1)
			if k == 0 {
				continue
			}
			if r := c.tokens[k] / h.price(c, k, least); r > high {
				high = r
				found = option{source: i, depth: k, width: w}
			}
		}
	}
	if found.depth == 0 {
		return found
	}
	if !h.curve.known(found.width) {
		if a, b := h.curve.neighbours(found.width); b != 0 {
			found.width = between(a, b)
		} else {
			found.width = min(rung(a), h.widths)
		}
	}
	c := &cands[found.source]
	found.depth = min(c.n, found.width-1)
	found.tokens = c.tokens[found.depth]
	found.seconds = h.price(c, found.depth, h.curve.predict(found.width))
	return found
}
