package mlxc

import "math"

// Matrix products and convolution.

// Matmul multiplies the matrices of the last two axes, broadcasting the others.
func (s *Scope) Matmul(a, b Array) Array {
	if !s.begin() {
		return Array{}
	}
	return s.binary(&s.lib.c.mlx_matmul, a, b)
}

// AddMM returns beta·c + alpha·(a @ b).
func (s *Scope) AddMM(c, a, b Array, alpha, beta float32) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = c.ctx, a.ctx, b.ctx, s.stream.ctx
	f.f[0], f.f[1] = floatWord(alpha), floatWord(beta)
	return s.finish(&s.lib.c.mlx_addmm, c, a, b)
}

// GatherMM multiplies the matrices of a and b that the indices (either may be none) pick from the leading axes;
// sorted promises that rhsIndices rise.
func (s *Scope) GatherMM(a, b, lhsIndices, rhsIndices Array, sorted bool) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = a.ctx, b.ctx, lhsIndices.ctx, rhsIndices.ctx
	f.a[5], f.a[6] = boolWord(sorted), s.stream.ctx
	return s.finish(&s.lib.c.mlx_gather_mm, a, b, lhsIndices, rhsIndices)
}

// positive is an optional integer that is there when it is not 0.
func positive(v int) uintptr { return optional(uint32(int32(v)), v != 0) }

// Quantize packs the last axis of w: it returns the packed uint32 matrix, the scales and, in the affine mode, the
// biases. A group size or bits of 0 means the mode's own. The slice is good until the scope is closed.
func (s *Scope) Quantize(w Array, groupSize, bits int, mode string) []Array {
	if !s.beginVector() {
		return nil
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = w.ctx, positive(groupSize), positive(bits), s.text(mode)
	f.a[5], f.a[6] = 0, s.stream.ctx
	return s.finishVector(&s.lib.c.mlx_quantize, w)
}

// Dequantize unpacks what Quantize packed; biases may be none, and dt AnyDType for the scales' own type.
func (s *Scope) Dequantize(w, scales, biases Array, groupSize, bits int, mode string, dt DType) Array {
	var element uintptr
	if dt != AnyDType {
		element = s.element("dequantize", dt)
	}
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = w.ctx, scales.ctx, biases.ctx, positive(groupSize)
	f.a[5], f.a[6], f.a[7] = positive(bits), s.text(mode), 0
	f.a[8], f.a[9] = optional(uint32(element), dt != AnyDType), s.stream.ctx
	return s.finish(&s.lib.c.mlx_dequantize, w, scales, biases)
}

// QuantizedMatmul multiplies x by a packed matrix, transposed if transpose is set; biases may be none.
func (s *Scope) QuantizedMatmul(
	x, w, scales, biases Array, transpose bool, groupSize, bits int, mode string,
) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4], f.a[5] = x.ctx, w.ctx, scales.ctx, biases.ctx, boolWord(transpose)
	f.a[6], f.a[7], f.a[8], f.a[9] = positive(groupSize), positive(bits), s.text(mode), s.stream.ctx
	return s.finish(&s.lib.c.mlx_quantized_matmul, x, w, scales, biases)
}

// GatherQMM is GatherMM with packed matrices, as in QuantizedMatmul.
func (s *Scope) GatherQMM(
	x, w, scales, biases, lhsIndices, rhsIndices Array, transpose bool, groupSize, bits int, mode string, sorted bool,
) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4], f.a[5] = x.ctx, w.ctx, scales.ctx, biases.ctx, lhsIndices.ctx
	f.a[6], f.a[7], f.a[8], f.a[9] = rhsIndices.ctx, boolWord(transpose), positive(groupSize), positive(bits)
	f.a[10], f.a[11], f.a[12] = s.text(mode), boolWord(sorted), s.stream.ctx
	return s.finish(&s.lib.c.mlx_gather_qmm, x, w, scales, biases, lhsIndices, rhsIndices)
}

// Conv1d convolves x [batch, length, channels] with w [out, width, channels/groups].
func (s *Scope) Conv1d(x, w Array, stride, padding, dilation, groups int) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = x.ctx, w.ctx, uintptr(int32(stride)), uintptr(int32(padding))
	f.a[5], f.a[6], f.a[7] = uintptr(int32(dilation)), uintptr(int32(groups)), s.stream.ctx
	return s.finish(&s.lib.c.mlx_conv1d, x, w)
}

// nonzero is an optional float that is there when it is not 0.
func nonzero(v float32) uintptr { return optional(math.Float32bits(v), v != 0) }
