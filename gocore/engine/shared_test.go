package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"axlm/gocore/kvcache"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
)

// together holds the engine until f has returned, so that what f asks for is
// asked for at once.
func together(t *testing.T, e *Engine, f func()) {
	t.Helper()
	gate, held := make(chan struct{}), make(chan struct{})
	if err := e.post(func() { close(held); <-gate }); err != nil {
		t.Fatal(err)
	}
	<-held
	defer close(gate)
	f()
}

// solo is what a request asks for, and what it gives when it runs alone.
type solo struct {
	text  []int32
	o     Options
	seed  uint32
	truth []int32
}

// soloRequests are requests of every kind, of unequal lengths.
func soloRequests(t *testing.T, m *Model) []solo {
	hot := &sampling.Sampler{Temp: 1.5}
	narrow := &sampling.Sampler{Temp: 0.8, TopK: 7, XTCProbability: 0.5, XTCThreshold: 0.1}
	penalty := &sampling.Processors{Repetition: sampling.Penalty{Value: 1.3, Context: 20}}
	all := []solo{
		{text: prompt(50, 1), o: Options{MaxTokens: 40}},
		{text: prompt(51, 33), o: Options{MaxTokens: 25, PrefillStepSize: 7}},
		{text: prompt(52, 5), o: Options{MaxTokens: 30, Sampler: hot}, seed: 3},
		{text: prompt(53, 12), o: Options{MaxTokens: 30, Sampler: hot, Logprobs: true}, seed: 4},
		{text: prompt(54, 8), o: Options{MaxTokens: 1}},
		{text: prompt(55, 20), o: Options{MaxTokens: 35, Sampler: narrow}, seed: 5},
		{text: prompt(56, 9), o: Options{MaxTokens: 28, Processors: penalty}},
		{text: prompt(57, 3), o: Options{MaxTokens: 0}},
		{text: prompt(58, 15), o: Options{MaxTokens: 30, Sampler: hot, Processors: penalty}, seed: 6},
		{text: prompt(59, 4), o: Options{MaxTokens: Unlimited}},
	}
	for i := range all {
		q := &all[i]
		if q.o.PrefillStepSize == 0 {
			q.o.PrefillStepSize = 2048
		}
		o := q.o
		if o.MaxTokens == Unlimited {
			o.MaxTokens = 20
		}
		q.truth = ids(seeded(t, m, q.text, o, q.seed))
		if o.MaxTokens == 20 { // ends by a token of its own
			at := slices.IndexFunc(q.truth[3:], func(id int32) bool { return !slices.Contains(q.truth[:3], id) })
			q.o.EndTokens = []int32{q.truth[3+at]}
			q.truth = q.truth[:4+at]
		}
	}
	return all
}

// speculating is the request with drafts of which so many are right.
func (q solo) speculating(depth, right int) solo {
	q.o.Speculation = forced(depth)
	q.o.Proposers = []ngram.Proposer{&oracle{truth: append(slices.Clone(q.text), q.truth...), depth: depth, right: right}}
	return q
}

