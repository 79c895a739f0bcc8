package models

import (
	"math"

	"axlm/gocore/errs"
	"axlm/gocore/kvcache"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// gemma4 is the text model of the gemma4 family: layers of sliding and of full
// attention with head sizes of their own, the last of which attend to keys and
// values of earlier ones; embeddings that every layer gets anew; experts beside
// the dense feed-forward in the large configurations.
type gemma4 struct {
	embed    *nn.Embedding
	scale    float32 // on embeddings
	perLayer *perLayerInputs
	layers   []gemma4Layer
	windows  []int // of the layers that hold keys and values, the first ones
	norm     *nn.RMSNorm
	head     *nn.Linear // nil when the embedding is the head
	cap      nn.Elementwise
}

// perLayerInputs make each layer's own input from the token ids and their
// embeddings.
type perLayerInputs struct {
	embed      *nn.Embedding // [vocab, layers·size]
	projection *nn.Linear
	norm       *nn.RMSNorm
	layers     int
	size       int
	hidden     int
}

// gemma4Parts is what the layers are built from.
type gemma4Parts struct {
	st     *nn.Store
	d      *weights.Description
	ropes  map[string]*nn.RoPE // by kind of layer
	attend *nn.Attender
	wide   bool // layers that share keys and values have twice the inner size
	geglu  func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array
	values *nn.RMSNorm // normalises values, without a weight
}

// newGemma4 builds gemma4, whose text parameters and weights are nested, and
// gemma4_text, whose are not.
func newGemma4(f *weights.Folder, st *nn.Store) (Model, error) {
	d, err := f.Describe()
	if err != nil {
		return nil, err
	}
	c := f.Config.Reader()
	if d.Family == "gemma4" {
		c = c.Map("text_config")
	}
	p := gemma4Parts{
		st: st, d: d, wide: c.BoolOr("use_double_wide_mlp", true),
		geglu: st.FuseGate(nn.GeGLU), values: &nn.RMSNorm{Eps: float32(d.Dimensions.NormEps)},
	}
	p.ropes = gemma4Ropes(st, d, c)
	p.attend = st.Attender(max(d.Dimensions.HeadDim, d.Dimensions.GlobalHeadDim))
	if d.MoE == nil && c.BoolOr("enable_moe_block", false) {
		c.Fail(c.Config().Wrong("num_experts", "a positive integer, because enable_moe_block is set"))
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	whole := st.Layer(weights.NoLayer)
	m := &gemma4{
		embed: whole.Embedding(weights.EmbedTokens, d.Dimensions.Vocab, d.Dimensions.Hidden),
		scale: float32(math.Sqrt(float64(d.Dimensions.Hidden))),
		norm:  whole.RMSNorm(weights.FinalNorm, d.Dimensions.Hidden, d.Dimensions.NormEps),
	}
	if d.Dimensions.PerLayer > 0 {
		m.perLayer = newPerLayerInputs(whole, d.Dimensions)
	}
	own := d.OwnKeyValues()
	m.windows = windows(d)[:own]
	for i := 0; i < d.Dimensions.Layers && st.Err() == nil; i++ {
		m.layers = append(m.layers, p.layer(i, own))
	}
	m.head = newHead(whole, d.Dimensions.Hidden, d.Dimensions.Vocab, d.TiedEmbeddings)
	if limit := d.Dimensions.FinalSoftcap; limit != 0 {
		m.cap = st.Fuse(func(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array { return nn.SoftCap(s, in[0], float32(limit)) })
	}
	return m, st.Err()
}

// gemma4Ropes makes the rotary embedding of each kind of layer. Without
// parameters the full layers turn a quarter of their features.
func gemma4Ropes(st *nn.Store, d *weights.Description, c weights.Reader) map[string]*nn.RoPE {
	parameters := c.Map("rope_parameters")
	traditional := c.BoolOr("rope_traditional", false)
	ropes := map[string]*nn.RoPE{}
	for kind, rope := range d.Rope {
		config := nn.RoPEConfig{Dims: rope.Dims, Base: rope.Theta, Traditional: traditional, MaxLength: d.Dimensions.MaxPositions}
		switch {
		case parameters.Has(kind):
			config.Scaling = parameters.Map(kind).Config()
		case len(rope.Scaling) > 0:
			config.Scaling = quarterRotation()
		}
		ropes[kind] = st.RoPE(config)
	}
	return ropes
}

func quarterRotation() *weights.Config {
	c, err := weights.ParseConfig("config.json", []byte(`{"rope_type": "proportional", "partial_rotary_factor": 0.25}`))
	if err != nil {
		panic(err) // the text above is JSON
	}
	return c
}

func newPerLayerInputs(whole nn.Layer, d weights.Dimensions) *perLayerInputs {
	return &perLayerInputs{
		embed:      whole.Embedding(weights.PerLayerEmbedTokens, d.PerLayerVocab, d.Layers*d.PerLayer),
		projection: whole.Linear(weights.PerLayerModelProject, d.Hidden, d.Layers*d.PerLayer, false),
		norm:       whole.RMSNorm(weights.PerLayerProjectionNorm, d.PerLayer, d.NormEps),
		layers:     d.Layers, size: d.PerLayer, hidden: d.Hidden,
	}
}

// layer builds layer i, of which the first own have keys and values.
func (p *gemma4Parts) layer(i, own int) gemma4Layer {
	at, d := p.st.Layer(i), p.d.Dimensions
	norm := func(role weights.Role) *nn.RMSNorm { return at.RMSNorm(role, d.Hidden, d.NormEps) }
	inner := d.Intermediate
	if p.wide && i >= own && own > 0 {
		inner *= 2
	}
	l := gemma4Layer{
		attention: p.attention(at, i, own),
		mlp:       at.GatedMLP(d.Hidden, inner, false, p.geglu),
		inputNorm: norm(weights.InputNorm), attentionNorm: norm(weights.PostAttnNorm),
		mlpInputNorm: norm(weights.PreMLPNorm), mlpNorm: norm(weights.PostMLPNorm),
		scalar: at.Tensor(weights.LayerScalar, 1),
	}
	if p.d.MoE != nil {
		l.experts = p.experts(at)
		l.denseNorm = norm(weights.PostDenseNorm)
		l.expertsInputNorm, l.expertsNorm = norm(weights.PreExpertsNorm), norm(weights.PostExpertsNorm)
	}
	if d.PerLayer > 0 {
		l.gate = at.Linear(weights.PerLayerGate, d.Hidden, d.PerLayer, false)
		l.projection = at.Linear(weights.PerLayerProjection, d.PerLayer, d.Hidden, false)
		l.projectionNorm = norm(weights.PerLayerNorm)
		l.geglu = p.geglu
	}
	return l
}

func (p *gemma4Parts) attention(at nn.Layer, i, own int) gemma4Attention {
	d := p.d.Dimensions
	kind := p.d.LayerTypes[i]
	size, kvHeads := d.HeadDim, d.KVHeads
	if kind == weights.FullAttention {
		if d.GlobalHeadDim > 0 {
			size = d.GlobalHeadDim
		}
		if d.KeyIsValue && d.GlobalKVHeads > 0 {
			kvHeads = d.GlobalKVHeads
		}
	}
	a := gemma4Attention{
		heads: d.Heads, kvHeads: kvHeads, source: i, rope: p.ropes[kind], attend: p.attend,
		q:     at.Linear(weights.AttnQ, d.Hidden, d.Heads*size, false),
		o:     at.Linear(weights.AttnO, d.Heads*size, d.Hidden, false),
		qNorm: at.RMSNorm(weights.AttnQNorm, size, d.NormEps),
	}
	if i >= own {
		a.source = p.d.KVSharing.Sources[i]
		return a
	}
	a.k = at.Linear(weights.AttnK, d.Hidden, kvHeads*size, false)
	a.kNorm, a.vNorm = at.RMSNorm(weights.AttnKNorm, size, d.NormEps), p.values
	if !d.KeyIsValue || kind != weights.FullAttention {
		a.v = at.Linear(weights.AttnV, d.Hidden, kvHeads*size, false)
	}
	return a
}

func (m *gemma4) VocabSize() int { return m.embed.Vocab }

func (m *gemma4) Layers() int { return len(m.layers) }

func (m *gemma4) NewCache(o CacheOptions) *kvcache.Cache {
	c := &kvcache.Cache{}
	for _, window := range m.windows {
		c.Layers = append(c.Layers, newAttention(window, o))
	}
	return c
}

func (m *gemma4) Forward(s *mlxc.Scope, in Input) mlxc.Array {
	if m.perLayer != nil && !in.IDs.Valid() && s.Err() == nil {
		s.Fail(errs.Value("input_embeddings: a model with inputs of each layer's own needs the prompt's tokens as well"))
	}
	h := in.embed(s, m.embed)
	h = s.Multiply(h, s.ScalarLike(h, m.scale))
	var inputs []mlxc.Array
	if m.perLayer != nil {
		inputs = m.perLayer.forward(s, in.IDs, h)
	}
	if s.Err() != nil {
		return mlxc.Array{}
	}
	wanted := in.wanted() > 0
	p := gemma4Pass{pass: newPass(in, h.DType()), seen: make([]nn.Attended, len(m.windows))}
	for i := range m.layers {
		if i == len(m.windows) && !wanted {
			break // what follows leaves nothing in the caches
		}
		var input mlxc.Array
		if inputs != nil {
			input = inputs[i]
		}
		h = m.layers[i].forward(s, h, input, &p)
		if s.Err() != nil {
			return mlxc.Array{}
		}
	}
	h = in.logits(s, h, m.norm, m.embed, m.head)
	if !wanted || m.cap == nil {
		return h
	}
	return m.cap(s, h)
}

// forward makes each layer's input, [B, L, size], of ids [B, L] and their
// scaled embeddings h.
func (p *perLayerInputs) forward(s *mlxc.Scope, ids, h mlxc.Array) []mlxc.Array {
	scaled := func(x mlxc.Array, by float64) mlxc.Array { return s.Multiply(x, s.ScalarLike(x, float32(by))) }
	tokens := scaled(p.embed.Forward(s, ids), math.Sqrt(float64(p.size)))
	context := scaled(p.projection.Forward(s, h), 1/math.Sqrt(float64(p.hidden)))
	context = p.norm.Forward(s, s.Unflatten(context, -1, p.layers, p.size))
	sum := scaled(s.Add(s.Flatten(context, -2, -1), tokens), math.Sqrt(0.5))
	return s.Split(sum, p.layers, -1)
}
