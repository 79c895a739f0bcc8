package weights

import (
	"reflect"
	"testing"

	"axlm/gocore/errs"
)

// enough is a table that is large enough for any number of layers here.
func enough(n int) table {
	tb := table{}
	for i := range n {
		tb[string(rune('a'+i%26))+string(rune('a'+i/26))] = "F32 1"
	}
	return tb
}

func describe(t *testing.T, c config) (*Description, error) {
	t.Helper()
	return open(t, c, enough(40)).Describe()
}

func repeat(n int, pattern ...string) []string {
	var out []string
	for range n {
		out = append(out, pattern...)
	}
	return out
}

const (
	full    = FullAttention
	sliding = SlidingAttention
	linear  = LinearAttention
)

var (
	denseBase = config{"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4,
		"num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 96}
	qwen3Base = denseBase.with("model_type", "qwen3", "max_position_embeddings", 512, "head_dim", 32, "tie_word_embeddings", false, "rope_theta", 1e6)
	moeBase   = qwen3Base.with("model_type", "qwen3_moe", "num_experts", 8, "num_experts_per_tok", 2, "moe_intermediate_size", 16,
		"norm_topk_prob", true, "decoder_sparse_step", 1, "mlp_only_layers", []int{0})
	qwen35Text = config{"hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
		"head_dim": 32, "linear_num_value_heads": 8, "linear_num_key_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 16,
		"vocab_size": 96, "rope_parameters": config{"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5}}
	gemma4Text = config{"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "head_dim": 16, "global_head_dim": 32,
		"num_kv_shared_layers": 2, "sliding_window": 32, "hidden_size_per_layer_input": 8,
		"layer_types": repeat(2, sliding, sliding, full)}
)

func TestDescribe(t *testing.T) {
	cases := map[string]struct {
		c     config
		check func(d *Description) (got, want any)
	}{
		"llama types": {denseBase.with("model_type", "llama"), func(d *Description) (any, any) { return d.LayerTypes, repeat(2, full) }},
		"llama dimensions": {denseBase.with("model_type", "mistral"), func(d *Description) (any, any) {
			return d.Dimensions, Dimensions{Vocab: 96, Hidden: 64, Intermediate: 128, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, NormEps: 1e-5}
		}},
		"llama alias": {denseBase.with("model_type", "mistral"), func(d *Description) (any, any) { return d.Family + "/" + d.ModelType, "llama/mistral" }},
		"llama tied":  {denseBase.with("model_type", "llama"), func(d *Description) (any, any) { return d.TiedEmbeddings, true }},
		"llama rope": {denseBase.with("model_type", "llama"), func(d *Description) (any, any) {
			return d.Rope, map[string]Rope{full: {Type: "default", Theta: 1e4, Dims: 16}}
		}},
		"llama heads": {denseBase.with("model_type", "llama", "num_key_value_heads", nil), func(d *Description) (any, any) { return d.Dimensions.KVHeads, 4 }},
		"llama windows": {denseBase.with("model_type", "llama", "layer_types", []string{sliding, full}, "sliding_window", 8), func(d *Description) (any, any) {
			return []any{d.LayerTypes, d.Dimensions.Window, len(d.Rope)}, []any{[]string{sliding, full}, 8, 2}
		}},
		"llama scaling": {denseBase.with("model_type", "llama", "rope_scaling", config{"type": "linear", "factor": 2}), func(d *Description) (any, any) {
			return d.Rope[full], Rope{Type: "linear", Theta: 1e4, Dims: 16, Scaling: map[string]any{"type": "linear", "factor": 2}}
		}},
		"qwen2 head size": {denseBase.with("model_type", "qwen2", "head_dim", 99), func(d *Description) (any, any) { return d.Dimensions.HeadDim, 16 }},
		"qwen2 rope":      {denseBase.with("model_type", "qwen2"), func(d *Description) (any, any) { return d.Rope[full].Theta, 1e6 }},
		"qwen3": {qwen3Base, func(d *Description) (any, any) {
			return []any{d.Dimensions.HeadDim, d.TiedEmbeddings}, []any{32, false}
		}},
		"qwen3 nested rope": {qwen3Base.with("rope_theta", nil, "rope_parameters", config{"rope_theta": 5, "rope_type": "yarn"}), func(d *Description) (any, any) {
			return []any{d.Rope[full].Type, d.Rope[full].Theta}, []any{"yarn", 5.0}
		}},
		"qwen3_moe": {moeBase, func(d *Description) (any, any) {
			return d.MoE, &MoE{Experts: 8, PerToken: 2, Intermediate: 16, Normalized: true, Layers: []int{1}}
		}},
		"qwen3_5 types":   {config{"model_type": "qwen3_5", "text_config": qwen35Text}, func(d *Description) (any, any) { return d.LayerTypes, []string{linear, linear, linear, full} }},
		"qwen3_5 flat":    {qwen35Text.with("model_type", "qwen3_5"), func(d *Description) (any, any) { return d.Dimensions.Hidden, 64 }},
		"qwen3_5 rope":    {qwen35Text.with("model_type", "qwen3_5"), func(d *Description) (any, any) { return d.Rope[full].Dims, 16 }},
		"qwen3_5 untied":  {qwen35Text.with("model_type", "qwen3_5"), func(d *Description) (any, any) { return d.TiedEmbeddings, false }},
		"qwen3_5 default": {qwen35Text.with("model_type", "qwen3_5", "rope_parameters", nil), func(d *Description) (any, any) { return d.Rope[full], Rope{Type: "default", Theta: 1e5, Dims: 8} }},
		"qwen3_5 linear": {qwen35Text.with("model_type", "qwen3_5"), func(d *Description) (any, any) {
			return d.LinearAttention, &LinearDims{KeyHeads: 4, ValueHeads: 8, KeyDim: 32, ValueDim: 16, ConvKernel: 4}
		}},
		"qwen3_5_moe": {qwen35Text.with("model_type", "qwen3_5_moe", "num_experts", 4, "num_experts_per_tok", 2, "moe_intermediate_size", 8, "shared_expert_intermediate_size", 12),
			func(d *Description) (any, any) {
				return d.MoE, &MoE{Experts: 4, PerToken: 2, Intermediate: 8, SharedIntermediate: 12, Normalized: true, Layers: []int{0, 1, 2, 3}}
			}},
		"gemma3 types": {config{"model_type": "gemma3_text", "num_hidden_layers": 7}, func(d *Description) (any, any) {
			return d.LayerTypes, append(append(repeat(5, sliding), full), sliding)
		}},
		"gemma3 rope": {config{"model_type": "gemma3_text"}, func(d *Description) (any, any) {
			return d.Rope, map[string]Rope{full: {Type: "default", Theta: 1e6, Dims: 256}, sliding: {Type: "default", Theta: 1e4, Dims: 256}}
		}},
		"gemma3 nested": {config{"model_type": "gemma3", "text_config": config{"vocab_size": 5}}, func(d *Description) (any, any) {
			return []int{d.Dimensions.Vocab, d.Dimensions.Heads, d.Dimensions.KVHeads}, []int{262208, 8, 4}
		}},
		"gemma3 tied": {config{"model_type": "gemma3_text"}, func(d *Description) (any, any) { return d.TiedEmbeddings, true }},
		"gemma4 defaults": {config{"model_type": "gemma4"}, func(d *Description) (any, any) {
			return []int{d.Dimensions.Layers, d.KVSharing.Sources[34]}, []int{35, 14}
		}},
		"gemma4 sharing": {config{"model_type": "gemma4", "text_config": gemma4Text}, func(d *Description) (any, any) {
			return d.KVSharing, &KVSharing{SharedLayers: 2, Sources: []int{0, 1, 2, 3, 3, 2}}
		}},
		"gemma4 vocabulary": {config{"model_type": "gemma4_unified", "vocab_size": 77, "text_config": gemma4Text.with("vocab_size", 5)}, func(d *Description) (any, any) { return d.Dimensions.Vocab, 77 }},
		"gemma4 ropes": {gemma4Text.with("model_type", "gemma4_text"), func(d *Description) (any, any) {
			return []any{d.Rope[full].Type, d.Rope[full].Dims, d.Rope[sliding].Dims}, []any{"proportional", 32, 16}
		}},
		"gemma4 own ropes": {gemma4Text.with("model_type", "gemma4_text", "rope_parameters", config{full: config{"rope_type": "linear", "factor": 2}}), func(d *Description) (any, any) {
			return []any{d.Rope[full].Type, d.Rope[full].Theta, d.Rope[sliding].Type}, []any{"linear", 1e4, "default"}
		}},
		"gemma4 softcap":    {gemma4Text.with("model_type", "gemma4_text"), func(d *Description) (any, any) { return d.Dimensions.FinalSoftcap, 30.0 }},
		"gemma4 no softcap": {gemma4Text.with("model_type", "gemma4_text", "final_logit_softcapping", nil), func(d *Description) (any, any) { return d.Dimensions.FinalSoftcap, 0.0 }},
		"gemma4 experts": {gemma4Text.with("model_type", "gemma4_text", "enable_moe_block", true, "num_experts", 4, "top_k_experts", 2, "moe_intermediate_size", 8), func(d *Description) (any, any) {
			return d.MoE, &MoE{Experts: 4, PerToken: 2, Intermediate: 8, Normalized: true, Layers: []int{0, 1, 2, 3, 4, 5}}
		}},
		"gemma4 dense": {gemma4Text.with("model_type", "gemma4_text", "num_experts", 4), func(d *Description) (any, any) { return d.MoE, (*MoE)(nil) }},
		"pattern": {gemma4Text.with("model_type", "gemma4_text", "layer_types", nil, "sliding_window_pattern", 2), func(d *Description) (any, any) {
			return d.LayerTypes, repeat(3, sliding, full)
		}},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			d, err := describe(t, x.c)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := x.check(d); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// gemma3 has no setting for tied embeddings: the head's presence decides.
func TestGemma3Head(t *testing.T) {
	f := open(t, config{"model_type": "gemma3", "text_config": config{}}, enough(40).with("language_model.lm_head.weight", "F32 2 2"))
	if d, err := f.Describe(); err != nil || d.TiedEmbeddings {
		t.Errorf("%+v %v", d, err)
	}
}

func TestDescribeErrors(t *testing.T) {
	g4 := gemma4Text.with("model_type", "gemma4_text")
	cases := []struct {
		name, kind string
		c          config
		want       string
	}{
		{"unknown family", errs.KindNotImplemented, denseBase.with("model_type", "gpt9"), `config.json: model_type: "gpt9"`},
		{"missing key", errs.KindValue, denseBase.with("model_type", "llama", "vocab_size", nil), "config.json: vocab_size is missing"},
		{"missing in qwen3", errs.KindValue, qwen3Base.with("head_dim", nil), "config.json: head_dim is missing"},
		{"missing rope", errs.KindValue, qwen3Base.with("rope_theta", nil), "config.json: rope_theta is missing"},
		{"nested key", errs.KindValue, config{"model_type": "qwen3_5", "text_config": qwen35Text.with("hidden_size", "x")}, `config.json: text_config.hidden_size: want a positive integer, got "x"`},
		{"heads do not divide", errs.KindValue, denseBase.with("model_type", "llama", "num_key_value_heads", 3), "num_key_value_heads: 3 does not divide num_attention_heads 4"},
		{"more heads than features", errs.KindValue, denseBase.with("model_type", "llama", "num_attention_heads", 128, "num_key_value_heads", 2), "128 heads do not fit hidden_size 64"},
		{"global heads", errs.KindValue, g4.with("num_global_key_value_heads", 3), "num_global_key_value_heads: 3 does not divide"},
		{"linear heads", errs.KindValue, qwen35Text.with("model_type", "qwen3_5", "linear_num_key_heads", 3), "linear_num_key_heads: 3 does not divide linear_num_value_heads 8"},
		{"unknown kind", errs.KindValue, g4.with("layer_types", repeat(2, sliding, "mamba", full)), `layer_types: layer 1: unknown kind "mamba"`},
		{"a kind of others", errs.KindValue, denseBase.with("model_type", "llama", "layer_types", []string{linear, full}), `layer_types: layer 0: unknown kind "linear_attention"`},
		{"unknown kind beside an interval", errs.KindValue, config{"model_type": "qwen3_5", "text_config": qwen35Text.with("layer_types", []string{linear, "ssm"})}, `config.json: text_config.layer_types: layer 1: unknown kind "ssm"`},
		{"unknown kind beside a pattern", errs.KindValue, config{"model_type": "gemma3_text", "layer_types": []string{"x"}}, `layer_types: layer 0: unknown kind "x"`},
		{"too few kinds", errs.KindValue, g4.with("layer_types", repeat(1, sliding, full)), "layer_types: 2 entries for 6 layers"},
		{"no window", errs.KindValue, denseBase.with("model_type", "llama", "layer_types", []string{sliding, full}), "sliding_window is missing"},
		{"zero interval", errs.KindValue, qwen35Text.with("model_type", "qwen3_5", "full_attention_interval", 0), "full_attention_interval: want a positive integer"},
		{"no source", errs.KindValue, g4.with("num_kv_shared_layers", 4), "num_kv_shared_layers: layer 2 (full_attention) shares keys and values"},
		{"all shared", errs.KindValue, g4.with("num_kv_shared_layers", 6), "num_kv_shared_layers: want fewer than the layers"},
		{"negative shared", errs.KindValue, g4.with("num_kv_shared_layers", -1), "num_kv_shared_layers: want"},
		{"experts per token", errs.KindValue, moeBase.with("num_experts_per_tok", 9), "num_experts: 9 of 8 experts per token"},
		{"no expert size", errs.KindValue, g4.with("enable_moe_block", true, "num_experts", 4, "top_k_experts", 2), "moe_intermediate_size is missing"},
		{"end token", errs.KindValue, g4.with("eos_token_id", "x"), "eos_token_id"},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			_, err := describe(t, x.c)
			wantErr(t, err, x.kind, x.want)
		})
	}
	// The default number of layers is bounded as well.
	_, err := open(t, config{"model_type": "gemma4"}, enough(20)).Describe()
	wantErr(t, err, errs.KindValue, "num_hidden_layers: 35 layers, but the folder holds only 20 tensors")
}
