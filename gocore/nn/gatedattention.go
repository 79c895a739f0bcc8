package nn

import "axlm/mlxc"

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

// Forward maps x [B, L, dim] to [B, L, dim], appending to the layer's states.
func (a *GatedAttention) Forward(s *mlxc.Scope, x mlxc.Array, p *Packed, layer []Sequence) mlxc.Array {
	batch, length := x.Dim(0), x.Dim(1)
	both := s.Split(s.Reshape(a.Q.Forward(s, x), batch, length, a.Heads, -1), 2, -1)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	q, gate := s.Transpose(a.QNorm.Forward(s, both[0]), 0, 2, 1, 3), s.Reshape(both[1], batch, length, -1)
	k := a.heads(s, a.K.Forward(s, x), a.KNorm, batch, length, a.KVHeads)
	v := a.heads(s, a.V.Forward(s, x), nil, batch, length, a.KVHeads)
	q, k = p.Rotate(s, a.RoPE, q), p.Rotate(s, a.RoPE, k)
	seen := p.Update(s, layer, k, v)
	out := p.Attend(s, a.Attend, q, seen, layer, a.Scale)
	return a.O.Forward(s, a.Gate(s, out, gate))
}
