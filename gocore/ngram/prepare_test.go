package ngram

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// noise is text in which nothing comes back.
func noise(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 2))
	text := make([]int32, n)
	for i := range text {
		text[i] = rng.Int32N(1 << 30)
	}
	return text
}

// proposals are what each proposer drafts now.
func proposals(s *Speculator) (all [][]int32) {
	for _, p := range s.proposers {
		all = append(all, drafted(p, s.history, MaxDraft))
	}
	return all
}

// TestPreparedIsObserved: prepared in parts, observed at once, or token by token, the drafts are the same.
func TestPreparedIsObserved(t *testing.T) {
	for name, text := range map[string][]int32{"prose": prose(1, 20_000), "cycle": cycle(7, 5000), "short": prose(2, 300), "none": nil} {
		cfg := DefaultConfig()
		at := len(text) / 3
		a, err := Prepare(context.Background(), cfg, mustShared(t, cfg), text[:at], text[at:])
		if err != nil {
			t.Fatal(err)
		}
		b, c := mustNew(t, cfg, nil), mustNew(t, cfg, nil)
		b.Observe(text...)
		for _, token := range text {
			c.Observe(token)
		}
		if a.Len() != len(text) || b.Len() != len(text) {
			t.Fatalf("%s: lengths %d and %d, want %d", name, a.Len(), b.Len(), len(text))
		}
		more := append(prose(1, 20_000)[5000:5040:5040], prose(1, 20_000)[100:140]...)
		for i, token := range more {
			x, y, z := proposals(a), proposals(b), proposals(c)
			for p := range x {
				if !slices.Equal(x[p], y[p]) || !slices.Equal(x[p], z[p]) {
					t.Fatalf("%s, token %d, proposer %s:\n%v\n%v\n%v", name, i, a.proposers[p].Name(), x[p], y[p], z[p])
				}
			}
			a.Observe(token)
			b.Observe(token)
			c.Observe(token)
		}
	}
}

// TestPreparedElsewhere hands speculators of one model from the goroutines that index their prompts to one that plans, as
// an engine does, and lets a third store their texts. Run it with -race.
func TestPreparedElsewhere(t *testing.T) {
	cfg := DefaultConfig()
	shared := mustShared(t, cfg)
	ready := make(chan *Speculator)
	var callers, stores sync.WaitGroup
	for i := range 8 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			s, err := Prepare(context.Background(), cfg, shared, cycle(5+i, 4000))
			if err != nil {
				t.Error(err)
				return
			}
			ready <- s
		}()
	}
	go func() { callers.Wait(); close(ready) }()
	n := 0
	for s := range ready {
		n++
		for range 20 {
			d := s.Plan(16)
			s.Result(d, len(d.Drafts), 0.01)
			s.Observe(append(slices.Clone(d.Drafts), 1)...)
		}
		s.Settle()
		if got := shared.Stats().Requests; got != n {
			t.Fatalf("%d requests are booked, want %d", got, n)
		}
		stores.Add(1)
		go func() { defer stores.Done(); s.Finish() }()
		if s.Stats().Tokens != s.Len() {
			t.Error("no statistics while the text is stored")
		}
	}
	stores.Wait()
	if st := shared.Stats(); st.Requests != 8 || st.Store.Texts != 8 || st.Steps != 160 {
		t.Errorf("%d requests, %d steps, %d texts", st.Requests, st.Steps, st.Store.Texts)
	}
}

func TestPrepareEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Prepare(ctx, DefaultConfig(), nil, prose(1, 5000)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Prepare(ctx, Config{}, nil); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a wrong configuration: %v", err)
	}
}

// TestMemoryGrowsWithTheText holds Config.MaxBytes' promise: what a request of n tokens holds.
func TestMemoryGrowsWithTheText(t *testing.T) {
	for _, n := range []int{0, 1, 100, 1000, 1500, 5000, 9000, 20_000, 40_000, 100_000} {
		for name, text := range map[string][]int32{"noise": noise(3, n), "prose": prose(3, n), "cycle": cycle(7, n)} {
			cfg := DefaultConfig()
			a, b := mustNew(t, cfg, nil), mustNew(t, cfg, nil)
			a.Observe(text...)
			for at := 0; at < n; at += 100 {
				b.Observe(text[at:min(at+100, n)]...)
			}
			most := min(52<<10+450*n, cfg.MaxBytes)
			for how, s := range map[string]*Speculator{"at once": a, "bit by bit": b} {
				if got := s.Stats().Bytes; got > most {
					t.Errorf("%d tokens of %s, %s: %d bytes, promised are %d", n, name, how, got, most)
				}
			}
		}
	}
}

// TestRoomIsMadeOnce: what is shown at once is indexed without growing step by step.
func TestRoomIsMadeOnce(t *testing.T) {
	text := noise(1, 32768)
	if n := testing.AllocsPerRun(1, func() {
		s := mustNew(t, DefaultConfig(), nil)
		s.Observe(text...)
	}); n > 45 {
		t.Errorf("%v allocations", n)
	}
}

func TestSketch(t *testing.T) {
	for _, n := range []int{0, 1, 10, 1000, 30_000} {
		k := newSketch(2*n, 1<<20)
		for i := range 2 * n {
			k.add(bigramKey(int32(i%max(n, 1)), 7))
		}
		if got := k.distinct(); float64(got) < 0.97*float64(n)-2 || float64(got) > 1.03*float64(n)+2 {
			t.Errorf("%d different keys, estimated %d", n, got)
		}
	}
	k := newSketch(1<<20, 64)
	for i := range 1 << 16 {
		k.add(bigramKey(int32(i), 7))
	}
	if k.distinct() < 64 {
		t.Errorf("more than it can count, estimated %d", k.distinct())
	}
}
