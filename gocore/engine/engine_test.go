package engine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"axlm/gocore/errs"
	"axlm/mlxc"
)

func TestPrefillStepsGiveTheSameTokens(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 20))
	for _, length := range []int{2, 31, 255, 256, 257, 300} {
		text := prompt(uint64(length), length)
		whole := ids(generate(t, m, text, Options{MaxTokens: 12}))
		for _, step := range []int{1, 7, length - 1, length, length + 1} {
			if step == 1 && length > 100 {
				continue // as many steps as tokens: once is enough
			}
			got := ids(generate(t, m, text, Options{MaxTokens: 12, PrefillStepSize: step}))
			equal(t, fmt.Sprintf("prompt %d in steps of %d", length, step), got, whole)
		}
	}
}

// Reading keys in padded views under a mask changes no token.
func TestPaddedViews(t *testing.T) {
	dir := nano(t, 21)
	padded := true
	plain, wide := load(t, start(t, Config{}), dir), load(t, start(t, Config{PadViews: &padded}), dir)
	for _, length := range []int{3, 250, 256, 257} {
		text := prompt(21, length)
		o := Options{MaxTokens: 16, PrefillStepSize: 100}
		equal(t, fmt.Sprintf("prompt of %d", length), ids(generate(t, wide, text, o)), ids(generate(t, plain, text, o)))
	}
}

func TestRequestsTakeTurns(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 22))
	const readers = 4
	want := make([][]int32, readers)
	for i := range want {
		want[i] = ids(generate(t, m, prompt(uint64(i), 5+i), Options{MaxTokens: 30}))
	}
	got := make([][]int32, readers)
	var wait sync.WaitGroup
	for i := range got {
		r, err := m.Generate(prompt(uint64(i), 5+i), Options{MaxTokens: 30, PrefillStepSize: 2, Speculation: forced(3)})
		if err != nil {
			t.Fatal(err)
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				token, status, err := r.Next(time.Minute)
				if err != nil || status != Ready {
					return
				}
				got[i] = append(got[i], token.ID)
			}
		}()
	}
	wait.Wait()
	for i := range got {
		equal(t, fmt.Sprintf("request %d of %d at once", i, readers), got[i], want[i])
	}
}

// Case 14: requests leave nothing behind, finished, dropped or failed.
func TestMemoryIsFlat(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 23))
	text := prompt(23, 40)
	settled := func() int {
		// Stats passes through the engine's queue behind every Close.
		if _, err := m.Stats(); err != nil {
			t.Fatal(err)
		}
		return mlxc.ActiveMemory()
	}
	before := 0
	for i := range 101 {
		if i == 1 {
			before = settled()
		}
		r, err := m.Generate(text, Options{MaxTokens: 8, PrefillStepSize: 16, Logprobs: i%2 == 0, Speculation: forced(4)})
		if err != nil {
			t.Fatal(err)
		}
		for range i % 5 {
			token, _, err := r.Next(time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			token.Free()
		}
		r.Close()
	}
	// A buffer that MLX reuses counts with its whole size, which may be larger
	// than what was asked for.
	if after := settled(); after > before+64<<10 {
		t.Errorf("active memory grew from %d to %d bytes over 100 requests", before, after)
	}
}

func TestMaxTokensZeroProcessesThePrompt(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 24))
	text := prompt(24, 9)
	c := emptyCache(t, m)
	r, err := m.Generate(text, Options{MaxTokens: 0, PrefillStepSize: 4, Cache: c})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, status, err := r.Next(time.Minute); status != Finished || err != nil {
		t.Fatalf("status %v, %v", status, err)
	}
	if done, total := r.Progress(); done != 9 || total != 9 {
		t.Errorf("%d of %d prompt tokens processed", done, total)
	}
	if states := taken(t, c); states[0].Offset != 9 {
		t.Errorf("the cache holds %d tokens, want 9", states[0].Offset)
	}
}

func TestUnlimitedGoesOnUntilClosed(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 25))
	r, err := m.Generate(prompt(25, 3), Options{MaxTokens: Unlimited, PrefillStepSize: 4, Speculation: forced(2)})
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, r, 600); len(got) != 600 {
		t.Errorf("%d tokens, want 600", len(got))
	}
}

