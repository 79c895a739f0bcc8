package models

import (
	"axlm/gocore/kvcache"
	"axlm/gocore/nn"
	"axlm/mlxc"
)

// gemma4Layer normalises the input and the output of each of its parts.
type gemma4Layer struct {
	attention                gemma4Attention
	mlp                      *nn.GatedMLP
	inputNorm, attentionNorm *nn.RMSNorm // around attention
	mlpInputNorm, mlpNorm    *nn.RMSNorm // around the feed-forward
	scalar                   mlxc.Array  // [1], on the layer's output

	// In a layer with experts the dense feed-forward stands beside them.
	experts                       *gemma4Experts
	denseNorm                     *nn.RMSNorm // after the dense part
	expertsInputNorm, expertsNorm *nn.RMSNorm // around the experts

	// In a model with inputs of each layer's own:
	gate, projection *nn.Linear
	projectionNorm   *nn.RMSNorm
	geglu            func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array
}

// gemma4Pass is what the layers of one forward tell each other.
type gemma4Pass struct {
	masks maskSet
	seen  []attended // by the layers that hold keys and values
}

// attended is what a layer's queries attend to.
type attended struct {
	rows   kvcache.Rows
	offset int // the position of the first new row
}

// forward maps x [B, L, dim] to the same shape. input is the layer's own,
// [B, L, size], or none.
func (l *gemma4Layer) forward(s *mlxc.Scope, x, input mlxc.Array, pass *gemma4Pass, cache *kvcache.Cache) mlxc.Array {
	h := l.attention.forward(s, l.inputNorm.Forward(s, x), pass, cache)
	h = s.Add(x, l.attentionNorm.Forward(s, h))
	h = s.Add(h, l.mlpNorm.Forward(s, l.feedForward(s, h)))
	if l.gate != nil {
		gated := l.geglu(s, l.gate.Forward(s, h), input)
		h = s.Add(h, l.projectionNorm.Forward(s, l.projection.Forward(s, gated)))
	}
	return s.Multiply(h, l.scalar)
}

func (l *gemma4Layer) feedForward(s *mlxc.Scope, h mlxc.Array) mlxc.Array {
	dense := l.mlp.Forward(s, l.mlpInputNorm.Forward(s, h))
	if l.experts == nil {
		return dense
	}
	sparse := l.experts.forward(s, h, l.expertsInputNorm.Forward(s, h))
	return s.Add(l.denseNorm.Forward(s, dense), l.expertsNorm.Forward(s, sparse))
}

// gemma4Attention has keys and values of its own, or attends to those of layer
// source. Its scores are not scaled: the norms see to that.
type gemma4Attention struct {
	q, k, v, o          *nn.Linear // k is nil in a layer that shares; v also where the keys serve as values
	qNorm, kNorm, vNorm *nn.RMSNorm
	rope                *nn.RoPE
	attend              *nn.Attender
	heads, kvHeads      int
	source              int
}

func (a *gemma4Attention) forward(s *mlxc.Scope, x mlxc.Array, pass *gemma4Pass, cache *kvcache.Cache) mlxc.Array {
	batch, length := x.Dim(0), x.Dim(1)
	state := cache.Layers[a.source].(kvcache.Attention)
	if a.k != nil {
		pass.masks.of(s, state) // while the state is what the mask is for
		pass.seen[a.source] = a.update(s, x, state, batch, length)
	}
	q := s.Reshape(a.q.Forward(s, x), batch, length, a.heads, -1)
	q = s.Transpose(a.qNorm.Forward(s, q), 0, 2, 1, 3)
	seen := &pass.seen[a.source]
	q = a.rope.Forward(s, q, seen.offset)
	return a.o.Forward(s, a.attend.Forward(s, q, seen.rows, 1, pass.masks.of(s, state)))
}

// update appends the keys and values of x to the layer's state.
func (a *gemma4Attention) update(s *mlxc.Scope, x mlxc.Array, state kvcache.Attention, batch, length int) attended {
	k := s.Reshape(a.k.Forward(s, x), batch, length, a.kvHeads, -1)
	v := k
	if a.v != nil {
		v = s.Reshape(a.v.Forward(s, x), batch, length, a.kvHeads, -1)
	}
	offset := state.Offset()
	k = a.rope.Forward(s, s.Transpose(a.kNorm.Forward(s, k), 0, 2, 1, 3), offset)
	v = s.Transpose(a.vNorm.Forward(s, v), 0, 2, 1, 3)
	if s.Err() != nil {
		return attended{}
	}
	return attended{rows: state.Update(s, k, v), offset: offset}
}
