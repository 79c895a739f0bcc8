package models

import (
	"slices"
	"testing"

	"axlm/mlxc"
)

// named are a folder's weights by the names of mlx_lm's modules.
func named(t *testing.T, s *mlxc.Scope, f *folder) map[string]tensor {
	t.Helper()
	_, st, err := buildStored(t, s, f.write(t, s))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]tensor{}
	for name, a := range st.Named() {
		if err := mlxc.Eval(a); err != nil {
			t.Fatal(err)
		}
		values, err := a.AsFloat32s()
		if err != nil {
			t.Fatal(err)
		}
		out[name] = tensor{values, a.Shape()}
	}
	return out
}

// Whatever form a checkpoint has, its weights get the names, the shapes and the
// values that mlx_lm's conversion gives them.
func TestNamedWeights(t *testing.T) {
	s := newScope(t)
	for name, forms := range map[string][2]*folder{
		"qwen3_5":     {nanoQwen35(false), publishedQwen(nanoQwen35(false))},
		"qwen3_5_moe": {nanoQwen35(true), publishedQwen(nanoQwen35(true))},
		"gemma4":      {nanoGemma4(), published(nanoGemma4())},
		"gemma4_moe":  {nanoGemma4MoE(), joined(nanoGemma4MoE())},
	} {
		got, want := named(t, s, forms[1]), named(t, s, forms[0])
		for path, w := range want {
			g, ok := got[path]
			switch {
			case !ok:
				t.Errorf("%s: the published form has no %s", name, path)
			case !slices.Equal(g.dims, w.dims):
				t.Errorf("%s: %s has the shape %v, want %v", name, path, g.dims, w.dims)
			case distance(g.values, w.values) > 1e-6:
				t.Errorf("%s: %s has other values", name, path)
			}
		}
		for path := range got {
			if _, ok := want[path]; !ok {
				t.Errorf("%s: the published form has %s too", name, path)
			}
		}
		for path, w := range forms[0].tensors {
			if g, ok := want[path]; ok && !slices.Equal(g.values, w.values) {
				t.Errorf("%s: %s is not what the file has", name, path)
			}
		}
	}
}

// A weight that is stored as a difference keeps the name and the value of the
// file, as mlx_lm's module has it.
func TestNamedDifferences(t *testing.T) {
	f := nanoGemma3()
	got := named(t, newScope(t), f)
	for path, w := range f.tensors {
		if g, ok := got[path]; ok && !slices.Equal(g.values, w.values) {
			t.Errorf("%s is not what the file has", path)
		}
	}
	if len(got) == 0 {
		t.Error("no weight has a name")
	}
}
