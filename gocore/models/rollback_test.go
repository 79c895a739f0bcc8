package models

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// runner generates greedily with a model and one cache.
type runner struct {
	t     *testing.T
	s     *mlxc.Scope
	m     Model
	cache *kvcache.Cache
}

func newRunner(t *testing.T, s *mlxc.Scope, m Model, pad bool) *runner {
	r := &runner{t: t, s: s, m: m, cache: m.NewCache(CacheOptions{PadViews: pad})}
	t.Cleanup(r.cache.Free)
	return r
}

// prefill appends the prompt but its last token, n tokens a step.
func (r *runner) prefill(prompt []int32, n int) {
	r.t.Helper()
	for ids := prompt[:len(prompt)-1]; len(ids) > 0; {
		step := ids[:min(n, len(ids))]
		ids = ids[len(step):]
		r.s.Reset()
		r.m.Forward(r.s, One(r.s.FromInt32s(step, 1, len(step)), r.cache, 0))
		if r.s.Err() != nil {
			r.t.Fatal(r.s.Err())
		}
		r.s.Close()
		if err := mlxc.Eval(r.cache.Arrays()...); err != nil {
			r.t.Fatal(err)
		}
	}
}

// choices appends ids and returns the token that the model chooses after each.
func (r *runner) choices(ids []int32) []int32 {
	r.t.Helper()
	r.s.Reset()
	logits := r.m.Forward(r.s, One(r.s.FromInt32s(ids, 1, len(ids)), r.cache, len(ids)))
	out := r.s.Keep(r.s.Reshape(r.s.ArgMax(logits, -1, false), -1))
	if r.s.Err() != nil {
		r.t.Fatal(r.s.Err())
	}
	r.s.Close()
	defer out.Free()
	if err := mlxc.Eval(out); err != nil {
		r.t.Fatal(err)
	}
	chosen, err := out.Uint32s()
	if err != nil {
		r.t.Fatal(err)
	}
	tokens := make([]int32, len(chosen))
	for i, id := range chosen {
		tokens[i] = int32(id)
	}
	return tokens
}

// plain generates n tokens one by one.
func (r *runner) plain(prompt []int32, n int) []int32 {
	r.t.Helper()
	text := slices.Clone(prompt)
	for range n {
		text = append(text, r.choices(text[len(text)-1:])...)
	}
	return text[len(prompt):]
}

func (r *runner) rollback(keep int) {
	r.t.Helper()
	if err := r.cache.Rollback(r.s, keep); err != nil {
		r.t.Fatal(err)
	}
}

// verified generates as speculation does, with drafts from truth, right up to
// a random one; at times it takes back some of what it accepted.
func (r *runner) verified(prompt, truth []int32, random *rand.Rand) []int32 {
	r.t.Helper()
	text, end := slices.Clone(prompt), len(prompt)+len(truth)
	for len(text) < end {
		done := len(text) - len(prompt)
		depth := random.IntN(min(13, len(truth)-done))
		rows := append(slices.Clone(text[len(text)-1:]), truth[done:done+depth]...)
		if spoiled := random.IntN(depth + 1); spoiled > 0 {
			rows[spoiled] = (rows[spoiled] + 1) % nanoVocab
		}
		r.cache.Checkpoint()
		chosen := r.choices(rows)
		accepted := 0
		for accepted < depth && rows[accepted+1] == chosen[accepted] {
			accepted++
		}
		r.rollback(accepted + 1)
		if accepted > 0 && random.IntN(3) == 0 {
			accepted = random.IntN(accepted)
			r.rollback(accepted + 1)
		}
		text = append(text, chosen[:accepted+1]...)
		if want := len(text) - 1; r.cache.Offset() != want {
			r.t.Fatalf("the cache holds %d tokens, want %d", r.cache.Offset(), want)
		}
	}
	return text[len(prompt):]
}

func randomPrompt(random *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = random.Int32N(nanoVocab)
	}
	return ids
}

var windowed = map[string]func() *folder{
	"llama": nanoLlama, "gemma3": nanoGemma3, "gemma4": nanoGemma4, "gemma4 moe": nanoGemma4MoE,
}

// Whatever is drafted, rejected and taken back, and however the prompt is cut,
// windowed models give the ids of plain decoding, well past the window.
func TestWindowedModelsGoBack(t *testing.T) {
	const tokens = 120
	for name, nano := range windowed {
		for _, pad := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s pad %v", name, pad), func(t *testing.T) {
				s := newScope(t)
				m := mustBuild(t, s, nano())
				random := rand.New(rand.NewPCG(7, 7))
				for _, length := range []int{1, 40} {
					prompt, truth := variedText(t, s, m, random, length, tokens)
					r := newRunner(t, s, m, pad)
					r.prefill(prompt, 1+random.IntN(length))
					if got := r.verified(prompt, truth, random); !slices.Equal(got, truth) {
						t.Errorf("prompt of %d tokens: verifying gives\n%v, want\n%v", length, got, truth)
					}
				}
			})
		}
	}
}

// A prompt longer than the window gives the same ids in steps of any size.
func TestWindowedModelsInChunks(t *testing.T) {
	for name, nano := range windowed {
		t.Run(name, func(t *testing.T) {
			s := newScope(t)
			m := mustBuild(t, s, nano())
			prompt := randomPrompt(rand.New(rand.NewPCG(8, 8)), 30)
			var want []int32
			for _, step := range []int{len(prompt), 1, 7, len(prompt) - 1, len(prompt) + 1} {
				r := newRunner(t, s, m, step == 7)
				r.prefill(prompt, step)
				got := r.plain(prompt, 30)
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("steps of %d give %v, want %v", step, got, want)
				}
			}
		})
	}
}

// Layers that see a window hold no more than it needs.
func TestWindowedCacheIsBounded(t *testing.T) {
	s := newScope(t)
	m := mustBuild(t, s, nanoGemma4())
	r := newRunner(t, s, m, false)
	prompt := randomPrompt(rand.New(rand.NewPCG(9, 9)), 700)
	r.prefill(prompt, len(prompt))
	r.choices(prompt[len(prompt)-1:])
	const most = nanoWindow // rows
	for i, layer := range r.cache.Layers {
		rows := layer.Bytes() / (2 * 4 * layer.Arrays()[0].Dim(3))
		if _, sliding := layer.(*kvcache.Window); sliding && rows > most {
			t.Errorf("layer %d holds %d rows, want at most %d", i, rows, most)
		}
	}
}

// variedText is a prompt after which plain decoding does not soon repeat
// itself, and what it gives.
func variedText(t *testing.T, s *mlxc.Scope, m Model, random *rand.Rand, length, tokens int) (prompt, truth []int32) {
	t.Helper()
	for range 20 {
		prompt = randomPrompt(random, length)
		r := newRunner(t, s, m, false)
		r.prefill(prompt, length)
		if truth = r.plain(prompt, tokens); distinct(truth) >= min(20, tokens/3) {
			return prompt, truth
		}
	}
	t.Fatal("every prompt ends in a short loop")
	return nil, nil
}

func distinct(ids []int32) int {
	seen := map[int32]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}
