package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
)

// samplings are a greedy one and seeded ones that use every part.
func samplings() map[string]Options {
	all := &sampling.Processors{
		LogitBias:  map[string]sampling.Bias{"5": 2, "9": -3},
		Repetition: sampling.Penalty{Value: 1.3, Context: 20},
		Presence:   sampling.Penalty{Value: 0.5, Context: 7},
		Frequency:  sampling.Penalty{Value: 0.25, Context: 0},
	}
	return map[string]Options{
		"greedy":    {},
		"penalties": {Processors: all},
		"temp":      {Sampler: &sampling.Sampler{Temp: 1}},
		"top_p":     {Sampler: &sampling.Sampler{Temp: 1.5, TopP: 0.9}},
		"min_p":     {Sampler: &sampling.Sampler{Temp: 1.5, MinP: 0.05, MinTokensToKeep: 2}},
		"top_k":     {Sampler: &sampling.Sampler{Temp: 2, TopK: 5}},
		"xtc": {Sampler: &sampling.Sampler{
			Temp: 1.5, XTCProbability: 0.5, XTCThreshold: 0.05, XTCSpecialTokens: []int32{3},
		}},
		"all": {Processors: all, Sampler: &sampling.Sampler{
			Temp: 1.5, TopP: 0.95, MinP: 0.01, MinTokensToKeep: 1, TopK: 20,
			XTCProbability: 0.3, XTCThreshold: 0.1, XTCSpecialTokens: []int32{3},
		}},
	}
}

// seeded generates with a random generator that starts from seed.
func seeded(t *testing.T, m *Model, prompt []int32, o Options, seed uint32) []Token {
	t.Helper()
	if o.PrefillStepSize == 0 {
		o.PrefillStepSize = 2048
	}
	r, err := m.Generate(prompt, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Reseed(sampling.Key{0, seed}); err != nil {
		t.Fatal(err)
	}
	return collect(t, r, -1)
}

func TestForcedPartialAcceptanceAtEveryDepth(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 3))
	text := prompt(1, 11)
	for name, o := range samplings() {
		t.Run(name, func(t *testing.T) {
			o.MaxTokens = 40
			plain := seeded(t, m, text, o, 7)
			for depth := 1; depth <= 6; depth++ {
				for right := 0; right <= depth; right++ {
					o.Speculation = forced(depth)
					o.Proposers = []ngram.Proposer{&oracle{truth: append(slices.Clone(text), ids(plain)...), depth: depth, right: right}}
					got := seeded(t, m, text, o, 7)
					what := fmt.Sprintf("%d of %d drafts right", right, depth)
					equal(t, what, ids(got), ids(plain))
					for i := range got {
						if got[i].State != plain[i].State {
							t.Fatalf("%s: after token %d the generator stands at %v, want %v", what, i, got[i].State, plain[i].State)
						}
					}
					drafted := 0
					for _, token := range got {
						if token.FromDraft {
							drafted++
						}
					}
					if right > 0 && drafted == 0 || right == 0 && drafted > 0 {
						t.Errorf("%s: %d tokens are from drafts", what, drafted)
					}
				}
			}
		})
	}
}

// Random models, prompts, seeds, depths, chunk borders, ends and limits.
func TestSpeculationNeverChangesAToken(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 5))
	names := []string{"greedy", "penalties", "temp", "all"}
	for round := range 8 {
		padded := round%2 == 1
		e := start(t, Config{PadViews: &padded})
		m := load(t, e, nano(t, uint64(round)))
		for range 6 {
			o := samplings()[names[random.IntN(len(names))]]
			text := prompt(random.Uint64(), []int{1, 2, 3, 30, 239, 255, 256, 257}[random.IntN(8)])
			o.MaxTokens = 1 + random.IntN(40)
			o.PrefillStepSize = 1 + random.IntN(len(text)+1)
			seed := random.Uint32()
			plain := seeded(t, m, text, o, seed)
			if random.IntN(2) == 0 {
				// An end token that comes up somewhere, perhaps inside a block.
				o.EndTokens = []int32{plain[random.IntN(len(plain))].ID}
				plain = seeded(t, m, text, o, seed)
			}
			depth := 1 + random.IntN(12)
			o.Speculation = forced(depth)
			truth := append(slices.Clone(text), ids(plain)...)
			truth = append(truth, prompt(random.Uint64(), 20)...) // drafts go on beyond the end
			o.Proposers = []ngram.Proposer{&oracle{truth: truth, depth: depth, right: random.IntN(depth + 1)}}
			o.PrefillStepSize = 1 + random.IntN(len(text)+1)
			what := fmt.Sprintf("round %d: prompt %d, depth %d, ends %v, at most %d", round, len(text), depth, o.EndTokens, o.MaxTokens)
			equal(t, what, ids(seeded(t, m, text, o, seed)), ids(plain))
			o.Proposers, o.Speculation = nil, &ngram.Config{}
			*o.Speculation = ngram.DefaultConfig()
			equal(t, what+", adaptive", ids(seeded(t, m, text, o, seed)), ids(plain))
			*o.Speculation = *forced(4)
			equal(t, what+", tables alone", ids(seeded(t, m, text, o, seed)), ids(plain))
		}
	}
}

// Case 2: every draft is verified, the first one too.
func TestShortLoopPrompt(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 4))
	text := []int32{1, 1, 1}
	plain := generate(t, m, text, Options{MaxTokens: 30})
	equal(t, "drafts of one token", ids(generate(t, m, text, Options{MaxTokens: 30, Speculation: forced(1)})), ids(plain))
}

