package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"axlm/gocore/kvcache"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
)

// drafting makes o draft n tokens a pass with the model m, at every pass.
func drafting(o Options, m *Model, n int) Options {
	o.DraftModel, o.DraftTokens = m, n
	o.Speculation = forced(n)
	return o
}

// drafted generates and tells what became of the drafts.
func drafted(t *testing.T, m *Model, text []int32, o Options, seed uint32) ([]Token, ngram.Stats) {
	t.Helper()
	if o.PrefillStepSize == 0 {
		o.PrefillStepSize = 2048
	}
	r, err := m.Generate(text, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Reseed(sampling.Key{0, seed}); err != nil {
		t.Fatal(err)
	}
	var out []Token
	for {
		token, status, err := r.Next(time.Minute)
		if err != nil || status == Pending {
			t.Fatalf("status %v, %v", status, err)
		}
		if status == Finished {
			break
		}
		out = append(out, token)
	}
	s, err := r.Stats()
	if err != nil || s.Speculation == nil {
		t.Fatalf("no statistics of speculation: %v", err)
	}
	return out, *s.Speculation
}

// A model that drafts for itself is always right, sampled or not: it draws with
// the numbers that verification draws with.
func TestAModelDraftsForItself(t *testing.T) {
	for _, warm := range []bool{false, true} {
		e := start(t, Config{WarmUp: &warm, PadViews: &warm})
		for name, dir := range map[string]string{"full": nano(t, 31), "windowed": nanoWindowed(t, 31)} {
			m, twin := load(t, e, dir), load(t, e, dir)
			text := prompt(31, 11)
			for kind, o := range samplings() {
				o.MaxTokens, o.PrefillStepSize = 48, 4
				plain := ids(seeded(t, m, text, o, 7))
				for _, n := range []int{2, 5} {
					what := fmt.Sprintf("%s, %s, warm %v, %d drafts", name, kind, warm, n)
					got, s := drafted(t, m, text, drafting(o, twin, n), 7)
					equal(t, what, ids(got), plain)
					if s.Drafted != s.Accepted || s.Accepted < 48*n/(n+1)-1 {
						t.Errorf("%s: %d drafted, %d accepted", what, s.Drafted, s.Accepted)
					}
				}
			}
		}
	}
}

// Another model is seldom right, and changes no token.
func TestAnotherModelDrafts(t *testing.T) {
	e := start(t, Config{})
	for name, dir := range map[string]string{"full": nano(t, 32), "windowed": nanoWindowed(t, 32)} {
		m := load(t, e, dir)
		for other, draftDir := range map[string]string{
			"full": nano(t, 33), "windowed": nanoWindowed(t, 33), "of fewer tokens": nanoKnowing(t, 33, 8, 50), "of more": nanoKnowing(t, 33, 8, 200),
		} {
			draft := load(t, e, draftDir)
			for _, kind := range []string{"greedy", "all"} {
				o, text := samplings()[kind], prompt(3, 9)
				if other == "of fewer tokens" {
					for i := range text {
						text[i] %= 50 // what it does not know comes up later
					}
				}
				o.MaxTokens = 40
				plain := ids(seeded(t, m, text, o, 3))
				got, s := drafted(t, m, text, drafting(o, draft, 3), 3)
				equal(t, fmt.Sprintf("%s with a draft model %s, %s", name, other, kind), ids(got), plain)
				if s.Drafted == 0 || s.Accepted > s.Drafted/2 {
					t.Errorf("%s with a draft model %s, %s: %d drafted, %d accepted", name, other, kind, s.Drafted, s.Accepted)
				}
			}
		}
	}
}

// As mlx_lm counts them: drafts up to the limit, the last token too.
func TestWhichTokensAreDrafts(t *testing.T) {
	e := start(t, Config{})
	dir := nano(t, 34)
	m, twin := load(t, e, dir), load(t, e, dir)
	text := prompt(34, 6)
	got, s := drafted(t, m, text, Options{MaxTokens: 5, DraftModel: twin, DraftTokens: 2}, 0)
	var marks []bool
	for _, token := range got {
		marks = append(marks, token.FromDraft)
	}
	if !slices.Equal(marks, []bool{true, true, false, true, true}) {
		t.Errorf("from drafts: %v", marks)
	}
	if len(s.ByProposer) != 1 || s.ByProposer[0].Proposer != NameDraftModel || s.ByProposer[0].Accepted != 4 {
		t.Errorf("by proposer: %+v", s.ByProposer)
	}
}

// Cases 3, 7 and 8 with a draft model.
func TestDraftsEndWhereTheyMust(t *testing.T) {
	e := start(t, Config{})
	dir := nanoWindowed(t, 35)
	m, twin := load(t, e, dir), load(t, e, dir)
	text := prompt(35, 9)
	plain := ids(generate(t, m, text, Options{MaxTokens: 40}))
	for n := 1; n <= 12; n++ {
		equal(t, fmt.Sprintf("at most %d", n), ids(generate(t, m, text, drafting(Options{MaxTokens: n}, twin, 5))), plain[:n])
	}
	for i, end := range plain[:12] {
		o := drafting(Options{MaxTokens: 40, EndTokens: []int32{end}}, twin, 5)
		equal(t, fmt.Sprintf("end token %d", i), ids(generate(t, m, text, o)), plain[:slices.Index(plain, end)+1])
	}
	for stop := 1; stop < 14; stop++ {
		settles(t, m, text, plain, drafting(Options{MaxTokens: 40, PrefillStepSize: 4}, twin, 5), stop, "settling")
	}
	if stats, err := m.Stats(); err != nil || stats.Requests != 0 {
		t.Errorf("%d requests are left, %v", stats.Requests, err)
	}
	if got := generate(t, m, text, drafting(Options{MaxTokens: 0}, twin, 5)); len(got) != 0 {
		t.Errorf("%d tokens of none", len(got))
	}
	equal(t, "no drafts asked for", ids(generate(t, m, text, Options{MaxTokens: 9, DraftModel: twin})), plain[:9])
}

// A reader that changes the random generator takes tokens back that the draft
// model has seen.
func TestReseedWithADraftModel(t *testing.T) {
	e := start(t, Config{})
	for name, dir := range map[string]string{"full": nano(t, 36), "windowed": nanoWindowed(t, 36)} {
		m, twin := load(t, e, dir), load(t, e, dir)
		text := prompt(36, 9)
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
			return append(out, ids(collect(t, r, -1))...)
		}
		o := Options{MaxTokens: 24, PrefillStepSize: 64, Sampler: &sampling.Sampler{Temp: 1.5}}
		for at := 1; at < o.MaxTokens; at++ {
			equal(t, fmt.Sprintf("%s, reseeded at %d", name, at), run(drafting(o, twin, 5), at), run(o, at))
		}
	}
}

