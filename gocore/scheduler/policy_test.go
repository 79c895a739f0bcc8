package scheduler

import (
	"errors"
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

// TestWidthFollowsCost: eight looping rows draft where passes cost little more
// with them, and do not where they cost too much.
func TestWidthFollowsCost(t *testing.T) {
	for _, c := range []struct {
		name  string
		cost  [9]int64
		width int
	}{
		{"flat", [9]int64{1: 100, 2: 101, 3: 102, 4: 103, 5: 104, 8: 110}, 5},
		{"linear", [9]int64{1: 100, 2: 220, 3: 330, 4: 440, 5: 550, 8: 880}, 1},
		{"wider is cheaper", [9]int64{1: 100, 2: 200, 3: 300, 4: 400, 5: 500, 8: 120}, 8},
		{"knee", [9]int64{1: 100, 2: 110, 3: 120, 4: 400, 5: 500, 8: 900}, 3},
	} {
		s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4, Width: 8}, Event{Kind: Memory, Bytes: 1 << 30})
		for id := range uint64(8) {
			request(t, s, id, 1)
		}
		for w, n := range c.cost {
			if n > 0 {
				tell(t, s, Event{Kind: Cost, N: 8, Width: w, Nanos: n})
			}
		}
		for id := range uint64(8) {
			tell(t, s, looping(id, 900000, 800000, 700000, 600000))
		}
		p := s.Next(Budget{4096})
		if len(p.Passes) != 1 || len(p.Passes[0].Rows) != 8 || p.Passes[0].Width != c.width {
			t.Errorf("%s: %+v", c.name, p.Passes)
		}
		if p.Passes[0].Lookahead != (c.width == 1) {
			t.Errorf("%s: lookahead %v", c.name, p.Passes[0].Lookahead)
		}
	}
}

// TestUnknownWidthsAreTried: with plain passes known alone, a wider one is tried
// soon, and chosen when it turns out cheap.
func TestUnknownWidthsAreTried(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4, Width: 8}, Event{Kind: Memory, Bytes: 1 << 30})
	request(t, s, 1, 1)
	request(t, s, 2, 1)
	drafted := 0
	for range 100 {
		for id := uint64(1); id <= 2; id++ {
			tell(t, s, looping(id, 990000, 980000, 970000))
		}
		p := s.Next(Budget{256})
		pass := p.Passes[0]
		tell(t, s, Event{Kind: Cost, N: len(pass.Rows), Width: pass.Width, Nanos: int64(100 + pass.Width)})
		for _, r := range pass.Rows {
			drafted += r.Drafts
			tell(t, s, Event{Kind: Committed, ID: r.ID, N: 1 + r.Drafts, Accepted: r.Drafts})
		}
	}
	if drafted < 500 {
		t.Errorf("%d drafts in 100 passes", drafted)
	}
}

func TestLoneRowTakesItsSpeculatorsWidth(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 4, Width: 32}, Event{Kind: Memory, Bytes: 1 << 30})
	request(t, s, 1, 1)
	e := looping(1, 1, 1, 1, 1)
	e.Width = 16
	tell(t, s, e)
	if p := s.Next(Budget{256}).Passes[0]; p.Width != 16 || p.Rows[0].Drafts != 4 || p.Rows[0].Route != RouteVerify {
		t.Errorf("%+v", p)
	}
}

// TestLongBesideShort: what is charged for one long request and seven short ones
// is far from eight long ones.
func TestLongBesideShort(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 1000}, Event{Kind: Memory, Bytes: 1 << 40})
	request(t, s, 1, 32000)
	for id := uint64(2); id <= 8; id++ {
		request(t, s, id, 100)
	}
	s.Next(Budget{4096})
	if st := s.Stats(); st.BankBytes > 1000*(32768+8*256) {
		t.Errorf("%d bytes", st.BankBytes)
	}
}

func TestWhoCannotFitAloneFails(t *testing.T) {
	s := started(t, DefaultConfig(), Event{Kind: Define, Bytes: 10}, Event{Kind: Memory, Bytes: 5000}, Event{Kind: Kept, Bytes: 5000})
	request(t, s, 1, 501)
	request(t, s, 2, 500)
	p := s.Next(Budget{4096})
	if len(p.Failed) != 1 || p.Failed[0].ID != 1 || errs.Kind(p.Failed[0].Err()) != errs.KindMemory {
		t.Fatalf("%+v", p.Failed)
	}
	if len(p.Joins) != 1 || p.Joins[0].ID != 2 || p.Reclaim != 5000 {
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
	if p := s.Next(Budget{1}); len(p.Left) != 1 || p.Left[0].Had {
		t.Errorf("%+v", p)
	}
	if p := s.Next(Budget{1}); !p.Empty() {
		t.Errorf("%+v", p)
	}
}

// crowd is a scheduler with n decoding requests; the function is one step.
func crowd(t testing.TB, n int) func() {
	cfg := DefaultConfig()
	cfg.Slots = 256
	s := started(t, cfg, Event{Kind: Define, Bytes: 4, Width: 8}, Event{Kind: Memory, Bytes: 1 << 40}, Event{Kind: Cost, N: n, Width: 1, Nanos: 100})
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
