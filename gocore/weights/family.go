package weights

import "axlm/gocore/errs"

// aliases are model types that are another family under a name of their own.
var aliases = map[string]string{
	"mistral":        "llama",
	"iquestcoder":    "llama",
	"xverse":         "llama",
	"gemma4_unified": "gemma4",
}

// Family is the family that reads a model_type: the type itself, or the one
// that mlx_lm maps it to.
func Family(modelType string) string {
	if family, ok := aliases[modelType]; ok {
		return family
	}
	return modelType
}

// nesting says where a family keeps its text parameters.
type nesting int

const (
	flat     nesting = iota
	anywhere         // in text_config if there is one
	nested           // always in text_config
)

// family is what the manifest has to know about one: where its parameters are
// and what they are where config.json is silent.
type family struct {
	place    nesting
	defaults map[string]any
	required []string
	topVocab int                           // vocab_size comes from the top level, with this default
	ownHeads bool                          // head_dim is not read: it is hidden / heads
	prefix   string                        // of its tensors' names in mlx_lm
	rename   func(d *Description) renaming // nil: names are mlx_lm's already
}

var dense = []string{"hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "rms_norm_eps", "vocab_size"}

var (
	qwen35Defaults = map[string]any{
		"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
		"rms_norm_eps": 1e-6, "vocab_size": 151936, "num_key_value_heads": 8, "max_position_embeddings": 131072,
		"linear_num_value_heads": 64, "linear_num_key_heads": 16, "linear_key_head_dim": 192,
		"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
		"tie_word_embeddings": false, "norm_topk_prob": true,
	}
	gemma3Defaults = map[string]any{
		"hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
		"head_dim": 256, "rms_norm_eps": 1e-6, "vocab_size": 262144, "num_key_value_heads": 1,
		"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 512, "sliding_window_pattern": 6,
		"max_position_embeddings": 32768, "query_pre_attn_scalar": 256,
	}
	gemma4Defaults = map[string]any{
		"hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35, "num_attention_heads": 8,
		"head_dim": 256, "global_head_dim": 512, "rms_norm_eps": 1e-6, "vocab_size": 262144,
		"vocab_size_per_layer_input": 262144, "num_key_value_heads": 1, "num_kv_shared_layers": 20,
		"hidden_size_per_layer_input": 256, "sliding_window": 512, "sliding_window_pattern": 5,
		"max_position_embeddings": 131072, "attention_k_eq_v": false, "final_logit_softcapping": 30.0,
		"tie_word_embeddings": true,
	}
)

const languageModel = "language_model."

var families = map[string]family{
	"llama": {required: dense, defaults: map[string]any{"rope_theta": 1e4, "tie_word_embeddings": true}, rename: decoderNames},
	"qwen2": {required: append([]string{"num_key_value_heads"}, dense...), ownHeads: true,
		defaults: map[string]any{"rope_theta": 1e6, "max_position_embeddings": 32768, "tie_word_embeddings": true}, rename: decoderNames},
	"qwen3": {required: append([]string{"num_key_value_heads", "max_position_embeddings", "head_dim", "tie_word_embeddings"}, dense...),
		rename: decoderNames},
	"qwen3_moe": {required: append([]string{"num_key_value_heads", "max_position_embeddings", "head_dim", "tie_word_embeddings",
		"rope_theta", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
		"mlp_only_layers"}, dense...), rename: decoderNames},
	"qwen3_5":     {place: anywhere, defaults: qwen35Defaults, prefix: languageModel, rename: qwen35Names},
	"qwen3_5_moe": {place: anywhere, defaults: qwen35Defaults, prefix: languageModel, rename: qwen35Names},
	"gemma3": {place: nested, defaults: overlay(gemma3Defaults, map[string]any{"num_attention_heads": 8, "num_key_value_heads": 4}), topVocab: 262208,
		prefix: languageModel, rename: gemma3Names},
	"gemma3_text": {defaults: gemma3Defaults},
	"gemma4":      {place: nested, defaults: gemma4Defaults, topVocab: 262144, prefix: languageModel, rename: gemma4Rename},
	"gemma4_text": {defaults: gemma4Defaults, rename: gemma4Rename},
}

// parameters is the view of config.json from which a family's dimensions are
// read: its own values over the family's defaults. A null stays, and hides the
// default, as it does in mlx_lm.
func (f *Folder) parameters() (*Config, error) {
	fam, known := families[Family(f.ModelType)]
	if !known {
		return nil, errs.NotImplemented("config.json: model_type: %q is not a family that axlm knows", f.ModelType)
	}
	view := f.Config
	if fam.place == nested || fam.place == anywhere && f.Config.Has("text_config") {
		var err error
		if view, err = f.Config.Map("text_config"); err != nil {
			return nil, err
		}
	}
	merged := &Config{file: view.file, path: view.path, values: overlay(fam.defaults, view.values)}
	if fam.topVocab > 0 {
		vocab, err := f.Config.CountDefault("vocab_size", fam.topVocab)
		if err != nil {
			return nil, err
		}
		merged.values["vocab_size"] = vocab
	}
	if fam.ownHeads {
		delete(merged.values, "head_dim")
	}
	for _, key := range fam.required {
		if !merged.Has(key) {
			return nil, merged.Missing(key)
		}
	}
	return merged, nil
}

// overlay is a new map: base with the entries of top over it.
func overlay(base, top map[string]any) map[string]any {
	out := make(map[string]any, len(base)+len(top))
	for key, value := range base {
		out[key] = value
	}
	for key, value := range top {
		out[key] = value
	}
	return out
}
