package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"axlm/mlxc"
)

func parameter(t *testing.T, m *Model, name string) mlxc.Array {
	t.Helper()
	found, err := m.Parameters([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(found[0].Free)
	return found[0]
}

func TestParameters(t *testing.T) {
	e := start(t, Config{})
	for _, lazy := range []bool{false, true} {
		m, _, err := e.Load(nano(t, 60), LoadOptions{Lazy: lazy}).Wait(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		found, err := m.Parameters([]string{"model.norm.weight", "model.nothing", "model.embed_tokens.weight"})
		if err != nil {
			t.Fatal(err)
		}
		if found[1].Valid() {
			t.Error("a weight that is not there was found")
		}
		if shape := found[2].Shape(); !slices.Equal(shape, []int{nanoVocab, 32}) {
			t.Errorf("the embedding has the shape %v", shape)
		}
		if _, err := found[0].Float32s(); err != nil {
			t.Errorf("lazy %v: %v", lazy, err)
		}
		again := parameter(t, m, "model.norm.weight")
		if again.DataPtr() != found[0].DataPtr() {
			t.Error("a weight was copied")
		}
		for _, a := range found {
			a.Free()
		}
	}
}

// Casting changes the types that it is told to, and the size; the model works in
// each.
func TestSetDType(t *testing.T) {
	for name, dir := range map[string]string{"full": nano(t, 61), "recurrent": nanoRecurrent(t, 61)} {
		m := load(t, start(t, Config{}), dir)
		text, o := prompt(61, 20), Options{MaxTokens: 24}
		want := ids(generate(t, m, text, o))
		before := m.Bytes()

		if err := m.SetDType(t.Context(), mlxc.BFloat16, []mlxc.DType{mlxc.Float16}); err != nil {
			t.Fatal(err)
		}
		equal(t, name+": no weight has the type to cast", ids(generate(t, m, text, o)), want)

		if err := m.SetDType(t.Context(), mlxc.BFloat16, []mlxc.DType{mlxc.Float32}); err != nil {
			t.Fatal(err)
		}
		if m.Bytes() != before/2 {
			t.Errorf("%s: %d bytes of weights, want half of %d", name, m.Bytes(), before)
		}
		if len(generate(t, m, text, o)) != o.MaxTokens {
			t.Errorf("%s: no text after the cast", name)
		}
		if err := m.SetDType(t.Context(), mlxc.Float32, []mlxc.DType{mlxc.BFloat16}); err != nil {
			t.Fatal(err)
		}
		rounded := ids(generate(t, m, text, o))
		if err := m.SetDType(t.Context(), mlxc.Float32, []mlxc.DType{mlxc.Float32}); err != nil {
			t.Fatal(err)
		}
		equal(t, name+": cast to the type they have", ids(generate(t, m, text, o)), rounded)
		if m.Bytes() != before {
			t.Errorf("%s: %d bytes of weights, want %d", name, m.Bytes(), before)
		}
	}
}

// A request that runs while weights are cast ends with an error that says so,
// and the next one works.
func TestSetDTypeEndsRequests(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 62))
	r, err := m.Generate(prompt(62, 8), Options{MaxTokens: 100000, PrefillStepSize: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, err := r.Next(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := m.SetDType(t.Context(), mlxc.Float16, []mlxc.DType{mlxc.Float32}); err != nil {
		t.Fatal(err)
	}
	for {
		token, status, err := r.Next(time.Minute)
		if errors.Is(err, errCast) {
			break
		}
		if err != nil || status != Ready {
			t.Fatalf("the request ended with status %v, %v", status, err)
		}
		token.Free()
	}
	if n := len(generate(t, m, prompt(62, 8), Options{MaxTokens: 5})); n != 5 {
		t.Errorf("%d tokens after the cast", n)
	}
}

// Where passes are warmed up at load, they are again for weights of another
// type; a state that was kept meanwhile can still be used.
func TestSetDTypeWarmsUp(t *testing.T) {
	yes := true
	m := load(t, start(t, Config{WarmUp: &yes, PadViews: &yes}), nano(t, 64))
	cache, err := m.NewCache(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	text, o := prompt(64, 12), Options{MaxTokens: 6, Cache: cache}
	generate(t, m, text, o)
	if err := m.SetDType(t.Context(), mlxc.BFloat16, []mlxc.DType{mlxc.Float32}); err != nil {
		t.Fatal(err)
	}
	if n := len(generate(t, m, text, o)); n != o.MaxTokens {
		t.Errorf("%d tokens on the state of another type", n)
	}
	if n := len(generate(t, m, text, Options{MaxTokens: 6, Speculation: forced(3)})); n != 6 {
		t.Errorf("%d tokens after the cast", n)
	}
}

func TestSetDTypeRefuses(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 63))
	if err := m.SetDType(t.Context(), mlxc.Int32, []mlxc.DType{mlxc.Float32}); err == nil {
		t.Error("weights were cast to integers")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.SetDType(t.Context(), mlxc.Float16, nil); !errors.Is(err, errModelClosed) {
		t.Errorf("a closed model: %v", err)
	}
	if _, err := m.Parameters([]string{"model.norm.weight"}); !errors.Is(err, errModelClosed) {
		t.Errorf("a closed model: %v", err)
	}
}

// writeAdapter saves a LoRA of rank 2 for the first layer's queries.
func writeAdapter(t *testing.T, seed uint64, inputs int) string {
	t.Helper()
	w := newWriter(t, seed, nil)
	w.add("model.layers.0.self_attn.q_proj.lora_a", 1, 0, inputs, 2)
	w.add("model.layers.0.self_attn.q_proj.lora_b", 1, 0, 2, 32)
	dir := w.save()
	config := `{"num_layers": -1, "lora_parameters": {"rank": 2, "scale": 2.0, "dropout": 0.0}}`
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "adapters.safetensors")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A model that is given an adapter is one that was loaded with it; one that does
// not fit changes nothing.
func TestAdapt(t *testing.T) {
	e := start(t, Config{})
	dir, text := nano(t, 64), prompt(64, 8)
	m := load(t, e, dir)
	plain := ids(generate(t, m, text, Options{MaxTokens: 20}))
	before := m.Bytes()
	for seed := uint64(70); seed < 72; seed++ {
		adapter := writeAdapter(t, seed, 32)
		loaded, _, err := e.Load(dir, LoadOptions{Adapter: adapter}).Wait(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		want := ids(generate(t, loaded, text, Options{MaxTokens: 20}))
		if slices.Equal(want, plain) {
			t.Fatal("the adapter changes nothing")
		}
		if err := m.Adapt(t.Context(), adapter); err != nil {
			t.Fatal(err)
		}
		equal(t, "given an adapter", ids(generate(t, m, text, Options{MaxTokens: 20})), want)
		for _, wrong := range []string{writeAdapter(t, seed, 31), filepath.Join(adapter, "absent")} {
			if err := m.Adapt(t.Context(), wrong); err == nil {
				t.Errorf("%s was accepted", wrong)
			}
		}
		equal(t, "after a refusal", ids(generate(t, m, text, Options{MaxTokens: 20})), want)
		if info, err := m.Info(); err != nil || info.Adapter != adapter || m.Bytes() != before+4*(32*2+2*32) {
			t.Errorf("adapter %q, %d bytes instead of %d before, %v", info.Adapter, m.Bytes(), before, err)
		}
	}
}
