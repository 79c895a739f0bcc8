package models

import (
	"slices"

	"axlm/gocore/nn"
	"axlm/gocore/weights"
)

// newQwen3MoE builds the qwen3_moe family: qwen3's stack with experts in place
// of the MLP in most layers. Its rope has no scaling, whatever the config says.
func newQwen3MoE(f *weights.Folder, st *nn.Store) (Model, error) {
	description, err := f.Describe()
	if err != nil {
		return nil, err
	}
	c, size := f.Config.Reader(), description.Dimensions
	d := dims{
		hidden: size.Hidden, layers: size.Layers, inner: size.Intermediate, heads: size.Heads, kvHeads: size.KVHeads,
		headDim: size.HeadDim, vocab: size.Vocab, eps: size.NormEps,
	}
	rope := nn.RoPEConfig{Dims: d.headDim, Base: c.Float("rope_theta"), MaxLength: size.MaxPositions}
	if err := d.check(c); err != nil {
		return nil, err
	}
	act := st.FuseGate(nn.SwiGLU)
	mlp := func(i int, at nn.Layer) feedForward {
		if m := description.MoE; m != nil && slices.Contains(m.Layers, i) {
			return sparseMoE(at, d.hidden, m, act)
		}
		return at.GatedMLP(d.hidden, d.inner, false, act)
	}
	return newDecoder(st, d, rope, layout{qkNorm: true, tied: description.TiedEmbeddings, mlp: mlp})
}
