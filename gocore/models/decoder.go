package models

import (
	"axlm/gocore/kvcache"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// block is a pre-norm transformer layer: attention, then feed-forward, each
// added to its input.
type block struct {
	inputNorm, postNorm *nn.RMSNorm
	attention           *nn.SelfAttention
	mlp                 feedForward
}

// feedForward is what a block does after attention: a gated MLP, or experts.
type feedForward interface {
	// Forward maps x [B, L, dim] to [B, L, dim].
	Forward(s *mlxc.Scope, x mlxc.Array) mlxc.Array
}

// decoder is the stack that llama, qwen3 and their like share.
type decoder struct {
	embed   *nn.Embedding
	blocks  []block
	windows []int // what each block's attention sees, 0 for all; nil when all do
	norm    *nn.RMSNorm
	head    *nn.Linear // nil when the embedding is the head
}

func (m *decoder) VocabSize() int { return m.embed.Vocab }

func (m *decoder) Layers() int { return len(m.blocks) }

func (m *decoder) NewCache(o CacheOptions) *kvcache.Cache {
	c := &kvcache.Cache{}
	for i := range m.blocks {
		window := 0
		if m.windows != nil {
			window = m.windows[i]
		}
		c.Layers = append(c.Layers, newAttention(window, o))
	}
	return c
}

func (m *decoder) Forward(s *mlxc.Scope, in Input) mlxc.Array {
	h := in.embed(s, m.embed)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	p := newPass(in, h.DType())
	for i := range m.blocks {
		b := &m.blocks[i]
		h = s.Add(h, b.attention.Forward(s, b.inputNorm.Forward(s, h), p.Packed, p.attention(s, i)))
		h = s.Add(h, b.mlp.Forward(s, b.postNorm.Forward(s, h)))
		if s.Err() != nil {
			return mlxc.Array{}
		}
	}
	return in.logits(s, h, m.norm, m.embed, m.head)
}

// newHead is the output head; nil when the embedding serves, and then a head
// that the folder has all the same is ignored.
func newHead(whole nn.Layer, hidden, vocab int, tied bool) *nn.Linear {
	if !tied {
		return whole.Linear(weights.LMHead, hidden, vocab, false)
	}
	whole.Ignore(weights.LMHead)
	return nil
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
