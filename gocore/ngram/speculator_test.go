package ngram

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// plainStep makes a step in which nothing is accepted and token is committed.
func plainStep(s *Speculator, token int32) Decision {
	d := s.Plan(32)
	s.Observe(token)
	s.Result(d, 0, 0.01)
	return d
}

// TestPlainSpecification drives the whole speculator through the trace of TestGateTrace.
func TestPlainSpecification(t *testing.T) {
	s := mustNew(t, plainConfig(), nil)
	s.Observe(cycle(6, 60)...)
	next := func() int32 { return int32(s.Len() % 6) }
	reject := func() Decision { // the cycle goes on, but the drafts are taken to be rejected
		d := s.Plan(32)
		s.Result(d, 0, 0.01)
		return d
	}
	for i, want := range []float64{0.9, 0.81, 0.729, 0.6561, 0.59049, 0.531441, 0.4782969} {
		d := reject()
		if len(d.Drafts) != 4 || d.Width != 5 || d.Reason != ReasonNone || d.Proposer != NameTables || d.Lookahead {
			t.Fatalf("step %d: %+v", i, d)
		}
		if got := s.Stats().Gate.EMA; !near(got, want) {
			t.Fatalf("step %d: e = %v, want %v", i, got, want)
		}
	}
	for i := range 4 {
		if d := plainStep(s, next()); len(d.Drafts) != 0 || d.Reason != ReasonPaused || d.Width != 1 || !d.Lookahead {
			t.Fatalf("plain step %d: %+v", i, d)
		}
	}
	d := s.Plan(32) // the probe
	if want := []int32{next(), next() + 1, next() + 2, next() + 3}; len(d.Drafts) != 4 {
		t.Fatalf("the probe has %v, want %v", d.Drafts, want)
	}
	s.Result(d, 4, 0.01)
	if g := s.Stats().Gate; g.Paused || !near(g.EMA, 0.9*0.4782969+0.1) {
		t.Fatalf("after the probe: %+v", g)
	}
	st := s.Stats()
	want := Counts{
		Steps: 12, DraftSteps: 8, Drafted: 32, Accepted: 4, Committed: 16, Seconds: st.Seconds,
		NoDraft:    map[string]int{"gate_paused": 4},
		ByDepth:    []DepthStats{{4, 8, 4, 1}},
		ByPosition: []PositionStats{{1, 8, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}},
		ByProposer: []SourceStats{{NameTables, 8, 32, 4}},
	}
	if !reflect.DeepEqual(st.Counts, want) || !near(st.Seconds, 0.12) {
		t.Errorf("got  %+v\nwant %+v", st.Counts, want)
	}
}

// TestPlainSpecificationUsesTablesAlone: a repeat that only a long match tells is not drafted as the suffix matcher would.
func TestPlainSpecificationUsesTablesAlone(t *testing.T) {
	s := mustNew(t, plainConfig(), nil)
	if len(s.proposers) != 1 || s.proposers[0].Name() != NameTables {
		t.Errorf("proposers %v", s.proposers)
	}
	c := plainConfig()
	c.MaxDraftTokens = 0
	s = mustNew(t, c, nil)
	s.Observe(cycle(6, 60)...)
	if d := s.Plan(32); len(d.Drafts) != 4 {
		t.Errorf("%d drafts by default", len(d.Drafts))
	}
}

func TestLimitsAndReasons(t *testing.T) {
	s := mustNew(t, plainConfig(), nil)
	if d := s.Plan(32); d.Reason != ReasonNoMatch || len(d.Drafts) != 0 {
		t.Errorf("an empty history: %+v", d)
	}
	s.Observe(cycle(6, 60)...)
	for _, limit := range []int{-5, 0} {
		if d := s.Plan(limit); len(d.Drafts) != 0 || d.Reason != ReasonLimit {
			t.Errorf("limit %d: %+v", limit, d)
		}
	}
	for limit := 1; limit < 6; limit++ {
		if d := s.Plan(limit); len(d.Drafts) != min(limit, 4) {
			t.Errorf("limit %d: %d drafts", limit, len(d.Drafts))
		}
	}
	s.Observe(900, 901, 902)
	if d := s.Plan(32); d.Reason != ReasonNoMatch {
		t.Errorf("nothing matches: %+v", d)
	}
	a := mustNew(t, DefaultConfig(), nil)
	a.Observe(cycle(6, 60)...)
	if d := a.Plan(32); d.Reason != ReasonWarmingUp {
		t.Errorf("no step was timed yet: %+v", d)
	}
}

