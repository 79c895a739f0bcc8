package ngram

import "sync"

const (
	border     = -1  // stands between two texts; no token is negative
	storeChunk = 512 // tokens added under one lock, so that drafting waits some 30 µs at the most
)

// store keeps the texts of finished requests for the suffix search, the oldest giving way. Safe for concurrent use.
type store struct {
	adding sync.Mutex // one text at a time, so that texts do not interleave

	mu    sync.RWMutex // guards what follows
	text  *History
	index suffixIndex
	texts int
	m     matcher // for add only
}

// newStore makes a store of at most maxBytes; nil if that is too little for any.
func newStore(maxBytes int) *store {
	window := windowFor(maxBytes)
	if window == 0 {
		return nil
	}
	return &store{text: NewHistory(window)}
}

// windowFor is the largest power of two of positions that fit into maxBytes, 0 if fewer than the smallest ring.
func windowFor(maxBytes int) int {
	if maxBytes < firstWindow*bytesPerPosition {
		return 0
	}
	w := firstWindow
	for 2*w*bytesPerPosition <= maxBytes && w < 1<<28 {
		w *= 2
	}
	return w
}

func (s *store) draft(m *matcher, tail []int32, dst []Draft, rules followRules) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found, longest := s.index.search(s.text, m, tail)
	return m.follow(s.text, found, longest, dst, rules)
}

// add stores the text h. What it has in common with a stored text at its beginning is left out: the turns of one
// conversation, or one system prompt, are stored once.
func (s *store) add(h *History) {
	s.adding.Lock()
	defer s.adding.Unlock()
	from := h.Start()
	var block [maxMatch]int32
	for from+maxMatch <= h.Len() && s.holds(copyRange(h, from, block[:])) {
		from += maxMatch
	}
	if h.Len()-from <= keyLengths[len(keyLengths)-1] {
		return
	}
	from = max(from-maxMatch, h.Start()) // the context of what is new
	s.append([]int32{border})
	var chunk [storeChunk]int32
	for at := from; at < h.Len(); at += storeChunk {
		s.append(copyRange(h, at, chunk[:min(storeChunk, h.Len()-at)]))
	}
	s.mu.Lock()
	s.texts++
	s.mu.Unlock()
}

func (s *store) append(tokens []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.text.Len()
	s.text.Append(tokens...)
	s.index.observe(s.text, from)
}

// holds tells whether the block stands in the store. An occurrence at the very end of it is not found: there is no
// position after it yet. The border that starts the next text repairs that.
func (s *store) holds(block []int32) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, longest := s.index.search(s.text, &s.m, block)
	return longest >= len(block)
}

func copyRange(h *History, from int, dst []int32) []int32 {
	for i := range dst {
		dst[i] = h.At(from + i)
	}
	return dst
}

// StoreStats describes the store of finished texts.
type StoreStats struct {
	Texts  int `json:"texts"`
	Tokens int `json:"tokens"`
	Bytes  int `json:"bytes"`
}

func (s *store) stats() StoreStats {
	if s == nil {
		return StoreStats{}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return StoreStats{Texts: s.texts, Tokens: s.text.Len() - s.text.Start(), Bytes: s.text.bytes() + s.index.bytes()}
}
