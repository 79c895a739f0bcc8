package ngram

import (
	"slices"
	"testing"
)

// TestOffers: without any step having been timed, a repeating text is offered with falling odds, and what is taken of
// it counts like a plan.
func TestOffers(t *testing.T) {
	s := mustNew(t, DefaultConfig(), nil)
	s.Observe(cycle(6, 60)...)
	for step := range 5 {
		o := s.Offer(12)
		if len(o.Drafts) == 0 || len(o.Drafts) != len(o.Odds) || len(o.Drafts) > 12 || o.Force {
			t.Fatalf("step %d: %+v", step, o)
		}
		for i, odds := range o.Odds {
			if odds <= 0 || odds > 1 || i > 0 && odds > o.Odds[i-1] {
				t.Fatalf("step %d: odds %v", step, o.Odds)
			}
			if want := int32((s.Len() + i) % 6); o.Drafts[i] != want {
				t.Fatalf("step %d: drafts %v, want %d at %d", step, o.Drafts, want, i)
			}
		}
		d := s.Take(o, 2)
		if !slices.Equal(d.Drafts, o.Drafts[:2]) || d.Width != 3 || d.Lookahead || d.Reason != ReasonNone {
			t.Fatalf("step %d: %+v", step, d)
		}
		next := int32(s.Len())
		s.Observe(next%6, (next+1)%6, (next+2)%6)
		s.Result(d, 2, 0)
	}
	if st := s.Stats(); st.Drafted != 10 || st.Accepted != 10 || st.Steps != 5 || st.Committed != 15 {
		t.Errorf("%+v", st.Counts)
	}
}

// TestOffersThatAreNotTaken: the step is plain, and its reason says why.
func TestOffersThatAreNotTaken(t *testing.T) {
	s := mustNew(t, DefaultConfig(), nil)
	s.Observe(cycle(6, 60)...)
	plain := func(o Offer, want Reason) {
		t.Helper()
		d := s.Take(o, 0)
		if len(d.Drafts) != 0 || d.Width != 1 || !d.Lookahead || d.Reason != want {
			t.Errorf("%+v, want the reason %s", d, want)
		}
		s.Observe(int32(s.Len() % 6))
		s.Result(d, 0, 0)
	}
	plain(s.Offer(5), ReasonNotWorth)
	plain(s.Offer(0), ReasonLimit)
	fresh := mustNew(t, DefaultConfig(), nil)
	if o := fresh.Offer(5); len(o.Drafts) != 0 || o.reason != ReasonNoMatch {
		t.Errorf("without a text: %+v", o)
	}
}

// TestOffersLearn: odds of drafts that prove wrong fall, though no step is timed.
func TestOffersLearn(t *testing.T) {
	s := mustNew(t, DefaultConfig(), nil)
	s.Observe(cycle(6, 60)...)
	first := s.Offer(4).Odds[0]
	for range 5 {
		o := s.Offer(4)
		n := len(o.Drafts)
		wrong := int32(100 + s.Len()%7)
		d := s.Take(o, n)
		s.Observe(wrong)
		s.Observe(cycle(6, 12)...)
		s.Result(d, 0, 0)
	}
	if last := s.Offer(4); len(last.Drafts) > 0 && last.Odds[0] > first/2 {
		t.Errorf("odds %v at first, %v after five wrong drafts", first, last.Odds[0])
	}
}

// TestPlainOffers: the plain scheme verifies what it has, whatever it costs, and pauses when that goes wrong.
func TestPlainOffers(t *testing.T) {
	s := mustNew(t, plainConfig(), nil)
	s.Observe(cycle(6, 60)...)
	for range 7 {
		o := s.Offer(32)
		if len(o.Drafts) != 4 || !o.Force {
			t.Fatalf("%+v", o)
		}
		s.Result(s.Take(o, 4), 0, 0)
	}
	if o := s.Offer(32); len(o.Drafts) != 0 || o.reason != ReasonPaused {
		t.Errorf("%+v, want a pause", o)
	}
}
