package models

import (
	"axlm/gocore/kvcache"
	"axlm/gocore/nn"
	"axlm/mlxc"
)

// block is a pre-norm transformer layer: attention, then a gated MLP, each
// added to its input.
type block struct {
	inputNorm, postNorm *nn.RMSNorm
	attention           *nn.SelfAttention
	mlp                 *nn.GatedMLP
}

// decoder is the stack that llama, qwen3 and their like share: full attention
// in every layer.
type decoder struct {
	embed  *nn.Embedding
	blocks []block
	norm   *nn.RMSNorm
	head   *nn.Linear // nil when the embedding is the head
}

func (m *decoder) VocabSize() int { return m.embed.Vocab }

func (m *decoder) Layers() int { return len(m.blocks) }

func (m *decoder) NewCache(o CacheOptions) *kvcache.Cache {
	c := &kvcache.Cache{}
	for range m.blocks {
		c.Layers = append(c.Layers, kvcache.NewFull(o.PadViews))
	}
	return c
}

func (m *decoder) Forward(s *mlxc.Scope, ids mlxc.Array, cache *kvcache.Cache, rows int) mlxc.Array {
	h := m.embed.Forward(s, ids)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	// Every layer holds the same number of tokens: one mask serves all.
	mask := cache.Layers[0].(kvcache.Attention).Mask(s, ids.Dim(1), h.DType())
	for i := range m.blocks {
		b := &m.blocks[i]
		h = s.Add(h, b.attention.Forward(s, b.inputNorm.Forward(s, h), mask, cache.Layers[i].(kvcache.Attention)))
		h = s.Add(h, b.mlp.Forward(s, b.postNorm.Forward(s, h)))
		if s.Err() != nil {
			return mlxc.Array{}
		}
	}
	if rows == 0 {
		return h
	}
	h = m.norm.Forward(s, lastRows(s, h, rows))
	if m.head == nil {
		return m.embed.AsLinear(s, h)
	}
	return m.head.Forward(s, h)
}

// lastRows keeps the last rows positions of h [B, L, dim], so that the head
// works only for those whose logits are wanted.
func lastRows(s *mlxc.Scope, h mlxc.Array, rows int) mlxc.Array {
	length := h.Dim(1)
	if rows >= length {
		return h
	}
	return s.Slice(h, []int{0, length - rows, 0}, []int{h.Dim(0), length, h.Dim(2)})
}