// Drafts that do not pay are given up, until they may pay again.
func TestDraftsThatDoNotPayAreGivenUp(t *testing.T) {
	e := start(t, Config{})
	m, other := load(t, e, nano(t, 37)), load(t, e, nano(t, 38))
	text := prompt(37, 9)
	plain := ids(generate(t, m, text, Options{MaxTokens: 400}))
	// Times decide, and other tests run beside this one: one request of several that sees it suffices.
	for try := range 5 {
		got, s := drafted(t, m, text, Options{MaxTokens: 400, DraftModel: other, DraftTokens: 4}, 0)
		equal(t, "given up", ids(got), plain)
		if s.NoDraft["recheck_plain"] > 0 && s.NoDraft["gate_paused"] >= 100 && s.DraftSteps >= 32 {
			return
		}
		t.Logf("try %d: %d steps with drafts; without: %v", try, s.DraftSteps, s.NoDraft)
	}
	t.Error("never given up")
}

func TestADraftModelThatIsClosed(t *testing.T) {
	e := start(t, Config{})
	dir := nano(t, 39)
	m, twin := load(t, e, dir), load(t, e, dir)
	text := prompt(39, 9)
	r, err := m.Generate(text, drafting(Options{MaxTokens: 100, PrefillStepSize: 64}, twin, 2))
	if err != nil {
		t.Fatal(err)
	}
	collect2(t, r, 3)
	if err := twin.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		_, status, err := r.Next(time.Minute)
		if err != nil {
			break
		}
		if status != Ready {
			t.Fatalf("status %v, and no error", status)
		}
	}
	r.Close()
	if _, err := m.Generate(text, drafting(Options{MaxTokens: 1, PrefillStepSize: 64}, twin, 2)); err == nil {
		t.Error("a closed draft model was accepted")
	}
	stranger := load(t, start(t, Config{}), dir)
	if _, err := m.Generate(text, drafting(Options{MaxTokens: 1, PrefillStepSize: 64}, stranger, 2)); err == nil {
		t.Error("another engine's draft model was accepted")
	}
	equal(t, "after an error", ids(generate(t, m, text, Options{MaxTokens: 3})), ids(generate(t, m, text, Options{MaxTokens: 9}))[:3])
}

// Two caches, the model's and the draft model's, carry a text from one request
// to the next; what was read is in both.
func TestDraftsFromACacheContinue(t *testing.T) {
	e := start(t, Config{})
	for kind, dir := range map[string]string{"full": nano(t, 40), "windowed": nanoWindowed(t, 40)} {
		m, twin := load(t, e, dir), load(t, e, dir)
		text, more := prompt(40, 13), prompt(41, 5)
		first := ids(generate(t, m, text, Options{MaxTokens: 30}))
		for _, read := range []int{1, 2, 7, 8, 9, 20} {
			what := fmt.Sprintf("%s, %d tokens read", kind, read)
			c, dc := emptyCache(t, m), emptyCache(t, twin)
			o := drafting(Options{MaxTokens: 30, PrefillStepSize: 5, Cache: c, DraftCache: dc}, twin, 4)
			r, err := m.Generate(text, o)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, what, ids(collect2(t, r, read)), first[:read])
			r.Close()
			c, dc = again(t, m, c), again(t, twin, dc)
			if c.Offset() != len(text)+read || dc.Offset() != c.Offset() {
				t.Errorf("%s: the caches hold %d and %d tokens, want %d", what, c.Offset(), dc.Offset(), len(text)+read)
			}
			o.Cache, o.DraftCache = c, dc
			got, s := drafted(t, m, more, o, 0)
			whole := slices.Concat(text, first[:read], more)
			equal(t, what+", then more", ids(got), ids(generate(t, m, whole, Options{MaxTokens: 30})))
			if s.Accepted != s.Drafted {
				t.Errorf("%s: %d drafted, %d accepted", what, s.Drafted, s.Accepted)
			}
		}
	}
}

