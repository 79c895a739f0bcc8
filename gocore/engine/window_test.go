package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"axlm/gocore/ngram"
	"axlm/mlxc"
)

// nanoWindowed is nano as a llama model whose first layer sees 16 tokens.
func nanoWindowed(t *testing.T, seed uint64) string {
	t.Helper()
	dir := nano(t, seed)
	file := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(file)
	config := map[string]any{}
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	config["model_type"], config["sliding_window"] = "llama", 16
	config["layer_types"] = []string{"sliding_attention", "full_attention"}
	if text, err = json.Marshal(config); err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the stream belongs to the thread
	defer runtime.UnlockOSThread()
	stream, err := mlxc.NewStream(mlxc.Device{Type: mlxc.CPU})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "model.safetensors")
	arrays, _, err := mlxc.LoadSafetensors(file, stream)
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]mlxc.Array{}
	for name, a := range arrays {
		defer a.Free()
		if err := mlxc.Eval(a); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(name, "_norm.") || strings.Contains(name, "layernorm") {
			kept[name] = a
		}
	}
	if err := mlxc.SaveSafetensors(file, kept, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Case 1: past a sliding window, with drafts rejected at every depth. And case
// 3 there: wherever the reader stops, the cache can be brought to that point.
func TestSpeculationPastAWindow(t *testing.T) {
	for _, pad := range []bool{false, true} {
		m := load(t, start(t, Config{PadViews: &pad}), nanoWindowed(t, 3))
		for _, length := range []int{1, 11, 50} {
			text := prompt(uint64(length), length)
			plain := ids(generate(t, m, text, Options{MaxTokens: 64}))
			truth := append(slices.Clone(text), plain...)
			for right := 0; right <= 6; right++ {
				o := Options{MaxTokens: 64, PrefillStepSize: 7, Speculation: forced(6)}
				o.Proposers = []ngram.Proposer{&oracle{truth: truth, depth: 6, right: right}}
				what := fmt.Sprintf("pad %v, prompt of %d, %d of 6 drafts right", pad, length, right)
				equal(t, what, ids(generate(t, m, text, o)), plain)
				settles(t, m, text, plain, o, 20+3*right, what)
			}
		}
	}
}

// settles stops reading after a number of tokens.
func settles(t *testing.T, m *Model, text, plain []int32, o Options, stop int, what string) {
	t.Helper()
	o.Cache = emptyCache(t, m)
	r, err := m.Generate(text, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range stop {
		token, _, err := r.Next(time.Minute)
		if err != nil || token.ID != plain[i] {
			t.Fatalf("%s: token %d is %d, want %d (%v)", what, i, token.ID, plain[i], err)
		}
	}
	if held := taken(t, o.Cache)[0].Offset; held != len(text)+stop {
		t.Errorf("%s: stopped after %d, the cache holds %d tokens, want %d", what, stop, held, len(text)+stop)
	}
}
