package nn

import (
	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// GatedAttention is SelfAttention whose output is gated: Q makes, for each
// head, a query and after it a gate of the same size.
type GatedAttention struct {
	SelfAttention
	Gate func(s *mlxc.Scope, out, gate mlxc.Array) mlxc.Array // SigmoidGate
}

// SigmoidGate is out·sigmoid(gate).
func SigmoidGate(s *mlxc.Scope, out, gate mlxc.Array) mlxc.Array {
	return s.Multiply(out, s.Sigmoid(gate))
}

// Forward maps x [B, L, dim] to [B, L, dim], appending to the layer's state.
func (a *GatedAttention) Forward(s *mlxc.Scope, x mlxc.Array, mask kvcache.Mask, state kvcache.Attention) mlxc.Array {
	batch, length := x.Dim(0), x.Dim(1)
	both := s.Split(s.Reshape(a.Q.Forward(s, x), batch, length, a.Heads, -1), 2, -1)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	q, gate := s.Transpose(a.QNorm.Forward(s, both[0]), 0, 2, 1, 3), s.Reshape(both[1], batch, length, -1)
	k := a.heads(s, a.K.Forward(s, x), a.KNorm, batch, length, a.KVHeads)
	v := a.heads(s, a.V.Forward(s, x), nil, batch, length, a.KVHeads)
	offset := state.Offset()
	q, k = a.RoPE.Forward(s, q, offset), a.RoPE.Forward(s, k, offset)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	seen := state.Update(s, k, v)
	out := a.Attend.Forward(s, q, seen, a.Scale, mask)
	return a.O.Forward(s, a.Gate(s, out, gate))
}
