package scheduler

// Stats count what happened since the start, and what is now.
type Stats struct {
	Waiting, Prefilling, Decoding, Preempted int // requests now; Preempted are not among Waiting

	Joins, Blocked, Preemptions, Grown, Failed, Ended uint64
	Passes, Rows, Chunks                              uint64 // Rows ÷ Passes is how many share one
	Prefilled, Recomputed, Reused                     uint64 // tokens
	Committed, Drafted, Accepted                      uint64 // tokens
	Reclaimed                                         uint64 // bytes of kept prefixes that gave way

	Blocks                int   // of BlockTokens tokens, in the caches of running requests
	SharedBlocks          int   // of them copied from kept prefixes
	CacheBytes, KeptBytes int64 // charged now
	PeakBytes, Budget     int64 // the peak is of caches, with what growing takes for a moment
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
