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
	request(t, s, 1, 256)
	for id := uint64(2); id <= 5; id++ {
		request(t, s, id, 100)
	}
	forward(t, s)
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

// TestWhoIsBlockedKeepsItsCache: a request at its cache's end waits behind an older
// one, younger ones do not join before it, and when it is the oldest it recomputes
// if only old and new buffers together do not fit.
func TestWhoIsBlockedKeepsItsCache(t *testing.T) {
	s := scarce(t, 3, 1)
	request(t, s, 1, 100)
	request(t, s, 2, 256)
	forward(t, s)
	forward(t, s)
	request(t, s, 3, 100)
	p := forward(t, s)
	if got := states(s, 1, 2, 3); !slices.Equal(got, []State{Decoding, Blocked, Blocked}) || len(p.Passes[0].Rows) != 1 || len(p.Preempted) > 0 {
		t.Fatalf("%v %+v", got, p)
	}
	tell(t, s, Event{Kind: Cancel, ID: 1})
	p = forward(t, s)
	if !slices.Equal(p.Preempted, []uint64{2}) || len(p.Joins) != 2 || p.Joins[0] != (Join{ID: 2, Capacity: 512, Tokens: 257, Again: true}) {
		t.Errorf("%+v", p)
	}
}

// TestDraftsAreCutBeforeMemoryIsTaken: kept prefixes and others stay where only
// drafts would need more.
func TestDraftsAreCutBeforeMemoryIsTaken(t *testing.T) {
	s := scarce(t, 3, 0)
	tell(t, s, Event{Kind: Kept, Bytes: GrowTokens})
	request(t, s, 1, 253)
	request(t, s, 2, 1)
	forward(t, s)
	tell(t, s, Event{Kind: Park, ID: 2}, looping(1, 4, 3, 2, 1))
	p := s.Next(Budget{100})
	if r := p.Passes[0].Rows[0]; r.Drafts != 3 || r.Capacity != 256 || p.Reclaim > 0 || len(p.Preempted) > 0 {
		t.Errorf("%+v", p)
	}
	tell(t, s, Event{Kind: Kept})
	p = s.Next(Budget{100})
	if r := p.Passes[0].Rows[0]; r.Drafts != 4 || r.Capacity != 512 {
		t.Errorf("with memory that is free: %+v", p)
	}
}

// TestLookaheadNeedsRoom: a pass is not queued ahead at a cache's end.
func TestLookaheadNeedsRoom(t *testing.T) {
	s := scarce(t, 3, 0)
	request(t, s, 1, 255)
	forward(t, s)
	for _, want := range []bool{true, false, true} {
		if p := forward(t, s); p.Passes[0].Lookahead != want {
			t.Errorf("%+v", p)
		}
	}
}

// TestHeadroom: a request joins with room for some tokens to come, or waits.
func TestHeadroom(t *testing.T) {
	s := started(t, Config{Running: 8, PrefillStep: 100, Headroom: 100}, Event{Kind: Define, Bytes: 1}, Event{Kind: Memory, Bytes: 3 * GrowTokens})
	request(t, s, 1, 200)
	tell(t, s, Event{Kind: Admit, ID: 2, N: 200, Max: 57}, Event{Kind: Credit, ID: 2, N: 1})
	tell(t, s, Event{Kind: Admit, ID: 3, N: 200, Max: 58}, Event{Kind: Credit, ID: 3, N: 1})
	p := s.Next(Budget{1000})
	if len(p.Joins) != 2 || p.Joins[0].Capacity != 512 || p.Joins[1].Capacity != 256 {
		t.Errorf("%+v", p.Joins)
	}
	if got := states(s, 1, 2, 3); !slices.Equal(got, []State{Prefilling, Prefilling, Blocked}) {
		t.Errorf("%v", got)
	}
}

// TestParkedGiveUpTheirPlace where no more requests may run.
func TestParkedGiveUpTheirPlace(t *testing.T) {
	s := started(t, Config{Running: 2, PrefillStep: 100}, Event{Kind: Define, Bytes: 1}, Event{Kind: Memory, Bytes: 1 << 30})
	for id := uint64(1); id <= 3; id++ {
		request(t, s, id, 5)
	}
	forward(t, s)
	if got := states(s, 3); got[0] != Waiting {
		t.Errorf("%v", got)
	}
	tell(t, s, Event{Kind: Park, ID: 1})
	if p := s.Next(Budget{100}); !slices.Equal(p.Preempted, []uint64{1}) || len(p.Joins) != 1 || p.Joins[0].ID != 3 {
		t.Errorf("%+v", p)
	}
}

// TestAllEndWithMemoryForFew: forty requests that each grow to most of the budget.
func TestAllEndWithMemoryForFew(t *testing.T) {
	s, err := New(small())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(s, s, 3, 20000)
	for id := uint64(1); id <= 40; id++ {
		w.nextID = id
		w.lives[id] = &life{order: int(id), class: uint32(id % 3), total: 40, max: 700}
		w.must(Event{Kind: Admit, ID: id, Class: uint32(id % 3), N: 40, Max: 700})
	}
	w.drain(t)
	if st := s.Stats(); st.Failed > 0 || st.Preemptions < 40 || st.Blocked < 10 || st.Recomputed > 20*st.Committed {
		t.Errorf("%+v", st)
	} else {
		t.Logf("%+v", st)
	}
}
