package models

import (
	"math"

	"axlm/gocore/errs"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
)

// newLlama builds the llama family: rotary grouped-query attention and SwiGLU,
// with biases where the config asks for them.
func newLlama(f *weights.Folder, st *nn.Store) (Model, error) {
	c := f.Config.Reader()
	d := dims{
		hidden: c.Count("hidden_size"), layers: c.Count("num_hidden_layers"), inner: c.Count("intermediate_size"),
		heads: c.Count("num_attention_heads"), vocab: c.Count("vocab_size"), eps: c.Float("rms_norm_eps"),
	}
	d.kvHeads = c.CountOr("num_key_value_heads", max(1, d.heads))
	d.headDim = c.CountOr("head_dim", max(1, d.hidden/max(1, d.heads)))
	attentionBias, mlpBias := c.BoolOr("attention_bias", false), c.BoolOr("mlp_bias", false)
	rope := nn.RoPEConfig{
		Dims: d.headDim, Base: c.FloatOr("rope_theta", 10000),
		Traditional: c.BoolOr("rope_traditional", false), MaxLength: c.CountOr("max_position_embeddings", 1),
	}
	if c.Has("rope_scaling") {
		rope.Scaling = c.Map("rope_scaling").Config()
	}
	tied := c.BoolOr("tie_word_embeddings", true)
	description, err := f.Describe()
	c.Fail(err)
	if err := d.check(c); err != nil {
		return nil, err
	}
	m, err := newDecoder(st, d, rope, layout{
		attentionBias: attentionBias, outputBias: attentionBias, mlpBias: mlpBias, tied: tied,
	})
	if err != nil {
		return nil, err
	}
	m.windows = windows(description)
	return m, nil
}

// dims are the sizes that every decoder has.
type dims struct {
	hidden, layers, inner, heads, kvHeads, headDim, vocab int
	eps                                                   float64
}

// check wants sizes that agree with each other.
func (d dims) check(c weights.Reader) error {
	if c.Err() == nil && d.heads%d.kvHeads != 0 {
		c.Fail(errs.Value("config.json: num_attention_heads %d is not a multiple of num_key_value_heads %d", d.heads, d.kvHeads))
	}
	return c.Err()
}

// layout says which optional weights a decoder has.
type layout struct {
	attentionBias, outputBias, mlpBias bool // biases of q, k and v; of o; of the MLP
	qkNorm                             bool
	tied                               bool
	// mlp makes the feed-forward of layer i; nil for a gated MLP in each.
	mlp func(i int, at nn.Layer) feedForward
}

// newDecoder makes the stack.
func newDecoder(st *nn.Store, d dims, rope nn.RoPEConfig, l layout) (*decoder, error) {
	whole := st.Layer(weights.NoLayer)
	m := &decoder{
		embed: whole.Embedding(weights.EmbedTokens, d.vocab, d.hidden),
		norm:  whole.RMSNorm(weights.FinalNorm, d.hidden, d.eps),
	}
	rotary, mlp := st.RoPE(rope), l.mlp
	if mlp == nil {
		act := st.FuseGate(nn.SwiGLU)
		mlp = func(_ int, at nn.Layer) feedForward { return at.GatedMLP(d.hidden, d.inner, l.mlpBias, act) }
	}
	for i := 0; i < d.layers && st.Err() == nil; i++ {
		at := st.Layer(i)
		a := &nn.SelfAttention{
			Q:    at.Linear(weights.AttnQ, d.hidden, d.heads*d.headDim, l.attentionBias),
			K:    at.Linear(weights.AttnK, d.hidden, d.kvHeads*d.headDim, l.attentionBias),
			V:    at.Linear(weights.AttnV, d.hidden, d.kvHeads*d.headDim, l.attentionBias),
			O:    at.Linear(weights.AttnO, d.heads*d.headDim, d.hidden, l.outputBias),
			RoPE: rotary, Heads: d.heads, KVHeads: d.kvHeads, Scale: float32(1 / math.Sqrt(float64(d.headDim))),
		}
		if l.qkNorm {
			a.QNorm = at.RMSNorm(weights.AttnQNorm, d.headDim, d.eps)
			a.KNorm = at.RMSNorm(weights.AttnKNorm, d.headDim, d.eps)
		}
		m.blocks = append(m.blocks, block{
			inputNorm: at.RMSNorm(weights.InputNorm, d.hidden, d.eps),
			postNorm:  at.RMSNorm(weights.PostAttnNorm, d.hidden, d.eps),
			attention: a,
			mlp:       mlp(i, at),
		})
	}
	m.head = newHead(whole, d.hidden, d.vocab, l.tied)
	return m, st.Err()
}
