package nn

import (
	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// Attender attends as Attend does and merges the heads. MLX's attention on CUDA
// has no kernel for heads of more than 128 features: it would take four, two of
// which cuBLAS plans anew each time, 50 µs of the host against 7 for one of
// ours. An Attender of none does without.
type Attender struct{ kernel *attendKernel }

// fusedSize is the greatest head size of MLX's own kernels.
const fusedSize = 128

// Attender makes one for heads of up to the given size.
func (st *Store) Attender(size int) *Attender {
	if size <= fusedSize {
		return nil
	}
	return &Attender{kernel: newAttendKernel(st)}
}

// Forward is attention of q [B, heads, L, d] over rows, as [B, L, heads·d].
func (a *Attender) Forward(s *mlxc.Scope, q mlxc.Array, rows kvcache.Rows, scale float32, m kvcache.Mask) mlxc.Array {
	if s.Err() != nil {
		return mlxc.Array{}
	}
	if a != nil && a.kernel != nil && rows.Quantised == nil {
		if out, ok := a.fused(s, q, rows.Keys, rows.Values, scale, m); ok {
			return out
		}
	}
	return MergeHeads(s, Attend(s, q, rows, scale, m), q.Dim(0), q.Dim(2))
}

// fused is Forward as one kernel; not for what that has no room for or was not
// made for.
func (a *Attender) fused(s *mlxc.Scope, q, k, v mlxc.Array, scale float32, m kvcache.Mask) (mlxc.Array, bool) {
	l := attendLaunch{batch: q.Dim(0), heads: q.Dim(1), length: q.Dim(2), size: q.Dim(3), scale: scale, rows: q.DType()}
	if !l.fits(k, v, m) {
		return mlxc.Array{}, false
	}
	mask := m.Array
	if m.Mode == "" {
		mask = q // no matrix: no mask
	}
	out := a.kernel.apply(s, l, attendLaunch.describe, q, k, v, mask)
	if len(out) == 0 {
		return mlxc.Array{}, true
	}
	return out[0], true
}

// MergeHeads turns [B, heads, L, d] into [B, L, heads·d].
func MergeHeads(s *mlxc.Scope, x mlxc.Array, batch, length int) mlxc.Array {
	return s.Reshape(s.Transpose(x, 0, 2, 1, 3), batch, length, -1)
}

// Attend is scaled dot product attention of q [B, heads, L, d] over rows of
// n keys; heads is a multiple of their heads.
func Attend(s *mlxc.Scope, q mlxc.Array, rows kvcache.Rows, scale float32, m kvcache.Mask) mlxc.Array {
	if rows.Quantised != nil {
		return attendQuantised(s, q, rows.Quantised, scale, m)
	}
	return s.SDPA(q, rows.Keys, rows.Values, scale, m.Mode, m.Array, mlxc.Array{})
}

// attendQuantised multiplies with the quantised keys and values as they are.
func attendQuantised(s *mlxc.Scope, q mlxc.Array, rows *kvcache.QuantisedRows, scale float32, m kvcache.Mask) mlxc.Array {
	if s.Err() != nil {
		return mlxc.Array{}
	}
	batch, heads, length, size := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3)
	keys, values := rows.Keys, rows.Values
	kvHeads := keys.Weight.Dim(1)
	q = s.Multiply(q, s.ScalarLike(q, scale))
	grouped := heads > kvHeads
	if grouped {
		q = s.Reshape(q, batch, kvHeads, heads/kvHeads, length, size)
		keys, values = expand(s, keys), expand(s, values)
	}
	multiply := func(x mlxc.Array, w kvcache.Packed, transpose bool) mlxc.Array {
		return s.QuantizedMatmul(x, w.Weight, w.Scales, w.Biases, transpose, rows.Form.GroupSize, rows.Form.Bits, "affine")
	}
	scores := multiply(q, keys, true)
	if m.Array.Valid() {
		scores = s.Add(scores, m.Array)
	}
	out := multiply(s.Softmax(scores, -1, true), values, false)
	if grouped {
		out = s.Reshape(out, batch, heads, length, -1)
	}
	return out
}

func expand(s *mlxc.Scope, p kvcache.Packed) kvcache.Packed {
	return kvcache.Packed{
		Weight: s.ExpandDims(p.Weight, 2), Scales: s.ExpandDims(p.Scales, 2), Biases: s.ExpandDims(p.Biases, 2),
	}
}
