package ngram

import "testing"

// dear is a proposer that counts how often it is asked.
type dear struct{ asked int }

func (d *dear) Name() string           { return "dear" }
func (d *dear) Observe(*History, int)  {}
func (d *dear) Feedback(int, int)      {}
func (d *dear) Truncate(*History, int) {}
func (d *dear) Bytes() int             { return 0 }
func (d *dear) Draft(h *History, dst []Draft) int {
	d.asked++
	for i := range dst {
		dst[i] = Draft{Token: int32(h.Len() + i), P: 1}
	}
	return len(dst)
}

// paidRun decodes as the engine does, plain steps queued ahead, and returns
// after which steps there were drafts.
func paidRun(t *testing.T, s *Speculator, steps, accepted int, plain, drafting float64) (drafted []bool) {
	t.Helper()
	ahead := false
	for range steps {
		var d Decision
		if ahead {
			d = s.PlanAhead(8)
		} else {
			d = s.Plan(8)
		}
		ahead = d.Lookahead
		right, seconds := 0, plain
		if len(d.Drafts) > 0 {
			right, seconds = accepted, drafting
		}
		for range right + 1 {
			s.Observe(int32(s.Len()))
		}
		s.Result(d, right, seconds)
		drafted = append(drafted, len(d.Drafts) > 0)
	}
	return drafted
}

func paidSpeculator(t *testing.T) (*Speculator, *dear) {
	t.Helper()
	c := DefaultConfig()
	c.Adaptive, c.Paid, c.MaxDraftTokens = false, true, 3
	p := &dear{}
	s, err := NewWithProposers(c, nil, p)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func count(marks []bool) (n int) {
	for _, m := range marks {
		if m {
			n++
		}
	}
	return n
}

func TestPaidDraftsFromTheFirstStep(t *testing.T) {
	s, p := paidSpeculator(t)
	if n := count(paidRun(t, s, firstPricing, 2, 1, 1.5)); n != firstPricing || p.asked != n {
		t.Errorf("%d of %d steps drafted, asked %d times", n, firstPricing, p.asked)
	}
}

func TestPaidDraftsThatPayGoOn(t *testing.T) {
	s, p := paidSpeculator(t)
	// Three tokens in the time of 1.5: the gate stays open, whatever share of the drafts is right.
	n := count(paidRun(t, s, 1000, 2, 1, 1.5))
	if n < 970 || p.asked != n {
		t.Errorf("%d of 1000 steps drafted, asked %d times", n, p.asked)
	}
	// Nothing of it is the cost of a pass.
	if c := s.shared.cost.Curve(); len(c.Points()) != 1 || c.seconds[1] != 1 {
		t.Errorf("costs %v", c.Points())
	}
}

func TestPaidDraftsThatDoNotPayAreNotAskedFor(t *testing.T) {
	s, p := paidSpeculator(t)
	marks := paidRun(t, s, 1000, 0, 1, 2)
	if n := count(marks); n > 80 || p.asked != n {
		t.Errorf("%d of 1000 steps drafted, asked %d times", n, p.asked)
	}
	if s.Stats().NoDraft[string(ReasonPaused)] < 800 {
		t.Errorf("no drafts because: %v", s.Stats().NoDraft)
	}
	// Once they pay again they come back.
	if n := count(paidRun(t, s, 3000, 3, 1, 1.5)); n < 1500 {
		t.Errorf("%d of 3000 steps drafted when it pays", n)
	}
}

// Steps that cannot be timed must not keep drafts away.
func TestPaidDraftsWithoutTiming(t *testing.T) {
	s, _ := paidSpeculator(t)
	if n := count(paidRun(t, s, 1000, 1, 0, 0)); n < 800 {
		t.Errorf("%d of 1000 steps drafted", n)
	}
}

func TestPaidDraftsWithAnOpenGate(t *testing.T) {
	c := DefaultConfig()
	c.Adaptive, c.Paid, c.MaxDraftTokens, c.EMAThreshold = false, true, 3, 0
	s, err := NewWithProposers(c, nil, &dear{})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(paidRun(t, s, 200, 0, 1, 9)); n != 200 {
		t.Errorf("%d of 200 steps drafted", n)
	}
}

// A price taken while the machine was busy with something else.
func TestPaidDraftsOutliveNoWrongPrice(t *testing.T) {
	s, _ := paidSpeculator(t)
	first := paidRun(t, s, firstPricing+pricingSteps, 0, 100, 5)
	if n := count(first); n != firstPricing {
		t.Fatalf("%d steps drafted before the first price", n)
	}
	if n := count(paidRun(t, s, 600, 0, 1, 5)); n > 3*firstPricing {
		t.Errorf("%d of 600 steps drafted, each at the price of 5 plain ones for 1 token", n)
	}
}
