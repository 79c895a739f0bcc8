package scheduler

import (
	"errors"
	"slices"
	"testing"

	"axlm/gocore/errs"
)

func started(t testing.TB, cfg Config, events ...Event) *Scheduler {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tell(t, s, events...)
	return s
}

func tell(t testing.TB, s *Scheduler, events ...Event) {
	t.Helper()
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
	}
}

func request(t testing.TB, s *Scheduler, id uint64, n int) {
	t.Helper()
	tell(t, s, Event{Kind: Admit, ID: id, N: n, Max: Unlimited}, Event{Kind: Credit, ID: id, N: 1 << 20})
}

func looping(id uint64, odds ...uint32) Event {
	return Event{Kind: Drafts, ID: id, N: len(odds), Odds: odds}
}

// TestDraftsFollowCost: eight looping rows draft where passes cost little more
// with them, and do not where they cost too much.
func TestDraftsFollowCost(t *testing.T) {
	for _, c := range []struct {
		name   string
		cost   map[int]int64
		tokens int
	}{
		{"flat", map[int]int64{8: 100, 9: 100, 12: 101, 16: 101, 24: 103, 32: 104, 40: 106}, 40},
		{"linear", map[int]int64{8: 100, 16: 220, 24: 330, 32: 440}, 8},
		{"knee", map[int]int64{8: 100, 16: 110, 24: 120, 25: 300, 32: 400}, 24},
		{"jump that pays", map[int]int64{8: 100, 9: 200, 40: 201}, 40},
		{"jump that does not", map[int]int64{8: 100, 9: 400, 40: 401}, 8},
	} {
		s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4, Width: 8}, Event{Kind: Memory, Bytes: 1 << 30})
		for id := range uint64(8) {
			request(t, s, id, 1)
		}
		for tokens, n := range c.cost {
			tell(t, s, Event{Kind: Cost, N: 8, Tokens: tokens, Nanos: n})
		}
		for id := range uint64(8) {
			tell(t, s, looping(id, 900000, 800000, 700000, 600000))
		}
		p := s.Next(Budget{4096})
		if len(p.Passes) != 1 || len(p.Passes[0].Rows) != 8 || p.Passes[0].Tokens != c.tokens || p.Passes[0].Width != 0 {
			t.Errorf("%s: %+v", c.name, p.Passes)
		}
		if p.Passes[0].Lookahead != (c.tokens == 8) {
			t.Errorf("%s: lookahead %v", c.name, p.Passes[0].Lookahead)
		}
	}
}

// drafted is the drafts of a pass's rows.
func drafted(p Pass) (all []int) {
	for _, r := range p.Rows {
		all = append(all, r.Drafts)
	}
	return all
}

// TestDraftsGoToTheLikeliest: rows of one pass have unequal numbers of drafts,
// those with the best odds the most; equal odds go to the older row.
func TestDraftsGoToTheLikeliest(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4, Width: 8}, Event{Kind: Memory, Bytes: 1 << 30},
		Event{Kind: Cost, N: 3, Tokens: 3, Nanos: 100}, Event{Kind: Cost, N: 3, Tokens: 8, Nanos: 101}, Event{Kind: Cost, N: 3, Tokens: 9, Nanos: 1000})
	for id := range uint64(3) {
		request(t, s, id, 1)
	}
	tell(t, s, looping(0, 500000, 100000), looping(1, 990000, 980000, 970000, 960000), looping(2, 500000, 500000, 1))
	if p := s.Next(Budget{4096}).Passes[0]; p.Tokens != 8 || !slices.Equal(drafted(p), []int{1, 4, 0}) {
		t.Errorf("%+v", p)
	}
}

// TestForcedDrafts are taken whatever they cost, as far as the budget goes.
func TestForcedDrafts(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4, Width: 8}, Event{Kind: Memory, Bytes: 1 << 30})
	request(t, s, 1, 1)
	request(t, s, 2, 1)
	for _, c := range []struct {
		tokens int
		want   []int
	}{{100, []int{0, 4}}, {5, []int{0, 3}}, {2, []int{0, 0}}} {
		e := looping(2, 9, 8, 7, 6)
		e.Force = true
		tell(t, s, looping(1, 900000), e)
		if p := s.Next(Budget{c.tokens}).Passes[0]; !slices.Equal(drafted(p), c.want) {
			t.Errorf("%d tokens: %+v", c.tokens, p)
		}
	}
}

// TestUnknownTotalsAreTried: with plain passes known alone, a larger one is tried
// soon, and chosen when it turns out cheap.
func TestUnknownTotalsAreTried(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4, Width: 8}, Event{Kind: Memory, Bytes: 1 << 30})
	request(t, s, 1, 1)
	request(t, s, 2, 1)
	drafts := 0
	for range 100 {
		for id := uint64(1); id <= 2; id++ {
			tell(t, s, looping(id, 990000, 980000, 970000))
		}
		pass := s.Next(Budget{256}).Passes[0]
		tell(t, s, Event{Kind: Cost, N: len(pass.Rows), Tokens: pass.Tokens, Nanos: int64(100 + pass.Tokens)})
		for _, r := range pass.Rows {
			drafts += r.Drafts
			tell(t, s, Event{Kind: Committed, ID: r.ID, N: 1 + r.Drafts, Accepted: r.Drafts})
		}
	}
	if drafts < 450 {
		t.Errorf("%d drafts in 100 passes", drafts)
	}
}

