package models

import (
	"axlm/gocore/nn"
	"axlm/gocore/weights"
)

// newQwen2 builds the qwen2 family: llama's stack with biases on queries, keys
// and values.
func newQwen2(f *weights.Folder, st *nn.Store) (Model, error) {
	c := f.Config.Reader()
	d := dims{
		hidden: c.Count("hidden_size"), layers: c.Count("num_hidden_layers"), inner: c.Count("intermediate_size"),
		heads: c.Count("num_attention_heads"), kvHeads: c.Count("num_key_value_heads"),
		vocab: c.Count("vocab_size"), eps: c.Float("rms_norm_eps"),
	}
	d.headDim = d.hidden / max(1, d.heads) // head_dim is not read
	rope := nn.RoPEConfig{
		Dims: d.headDim, Base: c.FloatOr("rope_theta", 1e6),
		Traditional: c.BoolOr("rope_traditional", false), MaxLength: c.CountOr("max_position_embeddings", 32768),
	}
	if c.Has("rope_scaling") {
		rope.Scaling = c.Map("rope_scaling").Config()
	}
	tied := c.BoolOr("tie_word_embeddings", true)
	if err := d.check(c); err != nil {
		return nil, err
	}
	return newDecoder(st, d, rope, layout{attentionBias: true, tied: tied})
}
