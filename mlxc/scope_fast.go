package mlxc

// MLX's fused operations.

// RMSNorm divides x by the root mean square of its last axis and multiplies by w, which may be none.
func (s *Scope) RMSNorm(x, w Array, eps float32) Array {
	if !s.begin() {
		return Array{}
	}
	s.frame.f[0] = floatWord(eps)
	return s.binary(&s.lib.c.mlx_fast_rms_norm, x, w)
}

// RoPE rotates the first dims elements of the last axis by positions that begin at offset. Frequencies come from
// base, or from freqs when base is 0.
func (s *Scope) RoPE(x Array, dims int, traditional bool, base, scale float32, offset int, freqs Array) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = x.ctx, uintptr(int32(dims)), boolWord(traditional), nonzero(base)
	f.a[5], f.a[6], f.a[7] = uintptr(int32(offset)), freqs.ctx, s.stream.ctx
	f.f[0] = floatWord(scale)
	return s.finish(&s.lib.c.mlx_fast_rope, x, freqs)
}

// RoPEDynamic is RoPE with offsets in an array: one, or one for each row of the batch.
func (s *Scope) RoPEDynamic(x Array, dims int, traditional bool, base, scale float32, offset, freqs Array) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = x.ctx, uintptr(int32(dims)), boolWord(traditional), nonzero(base)
	f.a[5], f.a[6], f.a[7] = offset.ctx, freqs.ctx, s.stream.ctx
	f.f[0] = floatWord(scale)
	return s.finish(&s.lib.c.mlx_fast_rope_dynamic, x, offset, freqs)
}

// SDPA is attention: softmax(scale · q kᵀ + mask) v over [batch, heads, length, width], with fewer key heads than
// query heads allowed. The mask mode is "" or "array" (mask is boolean or additive, or none) or "causal"; sinks,
// which may be none, hold one extra logit for each head.
func (s *Scope) SDPA(q, k, v Array, scale float32, maskMode string, mask, sinks Array) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = q.ctx, k.ctx, v.ctx, s.text(maskMode)
	f.a[5], f.a[6], f.a[7] = mask.ctx, sinks.ctx, s.stream.ctx
	f.f[0] = floatWord(scale)
	return s.finish(&s.lib.c.mlx_fast_scaled_dot_product_attention, q, k, v, mask, sinks)
}
