package nn

import (
	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

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

// Forward maps x [B, L, dim] to [B, L, dim], appending to the layer's state.
func (a *SelfAttention) Forward(s *mlxc.Scope, x mlxc.Array, mask kvcache.Mask, state kvcache.Attention) mlxc.Array {
	batch, length := x.Dim(0), x.Dim(1)
	q := a.heads(s, a.Q.Forward(s, x), a.QNorm, batch, length, a.Heads)
	k := a.heads(s, a.K.Forward(s, x), a.KNorm, batch, length, a.KVHeads)
	v := a.heads(s, a.V.Forward(s, x), nil, batch, length, a.KVHeads)
	offset := state.Offset()
	q, k = a.RoPE.Forward(s, q, offset), a.RoPE.Forward(s, k, offset)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	seen := state.Update(s, k, v)
	return a.O.Forward(s, a.Attend.Forward(s, q, seen, a.Scale, mask))
}

func (a *SelfAttention) heads(s *mlxc.Scope, x mlxc.Array, norm *RMSNorm, batch, length, heads int) mlxc.Array {
	x = s.Reshape(x, batch, length, heads, -1)
	if norm != nil {
		x = norm.Forward(s, x)
	}
	return s.Transpose(x, 0, 2, 1, 3)
}
