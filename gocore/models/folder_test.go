package models

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

const nanoVocab = 96

// tensor is a weight's numbers and shape.
type tensor struct {
	values []float32
	dims   []int
}

// folder is a model to be written: config.json and weights.
type folder struct {
	config  map[string]any
	tensors map[string]tensor
	random  *rand.Rand
}

func newFolder(seed uint64, config map[string]any) *folder {
	return &folder{config: config, tensors: map[string]tensor{}, random: rand.New(rand.NewPCG(seed, 1))}
}

// add makes a weight whose numbers lie around base.
func (f *folder) add(name string, scale, base float64, dims ...int) {
	n := 1
	for _, d := range dims {
		n *= d
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(base + scale*f.random.NormFloat64())
	}
	f.tensors[name] = tensor{values, dims}
}

// linear makes a matrix that keeps the size of its input's numbers; lead are
// its leading dimensions.
func (f *folder) linear(name string, out, in int, lead ...int) {
	f.add(name+".weight", 1.4/math.Sqrt(float64(in)), 0, append(lead, out, in)...)
}

func (f *folder) norm(name string, base float64, dim int) {
	f.add(name+".weight", 0.1*base, base, dim)
}

// renamed is the folder under other names; "" drops a tensor.
func (f *folder) renamed(rename func(name string) string) *folder {
	out := &folder{config: maps.Clone(f.config), tensors: map[string]tensor{}, random: f.random}
	for name, t := range f.tensors {
		if name = rename(name); name != "" {
			out.tensors[name] = t
		}
	}
	return out
}