// TestAlternativeProposersAreForced is how tests of an engine make it verify whatever they like.
func TestAlternativeProposersAreForced(t *testing.T) {
	cfg := plainConfig()
	cfg.EMAThreshold, cfg.MaxDraftTokens = 0, 7
	p := &seer{truth: unique, chance: func(int) float64 { return 0 }, rng: rand.New(rand.NewPCG(1, 1)), conf: 0.5}
	s, err := NewWithProposers(cfg, nil, p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		d := s.Plan(5)
		if len(d.Drafts) != 5 || d.Proposer != "seer" {
			t.Fatalf("step %d: %+v", i, d)
		}
		s.Result(d, 0, 0)
		s.Observe(int32(i))
	}
	if _, err := NewWithProposers(cfg, nil); err == nil {
		t.Error("no proposers, and no error")
	}
}

// TestHistoryShrinks is the case of a caller that trims its prompt cache in mid-run: any length may be asked for, at any
// time, and nothing from beyond it may be proposed.
func TestHistoryShrinks(t *testing.T) {
	for _, cfg := range []Config{DefaultConfig(), plainConfig()} {
		rng := rand.New(rand.NewPCG(3, 3))
		s := mustNew(t, cfg, nil)
		var text []int32
		epoch := int32(0)
		for round := range 300 {
			// Tokens of a stretch that will be cut are marked by their epoch.
			epoch++
			for range rng.IntN(40) {
				d := s.Plan(rng.IntN(40))
				tok := epoch*100 + int32(rng.IntN(6))
				if len(d.Drafts) > 0 {
					for _, x := range d.Drafts {
						if !slices.Contains(text, x) {
							t.Fatalf("round %d: draft %d is not in the text of %d tokens", round, x, len(text))
						}
					}
					if rng.IntN(2) == 0 {
						tok = d.Drafts[0]
					}
				}
				accepted := 0
				if len(d.Drafts) > 0 && d.Drafts[0] == tok {
					accepted = 1
				}
				s.Observe(tok)
				text = append(text, tok)
				if rng.IntN(4) == 0 { // the history may shrink before the result comes, too
					n := max(0, len(text)-rng.IntN(3))
					s.Truncate(n)
					text = text[:n]
				}
				s.Result(d, accepted, 0.01)
			}
			n := rng.IntN(len(text)+10) - 5
			s.Truncate(n)
			if n < len(text) {
				text = text[:max(n, 0)]
			}
			if s.Len() != len(text) {
				t.Fatalf("round %d: length %d, want %d", round, s.Len(), len(text))
			}
		}
	}
}

func TestCooldownAfterPartialAcceptance(t *testing.T) {
	cfg := plainConfig().ForRecurrent()
	cfg.Cooldown = 3
	s := mustNew(t, cfg, nil)
	s.Observe(cycle(6, 60)...)
	d := s.Plan(32)
	s.Result(d, len(d.Drafts), 0.01)
	if d = s.Plan(32); len(d.Drafts) != 4 {
		t.Fatalf("after a whole acceptance: %+v", d)
	}
	s.Result(d, 2, 0.01)
	for i := range 3 {
		if d = plainStep(s, int32(s.Len()%6)); d.Reason != ReasonCooldown {
			t.Fatalf("step %d after a partial acceptance: %+v", i, d)
		}
	}
	if d = s.Plan(32); len(d.Drafts) != 4 {
		t.Errorf("after the cooldown: %+v", d)
	}
}

func TestResultTakesWhatIsLeftOfADecision(t *testing.T) {
	s := mustNew(t, plainConfig(), nil)
	s.Observe(cycle(6, 60)...)
	d := s.Plan(32)
	d.Drafts, d.Width = d.Drafts[:2], 3 // no room for more
	s.Result(d, 2, 0.01)
	st := s.Stats()
	if st.Drafted != 2 || st.Accepted != 2 || st.Gate.EMA != 1 {
		t.Errorf("%+v", st.Counts)
	}
	old := s.Plan(32)
	s.Plan(32)
	s.Result(old, 99, 0.01)            // of an older decision, and more than there are
	s.Result(Decision{}, -1, 0.01)     // of none
	s.Result(Decision{Width: 1}, 5, 0) // of none
	if st = s.Stats(); st.Steps != 4 || st.Accepted != 6 || st.Committed != 10 {
		t.Errorf("%+v", st.Counts)
	}
}

