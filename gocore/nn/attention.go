package nn

import (
	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// MergeHeads turns [B, heads, L, d] into [B, L, heads·d].
func MergeHeads(s *mlxc.Scope, x mlxc.Array, batch, length int) mlxc.Array {
	return s.Reshape(s.Transpose(x, 0, 2, 1, 3), batch, length, -1)
}

// Attend is scaled dot product attention of q [B, heads, L, d] over keys and
// values [B, kv heads, N, d]; heads is a multiple of kv heads.
func Attend(s *mlxc.Scope, q, k, v mlxc.Array, scale float32, m kvcache.Mask) mlxc.Array {
	return s.SDPA(q, k, v, scale, m.Mode, m.Array, mlxc.Array{})
}
