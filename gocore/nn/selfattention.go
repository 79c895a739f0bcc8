package nn

import "axlm/mlxc"

// SelfAttention is grouped-query attention with rotary positions, with
// normalised queries and keys where the family has norms for them.
type SelfAttention struct {
	Q, K, V, O     *Linear
	QNorm, KNorm   *RMSNorm // over the head size; nil for none
	RoPE           *RoPE
	Attend         *Attender // nil for none
	Heads, KVHeads int
	Scale          float32
}

// Forward maps x [B, L, dim] to [B, L, dim], appending to the layer's states.
func (a *SelfAttention) Forward(s *mlxc.Scope, x mlxc.Array, p *Packed, layer []Sequence) mlxc.Array {
	batch, length := x.Dim(0), x.Dim(1)
	q := a.heads(s, a.Q.Forward(s, x), a.QNorm, batch, length, a.Heads)
	k := a.heads(s, a.K.Forward(s, x), a.KNorm, batch, length, a.KVHeads)
	v := a.heads(s, a.V.Forward(s, x), nil, batch, length, a.KVHeads)
	q, k = p.Rotate(s, a.RoPE, q), p.Rotate(s, a.RoPE, k)
	seen := p.Update(s, layer, k, v)
	return a.O.Forward(s, p.Attend(s, a.Attend, q, seen, layer, a.Scale))
}

func (a *SelfAttention) heads(s *mlxc.Scope, x mlxc.Array, norm *RMSNorm, batch, length, heads int) mlxc.Array {
	x = s.Reshape(x, batch, length, heads, -1)
	if norm != nil {
		x = norm.Forward(s, x)
	}
	return s.Transpose(x, 0, 2, 1, 3)
}
