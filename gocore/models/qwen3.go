package models

import (
	"axlm/gocore/nn"
	"axlm/gocore/weights"
)

// newQwen3 builds the qwen3 family: llama's stack with normalised queries and
// keys.
func newQwen3(f *weights.Folder, st *nn.Store) (Model, error) {
	c := f.Config.Reader()
	d := dims{
		hidden: c.Count("hidden_size"), layers: c.Count("num_hidden_layers"), inner: c.Count("intermediate_size"),
		heads: c.Count("num_attention_heads"), kvHeads: c.Count("num_key_value_heads"), headDim: c.Count("head_dim"),
		vocab: c.Count("vocab_size"), eps: c.Float("rms_norm_eps"),
	}
	rope := nn.RoPEConfig{Dims: d.headDim, MaxLength: c.Count("max_position_embeddings")}
	// Newer checkpoints keep both keys inside rope_parameters.
	parameters := c.Map("rope_parameters")
	if c.Has("rope_theta") {
		rope.Base = c.Float("rope_theta")
	} else {
		rope.Base = parameters.Float("rope_theta")
	}
	switch {
	case c.Has("rope_scaling"):
		rope.Scaling = c.Map("rope_scaling").Config()
	case c.Has("rope_parameters"):
		rope.Scaling = parameters.Config()
	}
	tied := c.Bool("tie_word_embeddings")
	if err := d.check(c); err != nil {
		return nil, err
	}
	return newDecoder(st, d, rope, layout{qkNorm: true, tied: tied})
}
