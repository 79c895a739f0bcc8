package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"axlm/gocore/kvcache"
	"axlm/gocore/ngram"
	"axlm/mlxc"
)

func emptyCache(t *testing.T, m *Model) *Cache {
	t.Helper()
	c, err := m.NewCache(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// taken takes the cache's states back; the test frees them.
func taken(t *testing.T, c *Cache) []kvcache.State {
	t.Helper()
	states, err := c.Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { freeStates(states) })
	return states
}

func freeStates(states []kvcache.State) {
	for i := range states {
		states[i].Free()
	}
}

// untilWaiting waits until the engine has made a token that nobody took.
func untilWaiting(r *Request) {
	for r.out.State().Waiting == 0 {
		time.Sleep(100 * time.Microsecond)
	}
}

// again makes a cache of what another held, by way of mlx_lm's form.
func again(t *testing.T, m *Model, c *Cache) *Cache {
	t.Helper()
	states, err := c.Take()
	if err != nil {
		t.Fatal(err)
	}
	next, err := m.NewCache(states)
	freeStates(states)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	return next
}

func readSome(t *testing.T, r *Request, n int) []int32 {
	t.Helper()
	return ids(collect2(t, r, n))
}

// caching are models of each kind of layer state.
func caching(t *testing.T) map[string]*Model {
	e := start(t, Config{})
	return map[string]*Model{
		"full":      load(t, e, nano(t, 31)),
		"window":    load(t, e, nanoWindowed(t, 31)),
		"recurrent": load(t, e, nanoRecurrent(t, 31)),
	}
}

// A text that is given in two parts, the state between them taken back and
// brought again, goes on as the whole would. (Prefix tests.)
func TestACacheContinues(t *testing.T) {
	for kind, m := range caching(t) {
		for _, length := range []int{2, 13, 40} {
			text := prompt(uint64(length), length)
			whole := ids(generate(t, m, text, Options{MaxTokens: 24, PrefillStepSize: 8}))
			for _, cut := range []int{1, length / 2, length - 1} {
				for _, o := range []Options{{}, {Speculation: forced(4)}} {
					c := emptyCache(t, m)
					o.MaxTokens, o.PrefillStepSize, o.Cache = 0, 5, c
					generate(t, m, text[:cut], o)
					c = again(t, m, c)
					o.MaxTokens, o.Cache = 24, c
					what := fmt.Sprintf("%s, cut at %d of %d", kind, cut, length)
					equal(t, what, ids(generate(t, m, text[cut:], o)), whole)
					if held := taken(t, c); held[len(held)-1].Offset != length+24 {
						t.Errorf("%s: the cache holds %d tokens, want %d", what, held[len(held)-1].Offset, length+24)
					}
				}
			}
		}
	}
}

// Wherever the reader looks into the cache, it holds prompt and tokens read,
// and what comes after is what would have come.
func TestTakingACacheMidway(t *testing.T) {
	for kind, m := range caching(t) {
		text := prompt(33, 11)
		plain := ids(generate(t, m, text, Options{MaxTokens: 30}))
		truth := append(slices.Clone(text), plain...)
		for _, right := range []int{-1, 0, 3, 5} {
			for _, stop := range []int{1, 2, 5, 6, 7, 29, 30} {
				what := fmt.Sprintf("%s, %d of 5 drafts right, taken after %d", kind, right, stop)
				c := emptyCache(t, m)
				o := Options{MaxTokens: 30, PrefillStepSize: 4, Cache: c, Logprobs: true}
				if right >= 0 {
					o.Speculation = forced(5)
					o.Proposers = []ngram.Proposer{&oracle{truth: truth, depth: 5, right: right}}
				}
				r, err := m.Generate(text, o)
				if err != nil {
					t.Fatal(err)
				}
				got := readSome(t, r, stop)
				states, err := c.Take()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if held := states[len(states)-1].Offset; held != len(text)+stop {
					t.Errorf("%s: the cache holds %d tokens, want %d", what, held, len(text)+stop)
				}
				if stop < 30 {
					next, err := m.NewCache(states)
					if err != nil {
						t.Fatal(err)
					}
					if err := r.Resume(next); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					got = append(got, ids(collect(t, r, -1))...)
					next.Close()
				}
				freeStates(states)
				r.Close()
				equal(t, what, got, plain)
			}
		}
	}
}

// A token that the engine has made, but that nobody took, is not in the cache,
// whether or not the pass after it is under way.
func TestTakingACacheBeforeATokenIsTaken(t *testing.T) {
	for kind, m := range caching(t) {
		text := prompt(38, 11)
		plain := ids(generate(t, m, text, Options{MaxTokens: 12}))
		for _, before := range [][]int32{nil, prompt(39, 5)} {
			for _, o := range []Options{{}, {Speculation: forced(4)}} {
				c := emptyCache(t, m)
				if before != nil {
					generate(t, m, before, Options{MaxTokens: 2, Cache: c})
					c = again(t, m, c)
				}
				start := c.Offset()
				want := plain
				if before != nil {
					other := emptyCache(t, m)
					generate(t, m, before, Options{MaxTokens: 2, Cache: other})
					want = ids(generate(t, m, text, Options{MaxTokens: 12, Cache: other}))
				}
				o.MaxTokens, o.PrefillStepSize, o.Cache = 12, 64, c
				r, err := m.Generate(text, o)
				if err != nil {
					t.Fatal(err)
				}
				got := readSome(t, r, 4)
				if err := Ask(r); err != nil {
					t.Fatal(err)
				}
				untilWaiting(r)
				states, err := c.Take()
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				if held := states[len(states)-1].Offset; held != start+len(text)+4 {
					t.Errorf("%s: the cache holds %d tokens, want %d", kind, held, start+len(text)+4)
				}
				next, err := m.NewCache(states)
				freeStates(states)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Resume(next); err != nil {
					t.Fatal(err)
				}
				equal(t, kind, append(got, ids(collect(t, r, -1))...), want)
				next.Close()
			}
		}
	}
}

// Case 5: the reader trims the cache between two tokens. Speculating or not, the
// tokens are the same, and those of mlx_lm's way: the next one was chosen
// before.
func TestACacheThatShrinks(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 34))
	text := prompt(34, 12)
	run := func(o Options, at int) []int32 {
		c := emptyCache(t, m)
		o.MaxTokens, o.PrefillStepSize, o.Cache = 20, 64, c
		r, err := m.Generate(text, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got := readSome(t, r, at)
		states := taken(t, c)
		for i := range states {
			states[i].Offset -= 6
		}
		next, err := m.NewCache(states)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(next.Close)
		if err := r.Resume(next); err != nil {
			t.Fatal(err)
		}
		return append(got, ids(collect(t, r, -1))...)
	}
	for at := 1; at < 20; at += 3 {
		plain := run(Options{}, at)
		if len(plain) != 20 {
			t.Fatalf("%d tokens, want 20", len(plain))
		}
		equal(t, fmt.Sprintf("trimmed after %d", at), run(Options{Speculation: forced(4)}, at), plain)
	}
}

