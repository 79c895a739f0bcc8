package models

import (
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

// gemma4Pass is a pass with what the layers tell each other.
type gemma4Pass struct {
	*pass
	seen []nn.Attended // by the layers that hold keys and values
}

// forward maps x [B, L, dim] to the same shape. input is the layer's own,
// [B, L, size], or none.
func (l *gemma4Layer) forward(s *mlxc.Scope, x, input mlxc.Array, p *gemma4Pass) mlxc.Array {
	h := l.attention.forward(s, l.inputNorm.Forward(s, x), p)
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

func (a *gemma4Attention) forward(s *mlxc.Scope, x mlxc.Array, p *gemma4Pass) mlxc.Array {
	batch, length := x.Dim(0), x.Dim(1)
	layer := p.attention(s, a.source) // while the states are what the masks are for
	if a.k != nil {
		p.seen[a.source] = a.update(s, x, p, layer)
	}
	q := s.Reshape(a.q.Forward(s, x), batch, length, a.heads, -1)
	q = p.Rotate(s, a.rope, s.Transpose(a.qNorm.Forward(s, q), 0, 2, 1, 3))
	return a.o.Forward(s, p.Attend(s, a.attend, q, p.seen[a.source], layer, 1))
}

// update appends the keys and values of x to the layer's states.
func (a *gemma4Attention) update(s *mlxc.Scope, x mlxc.Array, p *gemma4Pass, layer []nn.Sequence) nn.Attended {
	batch, length := x.Dim(0), x.Dim(1)
	k := s.Reshape(a.k.Forward(s, x), batch, length, a.kvHeads, -1)
	v := k
	if a.v != nil {
		v = s.Reshape(a.v.Forward(s, x), batch, length, a.kvHeads, -1)
	}
	k = p.Rotate(s, a.rope, s.Transpose(a.kNorm.Forward(s, k), 0, 2, 1, 3))
	v = s.Transpose(a.vNorm.Forward(s, v), 0, 2, 1, 3)
	return p.Update(s, layer, k, v)
}