func TestCostCells(t *testing.T) {
	last := 0
	for tokens := 1; tokens <= mostCosts; tokens++ {
		cell := costCell(tokens)
		if most := cellTokens(cell); cell < last || cell > last+1 || most < tokens || costCell(most) != cell || cell >= costCells {
			t.Fatalf("%d tokens in cell %d of at most %d", tokens, cell, most)
		}
		last = cell
	}
	if last != costCells-1 {
		t.Errorf("the last cell is %d", last)
	}
}

func TestLoneRowTakesItsSpeculatorsWidth(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4, Width: 32}, Event{Kind: Memory, Bytes: 1 << 30})
	request(t, s, 1, 1)
	e := looping(1, 1, 1, 1, 1)
	e.Width = 16
	tell(t, s, e)
	if p := s.Next(Budget{256}).Passes[0]; p.Width != 16 || p.Tokens != 5 || p.Rows[0].Drafts != 4 || p.Rows[0].Route != RouteVerify {
		t.Errorf("%+v", p)
	}
}

// TestSoloPassesAlone: rows of one class share a pass, those of a solo class do not.
func TestSoloPassesAlone(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4}, Event{Kind: Define, Class: 1, Solo: true}, Event{Kind: Memory, Bytes: 1 << 30})
	for id := range uint64(6) {
		tell(t, s, Event{Kind: Admit, ID: id, Class: uint32(id % 2), N: 1, Max: 5}, Event{Kind: Credit, ID: id, N: 5})
	}
	var rows []int
	for _, p := range s.Next(Budget{256}).Passes {
		rows = append(rows, len(p.Rows))
	}
	if !slices.Equal(rows, []int{3, 1, 1, 1}) {
		t.Errorf("%v", rows)
	}
}

func TestWhoCannotFitAloneFails(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 10}, Event{Kind: Memory, Bytes: 6000}, Event{Kind: Kept, Bytes: 5000})
	request(t, s, 1, 513)
	request(t, s, 2, 500) // without headroom
	p := s.Next(Budget{4096})
	if len(p.Failed) != 1 || p.Failed[0].ID != 1 || errs.Kind(p.Failed[0].Err()) != errs.KindMemory {
		t.Fatalf("%+v", p.Failed)
	}
	if len(p.Joins) != 1 || p.Joins[0].ID != 2 || p.Reclaim != 4120 {
		t.Errorf("%+v", p)
	}
}

func TestLateEventsChangeNothing(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 10}, Event{Kind: Memory, Bytes: 1 << 20})
	request(t, s, 1, 5)
	if err := s.Apply(Event{Kind: Committed, ID: 1, N: 1}); !errors.Is(err, ErrTransition) {
		t.Error(err)
	}
	if err := s.Apply(Event{Kind: Finish, ID: 1}); !errors.Is(err, ErrTransition) {
		t.Error(err)
	}
	tell(t, s, Event{Kind: Cancel, ID: 1})
	if err := s.Apply(Event{Kind: Credit, ID: 1, N: 1}); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if p := s.Next(Budget{1}); !p.Empty() {
		t.Errorf("%+v", p)
	}
}

// crowd is a scheduler with n decoding requests; the function is one step.
func crowd(t testing.TB, n int) func() {
	cfg := DefaultConfig()
	cfg.Running = 256
	s := started(t, cfg, Event{Kind: Define, Bytes: 4, Width: 8}, Event{Kind: Memory, Bytes: 1 << 40}, Event{Kind: Cost, N: n, Tokens: n, Nanos: 100}, Event{Kind: Cost, N: n, Tokens: 1024, Nanos: 120})
	for id := range uint64(n) {
		tell(t, s, Event{Kind: Admit, ID: id, N: 1 + int(id%7)*200, Max: Unlimited, Reused: int(id%7) * 200}, Event{Kind: Credit, ID: id, N: 1 << 29})
	}
	odds := []uint32{900000, 800000, 700000, 600000}
	step := func() {
		for id := range uint64(n) {
			_ = s.Apply(Event{Kind: Drafts, ID: id, N: 4, Odds: odds})
		}
		p := s.Next(Budget{8192})
		for _, pass := range p.Passes {
			for _, r := range pass.Rows {
				_ = s.Apply(Event{Kind: Committed, ID: r.ID, N: 1})
			}
		}
	}
	for range 8 {
		step()
	}
	return step
}

// BenchmarkStep256Deep is a step whose rows have as many drafts as may be.
func BenchmarkStep256Deep(b *testing.B) {
	s := started(b, Config{Running: 256, PrefillStep: 1}, Event{Kind: Define, Width: MaxWidth}, Event{Kind: Memory, Bytes: 1},
		Event{Kind: Cost, N: 256, Tokens: 256, Nanos: 100}, Event{Kind: Cost, N: 256, Tokens: 1024, Nanos: 101})
	for id := range uint64(256) {
		odds := make([]uint32, MaxWidth-1)
		for i := range odds {
			odds[i] = uint32(million - int(id*7919+uint64(i)*104729/4)%million*(i+1)/MaxWidth)
		}
		slices.Sort(odds)
		slices.Reverse(odds)
		request(b, s, id, 1)
		tell(b, s, looping(id, odds...))
	}
	for b.Loop() {
		s.Next(Budget{8192})
	}
}

func BenchmarkStep256(b *testing.B) {
	step := crowd(b, 256)
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}

// TestStepAllocatesNothing: at 256 requests a step makes hardly any garbage.
func TestStepAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(50, crowd(t, 256)); n > 8 {
		t.Errorf("%v allocations a step", n)
	}
}
