package ngram

import "sync"

// Shared is what the requests of one loaded model have in common: the cost curve, what confidences are worth, the
// texts of finished requests, and totals. Safe for concurrent use.
type Shared struct {
	cost  *CostModel
	store *store // nil: no texts are kept

	mu     sync.Mutex
	banks  map[string]*bank
	totals counts
	done   int // finished requests
}

// NewShared makes an empty Shared. Its limits are cfg's; requests may have other configurations.
func NewShared(cfg Config) (*Shared, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Shared{cost: newCostModel(cfg), store: newStore(cfg.SharedBytes), banks: map[string]*bank{}}, nil
}

// Cost is the model's cost curve.
func (s *Shared) Cost() *CostModel { return s.cost }

// bank is the experience with proposers of that name.
func (s *Shared) bank(name string) *bank {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.banks[name]
	if b == nil {
		b = &bank{}
		s.banks[name] = b
	}
	return b
}

// settle takes a finished request's counts.
func (s *Shared) settle(c *counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals.add(c)
	s.done++
}

// keep stores a finished request's text.
func (s *Shared) keep(h *History) {
	if s.store != nil {
		s.store.add(h)
	}
}

// SharedStats are a model's totals over finished requests, and its cost curve.
type SharedStats struct {
	Requests int `json:"requests"`
	Counts
	Cost  CostStats  `json:"cost"`
	Store StoreStats `json:"store"`
}

// Stats returns the totals so far.
func (s *Shared) Stats() SharedStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SharedStats{Requests: s.done, Counts: s.totals.stats(), Cost: s.cost.stats(), Store: s.store.stats()}
}