// A cache of quantised keys, or of few of them, goes on as one run would.
func TestQuantisedAndBoundedCaches(t *testing.T) {
	m := load(t, start(t, Config{}), nanoOf(t, 35, 32))
	text := prompt(35, 30)
	for name, o := range map[string]Options{
		"quantised": {QuantisedKV: &QuantisedKV{Form: kvcache.QuantForm{GroupSize: 32, Bits: 8}, Start: 20}},
		"late":      {QuantisedKV: &QuantisedKV{Form: kvcache.QuantForm{GroupSize: 32, Bits: 4}, Start: 37}},
		"bounded":   {MaxKVSize: 24},
		"roomy":     {MaxKVSize: 40},
	} {
		o.MaxTokens, o.PrefillStepSize = 40, 30
		plain := ids(generate(t, m, text, o))
		with := o
		with.Speculation = forced(5)
		equal(t, name+", speculating", ids(generate(t, m, text, with)), plain)
	}
}

func TestBadCaches(t *testing.T) {
	e := start(t, Config{})
	m, other := load(t, e, nano(t, 36)), load(t, e, nano(t, 37))
	c := emptyCache(t, m)
	o := Options{MaxTokens: 3, PrefillStepSize: 8, Cache: c}
	if r, err := other.Generate(prompt(1, 4), o); err == nil {
		if _, _, err = r.Next(time.Minute); err == nil {
			t.Error("another model's cache was taken")
		}
	}
	first, err := m.Generate(prompt(1, 4), o)
	if err != nil {
		t.Fatal(err)
	}
	readSome(t, first, 1)
	second, err := m.Generate(prompt(1, 4), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := second.Next(time.Minute); err == nil {
		t.Error("two requests use one cache")
	}
	first.Close()
	if got := generate(t, m, prompt(1, 4), o); len(got) != 3 {
		t.Errorf("%d tokens after a refusal", len(got))
	}
	states := taken(t, c)
	if _, err := c.Take(); err == nil {
		t.Error("a cache was taken twice")
	}
	broken := slices.Clone(states)
	broken[1].Offset++
	if _, err := m.NewCache(broken); err == nil {
		t.Error("layers of unequal length were taken")
	}
	if _, err := m.NewCache(states[:1]); err == nil {
		t.Error("a cache of too few layers was taken")
	}
	broken = slices.Clone(states)
	broken[0].Arrays = []mlxc.Array{states[0].Arrays[0]}
	if _, err := m.NewCache(broken); err == nil {
		t.Error("keys without values were taken")
	}
}

// A cache that is taken before the prompt's first token is in it comes back as
// empty as it was, and the text begins where it would have.
func TestTakingACacheBeforeThePrompt(t *testing.T) {
	for kind, m := range caching(t) {
		text := prompt(36, 11)
		want := ids(generate(t, m, text, Options{MaxTokens: 24}))
		c := emptyCache(t, m)
		// Between the steps of another request, the engine does all that it is
		// asked for: what is asked while it is held up comes before a step.
		other, err := m.Generate(prompt(37, 200), Options{MaxTokens: 1, PrefillStepSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		release := make(chan struct{})
		if err := m.engine.post(func() { <-release }); err != nil {
			t.Fatal(err)
		}
		half := &oracle{truth: append(slices.Clone(text), want...), depth: 5, right: 3}
		r, err := m.Generate(text, Options{
			MaxTokens: 24, PrefillStepSize: 4, Cache: c, Speculation: forced(5), Proposers: []ngram.Proposer{half},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		took := make(chan []kvcache.State, 1)
		go func() {
			states, err := c.Take()
			if err != nil {
				t.Error(err)
			}
			took <- states
		}()
		for m.engine.commands.Len() < 2 {
			time.Sleep(time.Millisecond)
		}
		close(release)
		states := <-took
		if len(states) == 0 || states[len(states)-1].Offset != 0 {
			t.Fatalf("%s: the cache was not empty: %v", kind, states)
		}
		resume := func(states []kvcache.State) {
			c, err = m.NewCache(states)
			freeStates(states)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if err := r.Resume(c); err != nil {
				t.Fatal(err)
			}
		}
		resume(states)
		got := readSome(t, r, 6) // two of a pass
		if states, err = c.Take(); err != nil {
			t.Fatal(err)
		}
		if held := states[len(states)-1].Offset; held != len(text)+6 {
			t.Errorf("%s: the cache holds %d tokens, want %d", kind, held, len(text)+6)
		}
		resume(states)
		equal(t, kind, append(got, readSome(t, r, 18)...), want)
	}
}
