package models

import (
	"math"

	"axlm/gocore/kvcache"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// qwen35 is the text model of the qwen3_5 families: gated delta layers, with
// gated full attention in every few, and an MLP or experts in each.
type qwen35 struct {
	embed  *nn.Embedding
	blocks []qwen35Block
	norm   *nn.RMSNorm
	head   *nn.Linear // nil when the embedding is the head
}

// qwen35Block has one of attention and linear.
type qwen35Block struct {
	inputNorm, postNorm *nn.RMSNorm
	attention           *nn.GatedAttention
	linear              *nn.GatedDeltaNet
	mlp                 feedForward
}

// newQwen35 builds qwen3_5 and qwen3_5_moe: dense and experts are told apart by
// the config, not by the name.
func newQwen35(f *weights.Folder, st *nn.Store) (Model, error) {
	d, err := f.Describe()
	if err != nil {
		return nil, err
	}
	c := f.Config.Reader()
	if c.Has("text_config") {
		c = c.Map("text_config")
	}
	p := qwen35Parts{st: st, d: d, bias: c.BoolOr("attention_bias", false), act: st.FuseGate(nn.SwiGLU)}
	if c.Err() != nil {
		return nil, c.Err()
	}
	p.published = p.isPublished()
	p.rope, p.attend = qwen35Rope(st, d, c), st.Attender(d.Dimensions.HeadDim)
	if l := d.LinearAttention; l != nil {
		p.delta = st.DeltaParts(nn.DeltaDims{
			KeyHeads: l.KeyHeads, ValueHeads: l.ValueHeads, KeySize: l.KeyDim, ValueSize: l.ValueDim, Width: l.ConvKernel,
		})
	}
	p.gate = st.FuseGate(nn.SigmoidGate)
	whole := st.Layer(weights.NoLayer)
	m := &qwen35{
		embed: whole.Embedding(weights.EmbedTokens, d.Dimensions.Vocab, d.Dimensions.Hidden),
		norm:  p.norm(whole, weights.FinalNorm, d.Dimensions.Hidden),
	}
	for i := 0; i < d.Dimensions.Layers && st.Err() == nil; i++ {
		m.blocks = append(m.blocks, p.block(i))
	}
	m.head = newHead(whole, d.Dimensions.Hidden, d.Dimensions.Vocab, d.TiedEmbeddings)
	return m, st.Err()
}

// qwen35Rope is the rotary embedding of the full attention layers; nil where
// there are none.
func qwen35Rope(st *nn.Store, d *weights.Description, c weights.Reader) *nn.RoPE {
	rope, ok := d.Rope[weights.FullAttention]
	if !ok {
		return nil
	}
	config := nn.RoPEConfig{Dims: rope.Dims, Base: rope.Theta, MaxLength: d.Dimensions.MaxPositions}
	if c.Has("rope_parameters") {
		config.Scaling = c.Map("rope_parameters").Config()
	}
	st.Fail(c.Err())
	return st.RoPE(config)
}

// qwen35Parts is what the layers are built from.
type qwen35Parts struct {
	st        *nn.Store
	d         *weights.Description
	bias      bool // of full attention's projections
	published bool // weights as published, not as mlx_lm converts them
	rope      *nn.RoPE
	delta     *nn.DeltaParts
	attend    *nn.Attender
	act, gate func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array
}

// isPublished tells a checkpoint as published by its convolutions, as mlx_lm
// does; then its norms are stored as differences from 1.
func (p *qwen35Parts) isPublished() bool {
	for i := range p.d.LayerTypes {
		if p.st.Layer(i).PublishedDepthwise(weights.LinearAttnConv) {
			return true
		}
	}
	return false
}

func (p *qwen35Parts) norm(at nn.Layer, role weights.Role, dim int) *nn.RMSNorm {
	if p.published {
		return at.RMSNormPublished(role, dim, p.d.Dimensions.NormEps)
	}
	return at.RMSNorm(role, dim, p.d.Dimensions.NormEps)
}

func (p *qwen35Parts) block(i int) qwen35Block {
	at, size := p.st.Layer(i), p.d.Dimensions
	b := qwen35Block{
		inputNorm: p.norm(at, weights.InputNorm, size.Hidden),
		postNorm:  p.norm(at, weights.PostAttnNorm, size.Hidden),
	}
	if p.d.LayerTypes[i] == weights.FullAttention {
		b.attention = p.attention(at)
	} else {
		b.linear = at.GatedDeltaNet(size.Hidden, size.NormEps, p.delta)
	}
	if p.d.MoE != nil {
		b.mlp = sparseMoE(at, size.Hidden, p.d.MoE, p.act)
	} else {
		b.mlp = at.GatedMLP(size.Hidden, size.Intermediate, false, p.act)
	}
	return b
}

func (p *qwen35Parts) attention(at nn.Layer) *nn.GatedAttention {
	size := p.d.Dimensions
	return &nn.GatedAttention{
		SelfAttention: nn.SelfAttention{
			Q:     at.Linear(weights.AttnQ, size.Hidden, 2*size.Heads*size.HeadDim, p.bias),
			K:     at.Linear(weights.AttnK, size.Hidden, size.KVHeads*size.HeadDim, p.bias),
			V:     at.Linear(weights.AttnV, size.Hidden, size.KVHeads*size.HeadDim, p.bias),
			O:     at.Linear(weights.AttnO, size.Heads*size.HeadDim, size.Hidden, p.bias),
			QNorm: p.norm(at, weights.AttnQNorm, size.HeadDim), KNorm: p.norm(at, weights.AttnKNorm, size.HeadDim),
			RoPE: p.rope, Attend: p.attend, Heads: size.Heads, KVHeads: size.KVHeads, Scale: float32(1 / math.Sqrt(float64(size.HeadDim))),
		},
		Gate: p.gate,
	}
}

func (m *qwen35) VocabSize() int { return m.embed.Vocab }

func (m *qwen35) Layers() int { return len(m.blocks) }

// Recurrent tells whether going back costs a computation: then drafts should
// be surer.
func (m *qwen35) Recurrent() bool {
	for i := range m.blocks {
		if m.blocks[i].linear != nil {
			return true
		}
	}
	return false
}

func (m *qwen35) NewCache(o CacheOptions) *kvcache.Cache {
	c := &kvcache.Cache{}
	for i := range m.blocks {
		if l := m.blocks[i].linear; l != nil {
			c.Layers = append(c.Layers, l.NewState())
		} else {
			c.Layers = append(c.Layers, newAttention(0, o))
		}
	}
	return c
}

func (m *qwen35) Forward(s *mlxc.Scope, in Input) mlxc.Array {
	h := in.embed(s, m.embed)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	p := newPass(in, h.DType())
	for i := range m.blocks {
		h = m.blocks[i].forward(s, h, p, i)
		if s.Err() != nil {
			return mlxc.Array{}
		}
	}
	return in.logits(s, h, m.norm, m.embed, m.head)
}

func (b *qwen35Block) forward(s *mlxc.Scope, h mlxc.Array, p *pass, layer int) mlxc.Array {
	x := b.inputNorm.Forward(s, h)
	if b.linear != nil {
		x = b.linear.Forward(s, x, p.Packed, p.recurrent(layer))
	} else {
		x = b.attention.Forward(s, x, p.Packed, p.attention(s, layer))
	}
	h = s.Add(h, x)
	return s.Add(h, b.mlp.Forward(s, b.postNorm.Forward(s, h)))
}