// write puts the folder on disk.
func (f *folder) write(t *testing.T, s *mlxc.Scope) string {
	t.Helper()
	dir := t.TempDir()
	config, err := json.Marshal(f.config)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	arrays := map[string]mlxc.Array{}
	for name, a := range f.tensors {
		arrays[name] = s.FromFloat32s(a.values, a.dims...)
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	defer s.Close()
	if err := mlxc.SaveSafetensors(filepath.Join(dir, "model.safetensors"), arrays, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// build loads the folder at dir as the engine does.
func build(t *testing.T, s *mlxc.Scope, dir string) (Model, error) {
	t.Helper()
	m, _, err := buildStored(t, s, dir)
	return m, err
}

// buildStored is build with what the model's arrays are in.
func buildStored(t *testing.T, s *mlxc.Scope, dir string) (Model, *nn.Store, error) {
	t.Helper()
	f, err := weights.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	arrays, _, err := mlxc.LoadSafetensors(filepath.Join(dir, "model.safetensors"), s.Stream())
	if err != nil {
		t.Fatal(err)
	}
	s.Reset()
	defer s.Close()
	manifest, err := weights.BuildManifest(f)
	if err != nil {
		return nil, nil, err
	}
	st := nn.NewStore(f, manifest, arrays, s)
	t.Cleanup(st.Free)
	m, err := Build(f, st)
	if err == nil {
		err = st.Finish()
	}
	return m, st, err
}

// mustBuild writes and loads a folder that is right.
func mustBuild(t *testing.T, s *mlxc.Scope, f *folder) Model {
	t.Helper()
	m, err := build(t, s, f.write(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	nanoHidden, nanoInner, nanoHeads, nanoHeadDim, nanoGlobalDim = 32, 48, 4, 8, 16
	nanoWindow                                                   = 6
)

// nanoLlama has sliding layers between full ones.
func nanoLlama() *folder {
	types := []string{"sliding_attention", "full_attention", "sliding_attention", "full_attention"}
	f := newFolder(4, map[string]any{
		"model_type": "llama", "hidden_size": nanoHidden, "num_hidden_layers": len(types), "intermediate_size": nanoInner,
		"num_attention_heads": nanoHeads, "num_key_value_heads": 2, "head_dim": nanoHeadDim, "rms_norm_eps": 1e-6,
		"vocab_size": nanoVocab, "layer_types": types, "sliding_window": nanoWindow,
	})
	f.add("model.embed_tokens.weight", 0.3, 0, nanoVocab, nanoHidden)
	f.norm("model.norm", 6, nanoHidden)
	for i := range types {
		at := fmt.Sprintf("model.layers.%d.", i)
		f.attention(at, 2, nanoHeadDim)
		f.mlp(at+"mlp.", nanoInner)
		f.norm(at+"input_layernorm", 1, nanoHidden)
		f.norm(at+"post_attention_layernorm", 1, nanoHidden)
	}
	return f
}

func (f *folder) attention(at string, kvHeads, headDim int) {
	f.linear(at+"self_attn.q_proj", nanoHeads*headDim, nanoHidden)
	f.linear(at+"self_attn.o_proj", nanoHidden, nanoHeads*headDim)
	f.linear(at+"self_attn.k_proj", kvHeads*headDim, nanoHidden)
	f.linear(at+"self_attn.v_proj", kvHeads*headDim, nanoHidden)
}

func (f *folder) mlp(at string, inner int, lead ...int) {
	f.linear(at+"gate_proj", inner, nanoHidden, lead...)
	f.linear(at+"up_proj", inner, nanoHidden, lead...)
	f.linear(at+"down_proj", nanoHidden, inner, lead...)
}

// nanoGemma3 is nested, with weights of norms around zero.
func nanoGemma3() *folder {
	f := newFolder(5, map[string]any{
		"model_type": "gemma3", "vocab_size": nanoVocab,
		"text_config": map[string]any{
			"hidden_size": nanoHidden, "num_hidden_layers": 4, "intermediate_size": nanoInner, "num_attention_heads": nanoHeads,
			"num_key_value_heads": 1, "head_dim": nanoHeadDim, "sliding_window": nanoWindow, "sliding_window_pattern": 3,
			"query_pre_attn_scalar": nanoHeadDim,
		},
	})
	const model = "language_model.model."
	f.add(model+"embed_tokens.weight", 0.05, 0, nanoVocab, nanoHidden)
	f.norm(model+"norm", 6, nanoHidden)
	f.add("vision_tower.patch.weight", 1, 0, 2, 2)
	f.add("multi_modal_projector.weight", 1, 0, 2, 2)
	for i := range 4 {
		at := fmt.Sprintf("%slayers.%d.", model, i)
		f.attention(at, 1, nanoHeadDim)
		f.mlp(at+"mlp.", nanoInner)
		for _, name := range []string{"self_attn.q_norm", "self_attn.k_norm"} {
			f.add(at+name+".weight", 0.1, 0.3, nanoHeadDim)
		}
		for _, name := range gemmaNorms {
			f.add(at+name+".weight", 0.1, 0, nanoHidden)
		}
	}
	return f
}

var gemmaNorms = []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}

// nanoGemma4 has inputs of each layer's own and, in the last layers, keys and
// values of earlier ones, as the small published models do.
func nanoGemma4() *folder {
	types := []string{"sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"}
	const shared, perLayer = 2, 8
	f := newFolder(3, map[string]any{
		"model_type": "gemma4", "vocab_size": nanoVocab,
		"text_config": map[string]any{
			"hidden_size": nanoHidden, "num_hidden_layers": len(types), "intermediate_size": nanoInner, "num_attention_heads": nanoHeads,
			"num_key_value_heads": 1, "head_dim": nanoHeadDim, "global_head_dim": nanoGlobalDim, "num_kv_shared_layers": shared,
			"hidden_size_per_layer_input": perLayer, "vocab_size_per_layer_input": nanoVocab, "sliding_window": nanoWindow,
			"layer_types": types,
		},
	})
	const model = "language_model.model."
	f.add(model+"embed_tokens_per_layer.weight", 0.3, 0, nanoVocab, len(types)*perLayer)
	f.linear(model+"per_layer_model_projection", len(types)*perLayer, nanoHidden)
	f.norm(model+"per_layer_projection_norm", 1, perLayer)
	f.gemma4(model, types, len(types)-shared, func(kind string) int { return 1 })
	for i := range types {
		at := fmt.Sprintf("%slayers.%d.", model, i)
		f.linear(at+"per_layer_input_gate", perLayer, nanoHidden)
		f.linear(at+"per_layer_projection", nanoHidden, perLayer)
		f.norm(at+"post_per_layer_input_norm", 1, nanoHidden)
	}
	return f
}

// nanoGemma4MoE has experts, and full layers whose keys serve as values, as the
// large published models do; it is flat.
func nanoGemma4MoE() *folder {
	types := []string{"sliding_attention", "sliding_attention", "full_attention"}
	const experts, inner = 4, 16
	f := newFolder(7, map[string]any{
		"model_type": "gemma4_text", "vocab_size": nanoVocab, "hidden_size": nanoHidden, "num_hidden_layers": len(types),
		"intermediate_size": nanoInner, "num_attention_heads": nanoHeads, "num_key_value_heads": 2, "num_global_key_value_heads": 1,
		"head_dim": nanoHeadDim, "global_head_dim": nanoGlobalDim, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0,
		"sliding_window": nanoWindow, "attention_k_eq_v": true, "use_double_wide_mlp": false, "layer_types": types,
		"enable_moe_block": true, "num_experts": experts, "top_k_experts": 2, "moe_intermediate_size": inner,
	})
	f.gemma4("model.", types, len(types), func(kind string) int {
		if kind == "full_attention" {
			return 1
		}
		return 2
	})
	for i, kind := range types {
		at := fmt.Sprintf("model.layers.%d.", i)
		if kind == "full_attention" {
			delete(f.tensors, at+"self_attn.v_proj.weight")
		}
		f.linear(at+"router.proj", experts, nanoHidden)
		f.add(at+"router.scale", 0.2, 1, nanoHidden)
		f.add(at+"router.per_expert_scale", 0.2, 1, experts)
		f.mlp(at+"experts.switch_glu.", inner, experts)
		for _, name := range []string{"post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"} {
			f.norm(at+name, 1, nanoHidden)
		}
	}
	return f
}

// gemma4 adds what every gemma4 model has; layers from own on have no keys and
// values, and feed-forwards of twice the width.
func (f *folder) gemma4(model string, types []string, own int, kvHeads func(kind string) int) {
	f.add(model+"embed_tokens.weight", 0.05, 0, nanoVocab, nanoHidden)
	f.norm(model+"norm", 6, nanoHidden)
	for i, kind := range types {
		at := fmt.Sprintf("%slayers.%d.", model, i)
		headDim, inner := nanoHeadDim, nanoInner
		if kind == "full_attention" {
			headDim = nanoGlobalDim
		}
		f.attention(at, kvHeads(kind), headDim)
		f.norm(at+"self_attn.q_norm", 1, headDim)
		f.norm(at+"self_attn.k_norm", 1, headDim)
		if i >= own {
			inner *= 2
			for _, name := range []string{"k_proj", "v_proj", "k_norm"} {
				delete(f.tensors, at+"self_attn."+name+".weight")
			}
		}
		f.mlp(at+"mlp.", inner)
		for _, name := range gemmaNorms {
			f.norm(at+name, 1, nanoHidden)
		}
		f.add(at+"layer_scalar", 0.1, 1, 1)
	}
}
