package models

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"axlm/gocore/errs"
	"axlm/mlxc"
)

// logits runs ids through a fresh cache.
func logits(t *testing.T, s *mlxc.Scope, m Model, ids []int32) []float32 {
	t.Helper()
	cache := m.NewCache(CacheOptions{})
	defer cache.Free()
	s.Reset()
	out := s.Keep(m.Forward(s, One(s.FromInt32s(ids, 1, len(ids)), cache, len(ids))))
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	s.Close()
	defer out.Free()
	if err := mlxc.Eval(out); err != nil {
		t.Fatal(err)
	}
	values, err := out.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// published is a converted nested folder under the names of the original, with
// the parts that text does not need.
func published(f *folder) *folder {
	out := f.renamed(func(name string) string {
		return strings.Replace(name, "language_model.model.", "model.language_model.", 1)
	})
	const layer = "model.language_model.layers.3.self_attn."
	for name, dims := range map[string][]int{
		"model.vision_tower.patch.weight": {2, 2}, "model.audio_tower.conv.weight": {2, 2}, "model.embed_audio.p.weight": {2},
		"model.embed_vision.p.weight": {2}, "model.vision_embedder.p.weight": {2}, "model.multi_modal_projector.p.weight": {2},
		layer + "k_proj.weight": {8, 32}, layer + "v_proj.weight": {8, 32}, layer + "k_norm.weight": {8}, // shared
		layer + "q_proj.input_max": {1}, layer + "q_proj.output_min": {1}, layer + "rotary_emb.inv_freq": {4},
	} {
		out.add(name, 1, 0, dims...)
	}
	return out
}

// joined is a folder of experts as published: gate and up in one tensor.
func joined(f *folder) *folder {
	out := f.renamed(func(name string) string {
		if strings.Contains(name, ".switch_glu.gate") || strings.Contains(name, ".switch_glu.up") {
			return ""
		}
		return strings.Replace(name, ".experts.switch_glu.down_proj.weight", ".experts.down_proj", 1)
	})
	for name, gate := range f.tensors {
		at, ok := strings.CutSuffix(name, "switch_glu.gate_proj.weight")
		if !ok {
			continue
		}
		up := f.tensors[at+"switch_glu.up_proj.weight"]
		size := gate.dims[1] * gate.dims[2]
		var values []float32
		for e := range gate.dims[0] {
			values = append(append(values, gate.values[e*size:][:size]...), up.values[e*size:][:size]...)
		}
		out.tensors[at+"gate_up_proj"] = tensor{values, []int{gate.dims[0], 2 * gate.dims[1], gate.dims[2]}}
	}
	return out
}

// A checkpoint as it was published and one that mlx_lm converted are the same
// model.
func TestPublishedGemma4(t *testing.T) {
	s := newScope(t)
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9}
	for name, f := range map[string][2]*folder{
		"nested":  {nanoGemma4(), published(nanoGemma4())},
		"experts": {nanoGemma4MoE(), joined(nanoGemma4MoE())},
	} {
		want := logits(t, s, mustBuild(t, s, f[0]), ids)
		if got := logits(t, s, mustBuild(t, s, f[1]), ids); !slices.Equal(got, want) {
			t.Errorf("%s: the published folder gives other logits", name)
		}
	}
	unified := nanoGemma4()
	unified.config["model_type"] = "gemma4_unified"
	if got := logits(t, s, mustBuild(t, s, unified), ids); !slices.Equal(got, logits(t, s, mustBuild(t, s, nanoGemma4()), ids)) {
		t.Error("gemma4_unified is not gemma4")
	}
}

// A head beside tied embeddings is ignored; untied, it is used and must be
// there.
func TestGemma4Head(t *testing.T) {
	s := newScope(t)
	ids := []int32{3, 1, 4}
	f := nanoGemma4MoE()
	tied := logits(t, s, mustBuild(t, s, f), ids)
	f.config["tie_word_embeddings"] = false
	if _, err := build(t, s, f.write(t, s)); err == nil || !strings.Contains(err.Error(), "lm_head") {
		t.Errorf("untied without a head: %v", err)
	}
	f.linear("lm_head", nanoVocab, nanoHidden)
	if got := logits(t, s, mustBuild(t, s, f), ids); slices.Equal(got, tied) {
		t.Error("untied: the head is not used")
	}
	f.config["tie_word_embeddings"] = true
	if got := logits(t, s, mustBuild(t, s, f), ids); !slices.Equal(got, tied) {
		t.Error("tied: the head is used")
	}
}

