package models

import (
	"math"

	"axlm/gocore/kvcache"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// gemma3 is the text model of the gemma3 family: layers of sliding attention
// with one of full attention after each few, and norms before and after every
// part, whose weights are stored as their difference from 1.
type gemma3 struct {
	embed   *nn.Embedding
	scale   float32 // on embeddings, as bfloat16 rounds it
	layers  []gemma3Layer
	windows []int
	norm    *nn.RMSNorm
	head    *nn.Linear // nil when the embedding is the head
}

type gemma3Layer struct {
	inputNorm, attentionNorm *nn.RMSNorm
	mlpInputNorm, mlpNorm    *nn.RMSNorm
	attention                *nn.SelfAttention
	mlp                      *nn.GatedMLP
}

// newGemma3 builds gemma3, whose text parameters and weights are nested, and
// gemma3_text, whose are not.
func newGemma3(f *weights.Folder, st *nn.Store) (Model, error) {
	d, err := f.Describe()
	if err != nil {
		return nil, err
	}
	c := f.Config.Reader()
	if d.Family == "gemma3" {
		c = c.Map("text_config")
	}
	scale := float32(math.Pow(c.FloatOr("query_pre_attn_scalar", 256), -0.5))
	ropes := gemma3Ropes(st, d, c)
	if err := c.Err(); err != nil {
		return nil, err
	}
	size, whole := d.Dimensions, st.Layer(weights.NoLayer)
	m := &gemma3{
		embed: whole.Embedding(weights.EmbedTokens, size.Vocab, size.Hidden),
		scale: float32(math.Sqrt(float64(size.Hidden))), windows: windows(d),
		norm: whole.RMSNormFromOne(weights.FinalNorm, size.Hidden, size.NormEps),
		head: newHead(whole, size.Hidden, size.Vocab, d.TiedEmbeddings),
	}
	geglu := st.FuseGate(nn.GeGLU)
	attend := st.Attender(size.HeadDim)
	for i := 0; i < size.Layers && st.Err() == nil; i++ {
		l := newGemma3Layer(st.Layer(i), size, geglu)
		l.attention.RoPE, l.attention.Scale = ropes[d.LayerTypes[i]], scale
		l.attention.Attend = attend
		m.layers = append(m.layers, l)
	}
	return m, st.Err()
}

func newGemma3Layer(at nn.Layer, d weights.Dimensions, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) gemma3Layer {
	norm := func(role weights.Role, dim int) *nn.RMSNorm { return at.RMSNormFromOne(role, dim, d.NormEps) }
	return gemma3Layer{
		inputNorm: norm(weights.InputNorm, d.Hidden), attentionNorm: norm(weights.PostAttnNorm, d.Hidden),
		mlpInputNorm: norm(weights.PreMLPNorm, d.Hidden), mlpNorm: norm(weights.PostMLPNorm, d.Hidden),
		attention: &nn.SelfAttention{
			Q:     at.Linear(weights.AttnQ, d.Hidden, d.Heads*d.HeadDim, false),
			K:     at.Linear(weights.AttnK, d.Hidden, d.KVHeads*d.HeadDim, false),
			V:     at.Linear(weights.AttnV, d.Hidden, d.KVHeads*d.HeadDim, false),
			O:     at.Linear(weights.AttnO, d.Heads*d.HeadDim, d.Hidden, false),
			QNorm: norm(weights.AttnQNorm, d.HeadDim), KNorm: norm(weights.AttnKNorm, d.HeadDim),
			Heads: d.Heads, KVHeads: d.KVHeads,
		},
		mlp: at.GatedMLP(d.Hidden, d.Intermediate, false, act),
	}
}

// gemma3Ropes makes the rotary embedding of each kind of layer; scaling is for
// the full ones.
func gemma3Ropes(st *nn.Store, d *weights.Description, c weights.Reader) map[string]*nn.RoPE {
	ropes := map[string]*nn.RoPE{}
	for kind, rope := range d.Rope {
		config := nn.RoPEConfig{Dims: rope.Dims, Base: rope.Theta, MaxLength: d.Dimensions.MaxPositions}
		if kind == weights.FullAttention && c.Has("rope_scaling") {
			config.Scaling = c.Map("rope_scaling").Config()
		}
		ropes[kind] = st.RoPE(config)
	}
	return ropes
}

func (m *gemma3) VocabSize() int { return m.embed.Vocab }

func (m *gemma3) Layers() int { return len(m.layers) }

func (m *gemma3) NewCache(o CacheOptions) *kvcache.Cache {
	c := &kvcache.Cache{}
	for _, window := range m.windows {
		c.Layers = append(c.Layers, newAttention(window, o))
	}
	return c
}

func (m *gemma3) Forward(s *mlxc.Scope, in Input) mlxc.Array {
	h := in.embed(s, m.embed)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	dt := h.DType()
	h = s.Multiply(h, s.AsType(s.Scalar(m.scale, mlxc.BFloat16), dt))
	p := newPass(in, dt)
	for i := range m.layers {
		l := &m.layers[i]
		a := l.attention.Forward(s, l.inputNorm.Forward(s, h), p.Packed, p.attention(s, i))
		h = addWithin(s, h, l.attentionNorm.Forward(s, a), dt)
		h = addWithin(s, h, l.mlpNorm.Forward(s, l.mlp.Forward(s, l.mlpInputNorm.Forward(s, h))), dt)
		if s.Err() != nil {
			return mlxc.Array{}
		}
	}
	return in.logits(s, h, m.norm, m.embed, m.head)
}

// addWithin is x + y; in float16, which the family's activations outgrow, it
// stops at the greatest number instead of infinity.
func addWithin(s *mlxc.Scope, x, y mlxc.Array, dt mlxc.DType) mlxc.Array {
	if dt != mlxc.Float16 {
		return s.Add(x, y)
	}
	const greatest = 65504
	sum := s.Add(s.AsType(x, mlxc.Float32), s.AsType(y, mlxc.Float32))
	sum = s.Clip(sum, s.Scalar(-greatest, mlxc.Float32), s.Scalar(greatest, mlxc.Float32))
	return s.AsType(sum, mlxc.Float16)
}
