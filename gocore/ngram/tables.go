package ngram

// NameTables is the name of the n-gram proposer.
const NameTables = "ngram"

const (
	bigram  = 0 // index of the table whose contexts are the last two tokens
	trigram = 1 // and the last three
)

// tablesProposer drafts from bigram and trigram contexts, the longer first.
type tablesProposer struct {
	tables  [2]*table
	support int
	bound   float32
	sources [MaxDraft]source // of the last draft
	drafted int
}

// source is where a drafted token came from, for feedback.
type source struct {
	table int
	at    int
	key   uint64
	token int32
}

// newTables makes the proposer with at most maxBytes of tables.
func newTables(cfg Config, maxBytes int) *tablesProposer {
	most := probeWindow
	for most*2*2*entryBytes <= maxBytes {
		most *= 2
	}
	return &tablesProposer{
		tables:  [2]*table{newTable(most), newTable(most)},
		support: cfg.MinSupport,
		bound:   cfg.bound(),
	}
}

func (p *tablesProposer) Name() string { return NameTables }

func bigramKey(a, b int32) uint64 {
	// Bijective, so equal keys are equal contexts; 0 marks a free entry.
	return max(mix(uint64(uint32(a))<<32|uint64(uint32(b))), 1)
}

func trigramKey(a, b, c int32) uint64 {
	return max(mix(bigramKey(a, b)*0x9e3779b97f4a7c15+uint64(uint32(c))), 1)
}

func (p *tablesProposer) Observe(h *History, from int) { p.observe(h, from, h.Len()) }

// observe counts the tokens at positions from ≤ i < to.
func (p *tablesProposer) observe(h *History, from, to int) {
	for i := max(from, h.Start()+2); i < to; i++ {
		b, c, t := h.At(i-2), h.At(i-1), h.At(i)
		p.tables[bigram].observe(bigramKey(b, c), t, i)
		if i-3 >= h.Start() {
			p.tables[trigram].observe(trigramKey(h.At(i-3), b, c), t, i)
		}
	}
}

// reserve makes room for the contexts of tokens to come.
func (p *tablesProposer) reserve(h *History, tokens []int32) {
	pairs, triples := newSketch(len(tokens), p.tables[bigram].most), newSketch(len(tokens), p.tables[trigram].most)
	for i := 2; i < len(tokens); i++ {
		a, b, c := tokens[i-2], tokens[i-1], tokens[i]
		pairs.add(bigramKey(a, b))
		triples.add(trigramKey(a, b, c))
	}
	now := uint32(h.Len())
	p.tables[bigram].reserve(pairs.distinct(), now)
	p.tables[trigram].reserve(triples.distinct(), now)
}

func (p *tablesProposer) Draft(h *History, dst []Draft) int {
	p.drafted = 0
	held, now := h.Len()-h.Start(), uint32(h.Len())
	if held < 2 {
		return 0
	}
	a, b, c := h.At(h.Len()-3), h.At(h.Len()-2), h.At(h.Len()-1)
	product := float32(1)
	for i := range dst[:min(len(dst), MaxDraft)] {
		src, conf := p.next(a, b, c, held+i >= 3, now)
		if product *= conf; conf == 0 || product < p.bound {
			break
		}
		dst[i] = Draft{Token: src.token, P: conf}
		p.sources[i] = src
		p.drafted++
		a, b, c = b, c, src.token
	}
	return p.drafted
}

// next is the continuation of the context a b c; conf 0 says there is none.
func (p *tablesProposer) next(a, b, c int32, long bool, now uint32) (source, float32) {
	if long {
		if src, conf := p.look(trigram, trigramKey(a, b, c), now); conf > 0 {
			return src, conf
		}
	}
	return p.look(bigram, bigramKey(b, c), now)
}

func (p *tablesProposer) look(order int, key uint64, now uint32) (source, float32) {
	t := p.tables[order]
	at := t.find(key)
	if at < 0 {
		return source{}, 0
	}
	c, conf := t.entries[at].best(p.support, now)
	if c == nil {
		return source{}, 0
	}
	if order == bigram {
		conf *= 0.9 // a shorter context says less; keeps the two apart in calibration
	}
	return source{table: order, at: at, key: key, token: c.token}, conf
}

func (p *tablesProposer) Feedback(proposed, accepted int) {
	// Beyond the first rejected token the context was wrong, so nothing is said about those.
	for i := range min(proposed, accepted+1, p.drafted) {
		s := &p.sources[i]
		p.tables[s.table].credit(s.at, s.key, s.token, i < accepted)
	}
	p.drafted = 0
}

// Truncate takes a few sightings back; where there are more, the tables are built anew from what remains.
func (p *tablesProposer) Truncate(h *History, n int) {
	p.drafted = 0
	gone := func(order int) int { return max(h.Len()-max(n, h.Start()+order), 0) }
	if n > h.Start() && p.tables[bigram].undo(gone(2)) && p.tables[trigram].undo(gone(3)) {
		return
	}
	for _, t := range p.tables {
		t.reset()
	}
	p.observe(h, h.Start(), n)
}

func (p *tablesProposer) Bytes() int { return p.tables[bigram].bytes() + p.tables[trigram].bytes() }
