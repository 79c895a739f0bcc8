package scheduler

import (
	"slices"
	"testing"
)

// scarce has a class of 1 byte a token and a budget of some units of growth.
func scarce(t testing.TB, units int64, grow int64) *Scheduler {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Headroom = 0
	return started(t, cfg, Event{Kind: Define, Bytes: 1, GrowBytes: grow, Width: 8}, Event{Kind: Memory, Bytes: units * GrowTokens})
}

// forward plans one step and confirms all of it.
func forward(t testing.TB, s *Scheduler) *Plan {
	t.Helper()
	p := s.Next(Budget{8192})
	for _, c := range p.Chunks {
		tell(t, s, Event{Kind: Prefilled, ID: c.ID, N: c.N})
	}
	for _, pass := range p.Passes {
		for _, r := range pass.Rows {
			tell(t, s, Event{Kind: Committed, ID: r.ID, N: 1})
		}
	}
	return p
}

func states(s *Scheduler, ids ...uint64) (all []State) {
	for _, id := range ids {
		state, _ := s.State(id)
		all = append(all, state)
	}
	return all
}

func TestCharge(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Memory, Bytes: 1 << 40},
		Event{Kind: Define, Bytes: 1000, WindowBytes: 10, Window: 600, StateBytes: 7},
		Event{Kind: Define, Class: 1, StateBytes: 5})
	request(t, s, 1, 385) // with its headroom one more than two units
	request(t, s, 2, 1)
	tell(t, s, Event{Kind: Admit, ID: 3, Class: 1, N: 9000, Max: 4}, Event{Kind: Credit, ID: 3, N: 4})
	s.Next(Budget{4096})
	if st := s.Stats(); st.CacheBytes != 768_000+6_000+7+256_000+2_560+7+5 {
		t.Errorf("%d bytes", st.CacheBytes)
	}
}

// TestMemoryForGrowthIsFoundInOrder: free, kept, parked, youngest; and who is the
// youngest waits, without losing its cache.
func TestMemoryForGrowthIsFoundInOrder(t *testing.T) {
	s := scarce(t, 7, 0)
	tell(t, s, Event{Kind: Kept, Bytes: GrowTokens})
	for id, n := range map[uint64]int{1: 256} {
		request(t, s, id, n)
	}
	for id := uint64(2); id <= 5; id++ {
		request(t, s, id, 100)
	}
	forward(t, s)
	tell(t, s, Event{Kind: Park, ID: 3})
	// 1 is at its end now, again and again; each time it takes one unit more.
	var found []string
	for len(found) < 5 {
		p := s.Next(Budget{8192})
		c := s.byID[1].capacity
		switch {
		case p.Reclaim > 0:
			found = append(found, "kept")
		case len(p.Preempted) > 0:
			found = append(found, string(rune('0'+p.Preempted[0])))
		default:
			found = append(found, "free")
		}
		for s.byID[1].total <= c {
			tell(t, s, Event{Kind: Committed, ID: 1, N: 1})
		}
	}
	if want := []string{"free", "kept", "3", "5", "4"}; !slices.Equal(found, want) {
		t.Errorf("%v, not %v", found, want)
	}
}

// TestYoungestWaits for growth with the cache it has, and joins wait behind it.
func TestYoungestWaits(t *testing.T) {
	s := scarce(t, 3, 0)
	request(t, s, 1, 200)
	request(t, s, 2, 255)
	request(t, s, 3, 600)
	forward(t, s)
	forward(t, s) // 2 has 256 tokens cached soon
	forward(t, s)
	tell(t, s, Event{Kind: Kept, Bytes: GrowTokens})
	tell(t, s, Event{Kind: Memory, Bytes: 2 * GrowTokens})
	forward(t, s)
	p := forward(t, s)
	if got := states(s, 1, 2, 3); !slices.Equal(got, []State{Decoding, Blocked, Failed}) && got[1] != Blocked || len(p.Passes[0].Rows) != 1 {
		t.Fatalf("%v %+v", got, p)
	}
	request(t, s, 4, 1)
	tell(t, s, Event{Kind: Cancel, ID: 1})
	p = forward(t, s)
	if got := states(s, 2, 4); !slices.Equal(got, []State{Decoding, Blocked}) || len(p.Preempted) > 0 || p.Passes[0].Rows[0].Capacity != 512 {
		t.Errorf("%v %+v", got, p)
	}
}
