package models

import (
	"fmt"
	"math"
	"strings"

	"axlm/gocore/errs"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
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
	// mlp makes the feed-forward of a layer whose weights begin with at; nil
	// for a gated MLP in each.
	mlp func(layer int, at string) feedForward
}

// newDecoder makes the stack from weights named as llama and qwen name them.
func newDecoder(st *nn.Store, d dims, rope nn.RoPEConfig, l layout) (*decoder, error) {
	m := &decoder{
		embed: st.Embedding("model.embed_tokens", d.vocab, d.hidden),
		norm:  st.RMSNorm("model.norm", d.hidden, d.eps),
	}
	rotary, mlp := st.RoPE(rope), l.mlp
	if mlp == nil {
		act := st.FuseGate(nn.SwiGLU)
		mlp = func(_ int, at string) feedForward { return gatedMLP(st, at+"mlp.", d.hidden, d.inner, l.mlpBias, act) }
	}
	for i := 0; i < d.layers && st.Err() == nil; i++ {
		at := fmt.Sprintf("model.layers.%d.", i)
		a := &nn.SelfAttention{
			Q:    st.Linear(at+"self_attn.q_proj", d.hidden, d.heads*d.headDim, l.attentionBias),
			K:    st.Linear(at+"self_attn.k_proj", d.hidden, d.kvHeads*d.headDim, l.attentionBias),
			V:    st.Linear(at+"self_attn.v_proj", d.hidden, d.kvHeads*d.headDim, l.attentionBias),
			O:    st.Linear(at+"self_attn.o_proj", d.heads*d.headDim, d.hidden, l.outputBias),
			RoPE: rotary, Heads: d.heads, KVHeads: d.kvHeads, Scale: float32(1 / math.Sqrt(float64(d.headDim))),
		}
		if l.qkNorm {
			a.QNorm = st.RMSNorm(at+"self_attn.q_norm", d.headDim, d.eps)
			a.KNorm = st.RMSNorm(at+"self_attn.k_norm", d.headDim, d.eps)
		}
		m.blocks = append(m.blocks, block{
			inputNorm: st.RMSNorm(at+"input_layernorm", d.hidden, d.eps),
			postNorm:  st.RMSNorm(at+"post_attention_layernorm", d.hidden, d.eps),
			attention: a,
			mlp:       mlp(i, at),
		})
	}
	if l.tied {
		st.Ignore(func(name string) bool { return strings.HasPrefix(name, "lm_head.") })
	} else {
		m.head = st.Linear("lm_head", d.hidden, d.vocab, false)
	}
	st.Ignore(isRotaryFrequency)
	return m, st.Err()
}

// gatedMLP makes the MLP at path, an object with a trailing dot.
func gatedMLP(st *nn.Store, path string, hidden, inner int, bias bool, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *nn.GatedMLP {
	return &nn.GatedMLP{
		Gate: st.Linear(path+"gate_proj", hidden, inner, bias),
		Up:   st.Linear(path+"up_proj", hidden, inner, bias),
		Down: st.Linear(path+"down_proj", inner, hidden, bias),
		Act:  act,
	}
}