func TestLogprobsAreOfEachToken(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 26))
	text := prompt(26, 6)
	read := func(o Options) (out [][]float32) {
		o.MaxTokens, o.PrefillStepSize, o.Logprobs = 20, 64, true
		r, err := m.Generate(text, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for range 20 {
			token, _, err := r.Next(time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			row, err := token.Logprobs.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			token.Free()
			if best := slices.Max(row); row[token.ID] != best {
				t.Errorf("token %d has log probability %v, the best is %v", token.ID, row[token.ID], best)
			}
			out = append(out, row)
		}
		return out
	}
	plain := read(Options{})
	for i, row := range read(Options{Speculation: forced(4)}) {
		for j := range row {
			if d := row[j] - plain[i][j]; d > 1e-3 || d < -1e-3 {
				t.Fatalf("token %d: log probability %d is %v, want %v", i, j, row[j], plain[i][j])
			}
		}
	}
}

func TestBadArguments(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 27))
	cases := []struct {
		ids  []int32
		o    Options
		word string
	}{
		{nil, Options{MaxTokens: 1, PrefillStepSize: 1}, "prompt"},
		{[]int32{1, nanoVocab}, Options{MaxTokens: 1, PrefillStepSize: 1}, "token id 96 at position 1"},
		{[]int32{-1}, Options{MaxTokens: 1, PrefillStepSize: 1}, "token id -1"},
		{[]int32{1}, Options{MaxTokens: -2, PrefillStepSize: 1}, "max_tokens"},
		{[]int32{1}, Options{MaxTokens: 1}, "prefill_step_size"},
	}
	for _, c := range cases {
		_, err := m.Generate(c.ids, c.o)
		if err == nil || errs.Kind(err) != errs.KindValue || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%v %+v: %v; want a ValueError about %s", c.ids, c.o, err, c.word)
		}
	}
	if got := generate(t, m, []int32{1}, Options{MaxTokens: 3}); len(got) != 3 {
		t.Errorf("after bad calls: %d tokens, want 3", len(got))
	}
}

func TestBadFolders(t *testing.T) {
	e := start(t, Config{})
	good := nano(t, 28)
	cases := map[string]struct {
		damage func(dir string) error
		kind   string
		word   string
	}{
		"no folder":     {os.RemoveAll, errs.KindNotFound, "does not exist"},
		"no config":     {func(d string) error { return os.Remove(filepath.Join(d, "config.json")) }, errs.KindNotFound, "config.json"},
		"empty weights": {func(d string) error { return os.WriteFile(filepath.Join(d, "model.safetensors"), nil, 0o600) }, errs.KindValue, "model.safetensors"},
		"family": {func(d string) error {
			return os.WriteFile(filepath.Join(d, "config.json"), []byte(`{"model_type":"abacus"}`), 0o600)
		}, errs.KindUnknownFamily, "abacus"},
		"layers": {func(d string) error {
			return edit(d, `"num_hidden_layers":2`, `"num_hidden_layers":3`)
		}, errs.KindValue, "model.layers.2."},
		"shape": {func(d string) error {
			return edit(d, `"intermediate_size":48`, `"intermediate_size":64`)
		}, errs.KindValue, "mlp."},
		"extra": {func(d string) error {
			return edit(d, `"num_hidden_layers":2`, `"num_hidden_layers":1`)
		}, errs.KindValue, "model.layers.1."},
	}
	for name, c := range cases {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		if err := c.damage(dir); err != nil {
			t.Fatal(err)
		}
		_, done, err := e.Load(dir, LoadOptions{}).Wait(time.Minute)
		if !done || err == nil || errs.Kind(err) != c.kind || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v (%s); want a %s about %s", name, err, errs.Kind(err), c.kind, c.word)
		}
	}
	load(t, e, good)
}

func edit(dir, old, new string) error {
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), old) {
		return fmt.Errorf("config.json has no %s", old)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o600)
}

func TestClosing(t *testing.T) {
	e := start(t, Config{})
	m := load(t, e, nano(t, 29))
	r, err := m.Generate(prompt(29, 3), Options{MaxTokens: Unlimited, PrefillStepSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Next(time.Minute); errs.Kind(err) != errs.KindValue {
		t.Errorf("reading from a closed model: %v", err)
	}
	if _, err := m.Generate([]int32{1}, Options{MaxTokens: 1, PrefillStepSize: 1}); !errors.Is(err, errModelClosed) {
		t.Errorf("generating with a closed model: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	e.Close()
	e.Close()
	if _, _, err := e.Load(t.TempDir(), LoadOptions{}).Wait(time.Minute); err == nil {
		t.Error("a closed engine loads")
	}
	if _, err := m.Logits([]int32{1}, 1, mlxc.Array{}, nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed engine computes: %v", err)
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	e := start(t, Config{})
	err := e.do(func() error { panic("boom") })
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("%v", err)
	}
	if err := e.do(func() error { return nil }); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// The graph of a step must not grow with the text: every step evaluates all
// that the next one builds on.
func TestLazyGraphDoesNotDeepen(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 30))
	r, err := m.Generate(prompt(30, 3), Options{MaxTokens: 2000, PrefillStepSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// The fastest of some parts, since other packages' tests run meanwhile.
	fastest := func(parts int) time.Duration {
		least := time.Duration(math.MaxInt64)
		for range parts {
			from := time.Now()
			collect2(t, r, 20)
			least = min(least, time.Since(from))
		}
		return least
	}
	collect2(t, r, 100)
	early := fastest(10)
	collect2(t, r, 1400)
	late := fastest(10)
	// Attention over 2,000 tokens of a tiny model costs little; a graph that
	// deepens would cost ten times as much by now.
	if late > 4*early {
		t.Errorf("20 tokens took %v at 100 and %v at 1,700", early, late)
	}
}