func (q solo) begin(t *testing.T, m *Model) *Request {
	t.Helper()
	r, err := m.Generate(q.text, q.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Reseed(sampling.Key{0, q.seed}); err != nil {
		t.Fatal(err)
	}
	return r
}

// Requests that decode in shared passes give what they give alone: plain,
// sampled, penalised and speculating, whatever their lengths.
func TestSharedPassesGiveSoloTokens(t *testing.T) {
	for kind, m := range caching(t) {
		requests := soloRequests(t, m)
		for _, right := range []int{-1, 0, 1, 3} {
			before := m.passes
			running := make([]*Request, len(requests))
			together(t, m.engine, func() {
				for i, q := range requests {
					if right >= 0 {
						q = q.speculating(3, right)
					}
					running[i] = q.begin(t, m)
					if err := Ask(running[i]); err != nil {
						t.Fatal(err)
					}
				}
			})
			got := make([][]int32, len(running))
			for busy := true; busy; {
				busy = false
				var next []*Request
				for i, r := range running {
					token, status, err := r.Next(time.Minute)
					if err != nil {
						t.Fatalf("%s, request %d: %v", kind, i, err)
					}
					if status == Ready {
						got[i] = append(got[i], token.ID)
						next = append(next, r)
						token.Free()
						busy = true
					}
				}
				together(t, m.engine, func() {
					for _, r := range next {
						if err := Ask(r); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
			for i, r := range running {
				equal(t, fmt.Sprintf("%s, request %d, %d of 3 drafts right", kind, i, right), got[i], requests[i].truth)
				r.Close()
			}
			if passes := m.passes; passes.Requests-before.Requests < 3*(passes.Passes-before.Passes) {
				t.Errorf("%s: %+v after %+v: passes are not shared", kind, passes, before)
			}
		}
	}
}

// Requests that come, go and are looked at while others run do not disturb
// them.
func TestRequestsJoinAndLeave(t *testing.T) {
	for kind, m := range caching(t) {
		requests := soloRequests(t, m)
		var wait sync.WaitGroup
		for i := range 24 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				random := rand.New(rand.NewPCG(uint64(i), 9))
				for range 4 {
					q := requests[random.IntN(len(requests))]
					if right := random.IntN(5) - 1; right >= 0 {
						q = q.speculating(3, right)
					}
					stop, look := random.IntN(60), random.IntN(20)
					if random.IntN(2) == 0 && q.o.MaxTokens != 0 {
						c, err := m.NewCache(nil)
						if err != nil {
							t.Error(err)
							return
						}
						q.o.Cache = c
						defer c.Close()
					}
					got, err := q.run(m, stop, look)
					if err != nil {
						t.Errorf("%s: %v", kind, err)
						return
					}
					if want := q.truth[:min(stop, len(q.truth))]; !slices.Equal(got, want) {
						t.Errorf("%s: a prompt of %d gives %v, want %v", kind, len(q.text), got, want)
					}
				}
			}()
		}
		wait.Wait()
	}
}

// run reads up to stop tokens, and takes the cache, if there is one of its own,
// after some of them and gives it back.
func (q solo) run(m *Model, stop, look int) ([]int32, error) {
	r, err := m.Generate(q.text, q.o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := r.Reseed(sampling.Key{0, q.seed}); err != nil {
		return nil, err
	}
	var got []int32
	for len(got) < stop {
		if q.o.Cache != nil && len(got) == look {
			states, err := q.o.Cache.Take()
			if err != nil {
				return nil, err
			}
			c, err := m.NewCache(states)
			freeStates(states)
			if err != nil {
				return nil, err
			}
			defer c.Close()
			if err := r.Resume(c); err != nil {
				return nil, err
			}
			look = -1
		}
		token, status, err := r.Next(time.Minute)
		switch {
		case err != nil:
			return nil, err
		case status == Pending:
			return nil, fmt.Errorf("no token within a minute")
		case status == Finished:
			return got, nil
		}
		got = append(got, token.ID)
		token.Free()
	}
	return got, nil
}

// A request whose forward cannot be built ends alone; its mates go on.
func TestACulpritEndsAlone(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 31))
	requests := soloRequests(t, m)[:3]
	bad := requests[0]
	bad.o.Cache = emptyCache(t, m)
	running := make([]*Request, len(requests))
	var culprit *Request
	together(t, m.engine, func() {
		for i, q := range requests {
			running[i] = q.begin(t, m)
			_ = Ask(running[i])
			if i == 0 {
				culprit = bad.begin(t, m)
				_ = Ask(culprit)
			}
		}
		// A layer of another kind than the model takes.
		_ = m.engine.post(func() { culprit.cache.Layers[1] = kvcache.NewRecurrent(nil) })
	})
	if _, _, err := culprit.Next(time.Minute); err == nil {
		t.Error("a request with a broken cache gives tokens")
	}
	for i, r := range running {
		equal(t, fmt.Sprintf("request %d beside the culprit", i), ids(collect(t, r, -1)), requests[i].truth)
	}
}
