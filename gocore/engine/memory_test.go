package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"axlm/gocore/errs"
	"axlm/gocore/sampling"
)

// tight are a model of each kind and a budget for a little more than the caches
// of so many of its requests of up to 256 tokens.
func tight(t *testing.T, requests int64) map[string]*Model {
	all := map[string]*Model{}
	for kind, folder := range map[string]string{"full": nano(t, 31), "window": nanoWindowed(t, 31), "recurrent": nanoRecurrent(t, 31)} {
		e := start(t, Config{})
		m := load(t, e, folder)
		if err := e.do(func() error {
			size := e.planner.sizes[m]
			each := size.token*256 + size.windowToken*min(256, int64(size.window)) + size.state
			e.kvBytes = int(requests*each + 512*size.largest + each/2)
			e.allot()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		all[kind] = m
	}
	return all
}

// What does not fit together runs in turns, is preempted and made again, and
// every request ends with the tokens that it gives alone.
func TestABudgetTooSmallForAll(t *testing.T) {
	for kind, m := range tight(t, 3) {
		var requests []solo
		for i := range 7 {
			q := solo{text: prompt(uint64(60+i), 20+13*i), o: Options{MaxTokens: 60 + 30*i, PrefillStepSize: 50}, seed: uint32(i)}
			if i%2 == 1 {
				q.o.Sampler = &sampling.Sampler{Temp: 1.2}
			}
			q.truth = ids(seeded(t, m, q.text, q.o, q.seed))
			if i%3 == 0 {
				q = q.speculating(3, 2)
			}
			requests = append(requests, q)
		}
		running := make([]*Request, len(requests))
		together(t, m.engine, func() {
			for i, q := range requests {
				running[i] = q.begin(t, m)
				_ = Ask(running[i])
			}
		})
		got := make([][]int32, len(running))
		for busy := true; busy; {
			busy = false
			for i, r := range running {
				token, status, err := r.Next(time.Minute)
				if err != nil || status == Pending {
					t.Fatalf("%s, request %d after %d tokens: status %v, %v", kind, i, len(got[i]), status, err)
				}
				if status == Ready {
					got[i], busy = append(got[i], token.ID), true
				} else {
					r.Close()
				}
			}
		}
		for i := range running {
			equal(t, fmt.Sprintf("%s, request %d", kind, i), got[i], requests[i].truth)
		}
		_ = m.engine.do(func() error {
			if st := m.engine.planner.Stats(); st.Preemptions == 0 || st.PeakBytes > st.Budget {
				t.Errorf("%s: %+v", kind, st)
			}
			return nil
		})
	}
}

// What cannot fit alone is an error of its own; the others go on, and so does
// the next.
func TestARequestThatCannotFit(t *testing.T) {
	m := tight(t, 2)["full"]
	small := solo{text: prompt(70, 10), o: Options{MaxTokens: 20, PrefillStepSize: 64}}
	small.truth = ids(seeded(t, m, small.text, small.o, 0))
	beside := small.begin(t, m)
	huge, err := m.Generate(prompt(71, 3000), Options{MaxTokens: 5, PrefillStepSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := huge.Next(time.Minute); errs.Kind(err) != errs.KindMemory {
		t.Errorf("%v, want a lack of memory", err)
	}
	equal(t, "beside it", ids(collect(t, beside, -1)), small.truth)
	grows := small
	grows.o.MaxTokens = 3000
	tokens, err := until(t, grows.begin(t, m))
	if errs.Kind(err) != errs.KindMemory || len(tokens) < 400 || !slices.Equal(tokens[:20], small.truth) {
		t.Errorf("%d tokens, then %v", len(tokens), err)
	}
	equal(t, "afterwards", ids(seeded(t, m, small.text, small.o, 0)), small.truth)
}