// Looking into the caches midway shows prompt and tokens read. The draft model
// drafts again once it has its cache.
func TestTakingDraftCachesMidway(t *testing.T) {
	e := start(t, Config{})
	dir := nano(t, 42)
	m, twin := load(t, e, dir), load(t, e, dir)
	text := prompt(42, 9)
	plain := ids(generate(t, m, text, Options{MaxTokens: 20}))
	for _, stop := range []int{1, 3, 5, 6} {
		for _, draftFirst := range []bool{false, true} {
			c, dc := emptyCache(t, m), emptyCache(t, twin)
			o := drafting(Options{MaxTokens: 20, PrefillStepSize: 5, Cache: c, DraftCache: dc}, twin, 4)
			r, err := m.Generate(text, o)
			if err != nil {
				t.Fatal(err)
			}
			got := ids(collect2(t, r, stop))
			order := []*Cache{c, dc}
			if draftFirst {
				order = []*Cache{dc, c}
			}
			var states [][]kvcache.State
			for _, cache := range order {
				held := taken(t, cache)
				if held[0].Offset != len(text)+stop {
					t.Errorf("taken after %d: %d tokens, want %d", stop, held[0].Offset, len(text)+stop)
				}
				states = append(states, held)
			}
			if draftFirst {
				slices.Reverse(states)
			}
			next, err := m.NewCache(states[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Resume(next); err != nil {
				t.Fatal(err)
			}
			if err := r.ResumeDraft(next); err == nil {
				t.Error("the model's cache was taken for the draft model's")
			}
			draft, err := twin.NewCache(states[1])
			if err != nil {
				t.Fatal(err)
			}
			if err := r.ResumeDraft(draft); err != nil {
				t.Fatal(err)
			}
			if err := r.ResumeDraft(draft); err != nil {
				t.Error(err) // once more is harmless
			}
			rest := collect(t, r, -1)
			equal(t, fmt.Sprintf("taken after %d", stop), append(got, ids(rest)...), plain)
			marks := 0
			for _, token := range rest {
				if token.FromDraft {
					marks++
				}
			}
			if marks < len(rest)/2 {
				t.Errorf("taken after %d: %d of %d tokens are from drafts", stop, marks, len(rest))
			}
			if a, b := taken(t, next)[0].Offset, taken(t, draft)[0].Offset; a != len(text)+20 || b != a {
				t.Errorf("taken after %d: in the end %d and %d tokens, want %d", stop, a, b, len(text)+20)
			}
		}
	}
}

// A reader who chooses by himself, and one who wants no drafts, leave both
// caches alike too.
func TestDraftCachesFollowWithoutDrafts(t *testing.T) {
	e := start(t, Config{})
	dir := nano(t, 43)
	m, twin := load(t, e, dir), load(t, e, dir)
	text := prompt(43, 9)
	c, dc := emptyCache(t, m), emptyCache(t, twin)
	generate(t, m, text, Options{MaxTokens: 4, PrefillStepSize: 5, Cache: c, DraftCache: dc, DraftModel: twin})
	if a, b := taken(t, c)[0].Offset, taken(t, dc)[0].Offset; a != 13 || b != 13 {
		t.Errorf("the caches hold %d and %d tokens, want 13", a, b)
	}
	c, dc = emptyCache(t, m), emptyCache(t, twin)
	r, err := m.Generate(text, Options{MaxTokens: 4, PrefillStepSize: 5, ReaderChooses: true, Cache: c, DraftCache: dc, DraftModel: twin, DraftTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	collect2(t, r, 1)
	if err := r.Choose(3); err != nil {
		t.Fatal(err)
	}
	collect2(t, r, 1)
	r.Close()
	if a, b := taken(t, c)[0].Offset, taken(t, dc)[0].Offset; a != 10 || b != 10 {
		t.Errorf("the caches hold %d and %d tokens, want 10", a, b)
	}
}

func TestRecurrentModelsDoNotDraft(t *testing.T) {
	e := start(t, Config{})
	m, recurrent := load(t, e, nano(t, 44)), load(t, e, nanoRecurrent(t, 44))
	for what, pair := range map[string][2]*Model{"model": {recurrent, m}, "draft model": {m, recurrent}} {
		_, err := pair[0].Generate(prompt(1, 3), Options{MaxTokens: 3, PrefillStepSize: 8, DraftModel: pair[1], DraftTokens: 2})
		if err == nil || !strings.Contains(err.Error(), "the "+what+", qwen3_5") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