// Case 6: a prompt without any repetition drafts nothing at first.
func TestNoMatchIsPlain(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 5))
	text := []int32{10, 20, 30, 40, 50}
	plain := generate(t, m, text, Options{MaxTokens: 3})
	equal(t, "no match", ids(generate(t, m, text, Options{MaxTokens: 3, Speculation: forced(4)})), ids(plain))
}

// Cases 7 and 8: an end token and the limit inside an accepted block.
func TestEndsInsideABlock(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 6))
	text := prompt(6, 9)
	plain := ids(generate(t, m, text, Options{MaxTokens: 20}))
	truth := append(slices.Clone(text), plain...)
	block := func(o Options) []int32 {
		o.Speculation = forced(8)
		o.Proposers = []ngram.Proposer{&oracle{truth: truth, depth: 8, right: 8}}
		return ids(generate(t, m, text, o))
	}
	end := slices.Index(plain, plain[2])
	equal(t, "end token", block(Options{MaxTokens: 20, EndTokens: []int32{plain[2]}}), plain[:end+1])
	for n := 1; n <= 12; n++ {
		equal(t, fmt.Sprintf("at most %d", n), block(Options{MaxTokens: n}), plain[:n])
	}
}

// The cache of a text that ends among drafts that were right holds none of the
// drafts after the end, and can be continued.
func TestACacheEndsWithItsText(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 6))
	text := prompt(6, 9)
	plain := ids(generate(t, m, text, Options{MaxTokens: 20}))
	truth := append(slices.Clone(text), plain...)
	more := prompt(8, 3)
	for i, token := range plain[:12] {
		if slices.Index(plain, token) < i {
			continue
		}
		c := emptyCache(t, m)
		o := Options{MaxTokens: 20, EndTokens: []int32{token}, Cache: c, Speculation: forced(8)}
		o.Proposers = []ngram.Proposer{&oracle{truth: truth, depth: 8, right: 8}}
		equal(t, fmt.Sprintf("up to token %d", i), ids(generate(t, m, text, o)), plain[:i+1])
		whole := slices.Concat(text, plain[:i+1], more)
		want := ids(generate(t, m, whole, Options{MaxTokens: 6}))
		equal(t, fmt.Sprintf("continued after token %d", i), ids(generate(t, m, more, Options{MaxTokens: 6, Cache: c})), want)
		if held := taken(t, c)[0].Offset; held != len(whole)+6 {
			t.Errorf("ended by token %d, continued: the cache holds %d tokens, want %d", i, held, len(whole)+6)
		}
	}
}

// Case 3: wherever the reader stops, the cache holds prompt and tokens read.
func TestSettleAfterAnyToken(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 7))
	text := prompt(7, 9)
	const limit = 14
	plain := ids(generate(t, m, text, Options{MaxTokens: limit}))
	truth := append(slices.Clone(text), plain...)
	for _, right := range []int{-1, 0, 2, 5} {
		for stop := 0; stop <= limit; stop++ {
			c := emptyCache(t, m)
			o := Options{MaxTokens: limit, PrefillStepSize: 4, Cache: c}
			if right >= 0 {
				o.Speculation = forced(5)
				o.Proposers = []ngram.Proposer{&oracle{truth: truth, depth: 5, right: right}}
			}
			r, err := m.Generate(text, o)
			if err != nil {
				t.Fatal(err)
			}
			for i := range stop {
				token, _, err := r.Next(time.Minute)
				if err != nil || token.ID != plain[i] {
					t.Fatalf("token %d is %d, want %d (%v)", i, token.ID, plain[i], err)
				}
			}
			held := len(text) + stop
			if stop > 0 {
				held = taken(t, c)[0].Offset
			}
			if held != len(text)+stop {
				t.Errorf("%d of 5 right, stopped after %d: the cache holds %d tokens, want %d", right, stop, held, len(text)+stop)
			}
			r.Close()
		}
	}
}

// A reader that changes the random generator between two tokens gets what
// plain decoding, which draws one token ahead, would have given.
func TestReseedBetweenTokens(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 8))
	text := prompt(8, 9)
	o := Options{MaxTokens: 24, PrefillStepSize: 64, Sampler: &sampling.Sampler{Temp: 1.5}}
	run := func(o Options, at int) []int32 {
		r, err := m.Generate(text, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Reseed(sampling.Key{0, 1}); err != nil {
			t.Fatal(err)
		}
		out := ids(collect2(t, r, at))
		if err := r.Reseed(sampling.Key{0, 2}); err != nil {
			t.Fatal(err)
		}
		rest := collect(t, r, -1)
		if rest[0].State != (sampling.Key{0, 2}) {
			t.Errorf("reseeded at %d: the next token leaves the generator at %v, want the new key", at, rest[0].State)
		}
		return append(out, ids(rest)...)
	}
	unchanged := ids(seeded(t, m, text, o, 1))
	for at := 1; at < o.MaxTokens; at++ {
		plain := run(o, at)
		if len(plain) != o.MaxTokens {
			t.Fatalf("reseeded at %d: %d tokens, want %d", at, len(plain), o.MaxTokens)
		}
		// The token after the change was drawn before it.
		equal(t, "before the change", plain[:at+1], unchanged[:at+1])
		with := o
		with.Speculation = forced(5)
		with.Proposers = []ngram.Proposer{&oracle{truth: append(slices.Clone(text), unchanged...), depth: 5, right: 5}}
		equal(t, fmt.Sprintf("reseeded at %d", at), run(with, at), plain)
	}
}

// collect2 reads n tokens and leaves the request open.
func collect2(t *testing.T, r *Request, n int) []Token {
	t.Helper()
	var out []Token
	for len(out) < n {
		token, status, err := r.Next(time.Minute)
		if err != nil || status != Ready {
			t.Fatalf("status %v, %v", status, err)
		}
		out = append(out, token)
	}
	return out
}