func TestFinishSharesTheText(t *testing.T) {
	shared := mustShared(t, DefaultConfig())
	first := mustNew(t, DefaultConfig(), shared)
	first.Observe(cycle(400, 400)...)
	for range 5 {
		plainStep(first, 7)
	}
	first.Finish()
	first.Finish()
	st := shared.Stats()
	if st.Requests != 1 || st.Steps != 5 || st.Store.Texts != 1 || st.Store.Tokens != 406 {
		t.Fatalf("%+v", st)
	}
	for w, c := range map[int]float64{1: 0.01, 2: 0.0101, 4: 0.0102, 8: 0.0103} {
		for range 3 {
			shared.Cost().Record(w, c)
		}
	}
	second := mustNew(t, DefaultConfig(), shared)
	second.Observe(5000, 100, 101, 102, 103, 104, 105, 106, 107, 108)
	d := second.Plan(7)
	if d.Proposer != NameShared || !slices.Equal(d.Drafts, []int32{109, 110, 111, 112, 113, 114, 115}) {
		t.Errorf("%+v", d)
	}
	cfg := DefaultConfig()
	cfg.SharedBytes = 0
	alone := mustShared(t, cfg)
	s := mustNew(t, cfg, alone)
	s.Observe(cycle(400, 400)...)
	s.Finish()
	if st := alone.Stats(); st.Store != (StoreStats{}) || st.Requests != 1 {
		t.Errorf("%+v", st)
	}
}

// TestShadowsTellOfDraftsNotMade: where drafting never pays, acceptance is learned all the same, at no cost.
func TestShadowsTellOfDraftsNotMade(t *testing.T) {
	shared := mustShared(t, DefaultConfig())
	for w, c := range map[int]float64{1: 1, 2: 2} {
		for range 3 {
			shared.Cost().Record(w, c)
		}
	}
	s := mustNew(t, DefaultConfig(), shared)
	s.Observe(cycle(9, 90)...)
	for range 200 {
		d := s.Plan(32)
		s.Observe(int32(s.Len() % 9))
		s.Result(d, min(1, len(d.Drafts)), float64(d.Width))
	}
	if n := s.Stats().DraftSteps; n > 5 {
		t.Fatalf("%d steps with drafts", n)
	}
	var chances [4]float32
	c := s.control
	c.gather(s.history, s.proposers, 4)
	copy(chances[:], c.cands[0].chances[:])
	if chances[0] < 0.95 || chances[3] < 0.95 {
		t.Errorf("every draft would have been accepted; the chances are %v", chances)
	}
}

// TestPlanAheadNeverDrafts, and says when drafting should follow.
func TestPlanAheadNeverDrafts(t *testing.T) {
	s := mustNew(t, DefaultConfig(), nil)
	s.Observe(cycle(9, 900)...)
	wanted := 0
	for range 50 {
		d := s.PlanAhead(32)
		if len(d.Drafts) > 0 || d.Width != 1 || d.Reason == ReasonNone {
			t.Fatalf("%+v", d)
		}
		s.Observe(int32(s.Len() % 9))
		s.Result(d, 0, 0.005)
		if d.Lookahead {
			continue
		}
		if d.Reason != ReasonLookahead {
			t.Fatalf("%+v", d)
		}
		wanted++
		if d = s.Plan(32); len(d.Drafts) == 0 {
			t.Fatalf("PlanAhead made room for drafts, and there are none: %+v", d)
		}
		accepted := len(d.Drafts)
		for range accepted + 1 {
			s.Observe(int32(s.Len() % 9))
		}
		s.Result(d, accepted, 0.006)
	}
	if wanted == 0 {
		t.Error("a loop, and no drafts wanted")
	}
}

// TestDeterministic: the same calls give the same decisions.
func TestDeterministic(t *testing.T) {
	run := func() []string {
		var out []string
		s := mustNew(t, DefaultConfig(), nil)
		text := prose(2, 3000)
		at := 1000
		s.Observe(text[:at]...)
		for at < len(text)-40 {
			d := s.Plan(32)
			accepted := 0
			for accepted < len(d.Drafts) && d.Drafts[accepted] == text[at+accepted] {
				accepted++
			}
			out = append(out, string(d.Reason)+d.Proposer, strings.Repeat("x", len(d.Drafts)))
			s.Observe(text[at : at+accepted+1]...)
			at += accepted + 1
			s.Result(d, accepted, 0.01+0.001*float64(d.Width))
		}
		return out
	}
	if a, b := run(), run(); !slices.Equal(a, b) {
		t.Error("two runs differ")
	}
}
