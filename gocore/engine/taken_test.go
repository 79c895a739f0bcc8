package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"axlm/gocore/kvcache"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
)

// resumed gives the request a cache of what was taken from it.
func resumed(t *testing.T, r *Request, states []kvcache.State) *Cache {
	t.Helper()
	next, err := r.model.NewCache(states)
	freeStates(states)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	if err := r.Resume(next); err != nil {
		t.Fatal(err)
	}
	return next
}

// Tokens that are taken back with a cache take their draws back with them:
// wherever the reader looks, the samples are those of an undisturbed run.
func TestSamplesAfterACacheWasTaken(t *testing.T) {
	for kind, m := range caching(t) {
		text := prompt(8, 9)
		base := Options{MaxTokens: 24, PrefillStepSize: 64, Sampler: &sampling.Sampler{Temp: 1.5}}
		plain := ids(seeded(t, m, text, base, 1))
		truth := append(slices.Clone(text), plain...)
		for _, right := range []int{-1, 2, 5} {
			for stop := 1; stop < 20; stop++ {
				o := base
				o.Cache = emptyCache(t, m)
				if right >= 0 {
					o.Speculation = forced(5)
					o.Proposers = []ngram.Proposer{&oracle{truth: truth, depth: 5, right: right}}
				}
				r, err := m.Generate(text, o)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Reseed(sampling.Key{0, 1}); err != nil {
					t.Fatal(err)
				}
				got := readSome(t, r, stop)
				states, err := o.Cache.Take()
				if err != nil {
					t.Fatal(err)
				}
				next := resumed(t, r, states)
				// Twice: the state that the first one leaves must hold, too.
				got = append(got, readSome(t, r, 1)...)
				if states, err = next.Take(); err != nil {
					t.Fatal(err)
				}
				resumed(t, r, states)
				got = append(got, ids(collect(t, r, -1))...)
				r.Close()
				equal(t, fmt.Sprintf("%s, %d of 5 drafts right, taken after %d", kind, right, stop), got, plain)
			}
		}
	}
}

// A cache of bounded size that has written over its oldest rows cannot go back.
// It must outlive a reader that stops while a token waits, and a look at it.
func TestABoundedCacheOutlivesItsReader(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 31))
	rotating := kvcache.State{Kind: kvcache.KindRotating, MaxSize: 16, Keep: 4}
	text := prompt(38, 11)
	whole := ids(generate(t, m, text, Options{MaxTokens: 30, MaxKVSize: 16}))
	for _, speculation := range []*ngram.Config{nil, forced(4)} {
		for _, look := range []bool{false, true} {
			c, err := m.NewCache([]kvcache.State{rotating, rotating})
			if err != nil {
				t.Fatal(err)
			}
			r, err := m.Generate(text, Options{MaxTokens: 30, PrefillStepSize: 64, Cache: c, Speculation: speculation})
			if err != nil {
				t.Fatal(err)
			}
			got := readSome(t, r, 12)
			if err := Ask(r); err != nil {
				t.Fatal(err)
			}
			untilWaiting(r)
			if !look {
				r.Close()
				if states := taken(t, c); states[0].Offset < len(text)+12 {
					t.Errorf("the cache holds %d tokens, want %d at least", states[0].Offset, len(text)+12)
				}
				continue
			}
			states, err := c.Take()
			if err != nil {
				t.Fatal(err)
			}
			resumed(t, r, states)
			equal(t, "after a look", append(got, ids(collect(t, r, -1))...), whole)
			r.Close()
		}
	}
}

// More readers than any queue would hold, some of whom leave in the middle,
// while the engine is busy: all of them end.
func TestManyReadersAndCancels(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 22))
	const readers = 200
	release := make(chan struct{})
	if err := m.engine.post(func() { <-release }); err != nil {
		t.Fatal(err)
	}
	want := 4
	var all sync.WaitGroup
	for i := range readers {
		all.Go(func() {
			r, err := m.Generate(prompt(uint64(i), 3), Options{MaxTokens: want, PrefillStepSize: 8})
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			if i%3 == 0 {
				go r.Close()
			}
			_ = Ask(r)
			for n := 0; ; n++ {
				token, status, err := r.Next(time.Minute)
				token.Free()
				switch {
				case err != nil:
					t.Errorf("reader %d: %v", i, err)
					return
				case status == Finished:
					if i%3 != 0 && n != want {
						t.Errorf("reader %d got %d tokens", i, n)
					}
					return
				case status == Pending:
					t.Errorf("reader %d waits for ever", i)
					return
				}
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	close(release)
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("deadlock")
	}
	if s, err := m.Stats(); err != nil || s.Requests != 0 {
		t.Errorf("%d requests are left, %v", s.Requests, err)
	}
}

// A token that was asked for twice, by its reader and by the cache's return, is
// made once; after the last one nothing is.
func TestAWishThatWasFulfilledIsForgotten(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 22))
	r, err := m.Generate(prompt(1, 5), Options{MaxTokens: 3, PrefillStepSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	readSome(t, r, 3)
	if err := m.engine.do(func() error { r.want(); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Stats(); err != nil { // a step has passed
		t.Fatal(err)
	}
	if token, status, err := r.Next(time.Minute); status != Finished || err != nil {
		t.Errorf("after the last token comes %d, %v, %v", token.ID, status, err)
	}
	if s, err := r.Stats(); err != nil || s.GeneratedTokens != 3 || r.out.State().Waiting != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
