package scheduler

// Stats count what happened since the start, and what is now.
type Stats struct {
	Waiting    int `json:"waiting"` // requests now, without a cache; Preempted are not among them
	Prefilling int `json:"prefilling"`
	Decoding   int `json:"decoding"`
	Preempted  int `json:"preempted"`

	Joins       uint64 `json:"joins"`
	Blocked     uint64 `json:"blocked"`
	Preemptions uint64 `json:"preemptions"`
	Grown       uint64 `json:"grown"`
	Failed      uint64 `json:"failed"`
	Ended       uint64 `json:"ended"`

	Passes uint64 `json:"passes"`
	Rows   uint64 `json:"rows"` // rows ÷ passes is how many share one
	Chunks uint64 `json:"chunks"`

	Prefilled  uint64 `json:"prefilled"` // tokens, from here on
	Recomputed uint64 `json:"recomputed"`
	Reused     uint64 `json:"reused"`
	Committed  uint64 `json:"committed"`
	Drafted    uint64 `json:"drafted"`
	Accepted   uint64 `json:"accepted"`
	Reclaimed  uint64 `json:"reclaimed_bytes"` // of kept prefixes that gave way

	Blocks       int   `json:"blocks"`        // of BlockTokens tokens, in the caches of running requests
	SharedBlocks int   `json:"shared_blocks"` // of them copied from kept prefixes
	CacheBytes   int64 `json:"cache_bytes"`   // charged now
	KeptBytes    int64 `json:"kept_bytes"`
	PeakBytes    int64 `json:"peak_bytes"` // of caches, with what growing takes for a moment
	Budget       int64 `json:"budget_bytes"`
}

// Stats returns the counts.
func (s *Scheduler) Stats() Stats {
	st := s.stats
	for _, q := range s.running {
		if q.left() > 0 {
			st.Prefilling++
		} else {
			st.Decoding++
		}
		st.Blocks += (q.cached + BlockTokens - 1) / BlockTokens
		st.SharedBlocks += min(q.reused, q.cached) / BlockTokens
	}
	for _, q := range s.queue {
		if q.again {
			st.Preempted++
		} else {
			st.Waiting++
		}
	}
	m := &s.memory
	st.CacheBytes, st.KeptBytes, st.PeakBytes, st.Budget = m.charged, m.kept, m.peak, m.budget
	return st
}