// gemma3 has no setting for it: a head that is there is used.
func TestGemma3Head(t *testing.T) {
	s := newScope(t)
	f := nanoGemma3()
	tied := logits(t, s, mustBuild(t, s, f), []int32{3, 1, 4})
	f.linear("language_model.lm_head", nanoVocab, nanoHidden)
	if got := logits(t, s, mustBuild(t, s, f), []int32{3, 1, 4}); slices.Equal(got, tied) {
		t.Error("the head is not used")
	}
}

// The cap bounds the logits, and null switches it off.
func TestGemma4SoftCap(t *testing.T) {
	s := newScope(t)
	greatest := func(limit any) float32 {
		f := nanoGemma4MoE()
		f.config["final_logit_softcapping"] = limit
		return slices.Max(logits(t, s, mustBuild(t, s, f), []int32{3, 1, 4}))
	}
	free := greatest(nil)
	if capped := greatest(free / 2); !(capped < free/2 && capped > free/3) {
		t.Errorf("logits up to %g are capped at %g by %g", free, capped, free/2)
	}
}

func TestLayersThatCannotBe(t *testing.T) {
	s := newScope(t)
	text := func(f *folder) map[string]any {
		inner := maps.Clone(f.config["text_config"].(map[string]any))
		f.config["text_config"] = inner
		return inner
	}
	for _, c := range []struct {
		name   string
		folder func() *folder
		change func(f *folder)
		want   string
	}{
		{"unknown kind", nanoGemma4, func(f *folder) {
			text(f)["layer_types"] = []string{"sliding_attention", "full_attention", "chunked", "sliding_attention", "full_attention"}
		}, "text_config.layer_types"},
		{"too few kinds", nanoGemma4, func(f *folder) { text(f)["layer_types"] = []string{"full_attention"} }, "text_config.layer_types"},
		{"heads", nanoGemma4, func(f *folder) { text(f)["num_key_value_heads"] = 3 }, "text_config.num_key_value_heads"},
		{"global heads", nanoGemma4MoE, func(f *folder) { f.config["num_global_key_value_heads"] = 3 }, "num_global_key_value_heads"},
		{"all shared", nanoGemma4, func(f *folder) { text(f)["num_kv_shared_layers"] = 5 }, "text_config.num_kv_shared_layers"},
		{"no source", nanoGemma4, func(f *folder) { text(f)["num_kv_shared_layers"] = 4 }, "text_config.num_kv_shared_layers"},
		{"no window", nanoGemma4, func(f *folder) { text(f)["sliding_window"] = nil }, "text_config.sliding_window"},
		{"no experts", nanoGemma4MoE, func(f *folder) { delete(f.config, "num_experts") }, "num_experts"},
		{"no window", nanoLlama, func(f *folder) { delete(f.config, "sliding_window") }, "sliding_window"},
		{"unknown kind", nanoLlama, func(f *folder) {
			f.config["layer_types"] = []string{"full_attention", "full_attention", "full_attention", "linear_attention"}
		}, "layer_types"},
		{"heads", nanoLlama, func(f *folder) { f.config["num_key_value_heads"] = 3 }, "num_key_value_heads"},
		{"pattern", nanoGemma3, func(f *folder) { text(f)["sliding_window_pattern"] = 0 }, "text_config.sliding_window_pattern"},
	} {
		f := c.folder()
		c.change(f)
		_, err := build(t, s, f.write(t, s))
		if err == nil || errs.Kind(err) != errs.KindValue || !strings.Contains(err.Error(), "config.json: "+c.want) {
			t.Errorf("%s of %v: %v, want a ValueError that names %s", c.name, f.config["model_type"], err, c.want)
		}
	}
}
