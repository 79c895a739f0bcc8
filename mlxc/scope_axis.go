package mlxc

// Operations along one axis. Negative axes count from the end.

// reduce runs an operation with an axis and a flag. Its caller has begun it.
func (s *Scope) reduce(f *function, a Array, axis int, flag bool) Array {
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, uintptr(int32(axis)), boolWord(flag)
	s.frame.a[4] = s.stream.ctx
	return s.finish(f, a)
}

// Sum returns the sum along an axis, which stays with length 1 if keepDims is set.
func (s *Scope) Sum(a Array, axis int, keepDims bool) Array {
	if !s.begin() {
		return Array{}
	}
	return s.reduce(&s.lib.c.mlx_sum_axis, a, axis, keepDims)
}

// Max returns the greatest element along an axis, which stays with length 1 if keepDims is set.
func (s *Scope) Max(a Array, axis int, keepDims bool) Array {
	if !s.begin() {
		return Array{}
	}
	return s.reduce(&s.lib.c.mlx_max_axis, a, axis, keepDims)
}

// Min returns the smallest element along an axis, which stays with length 1 if keepDims is set.
func (s *Scope) Min(a Array, axis int, keepDims bool) Array {
	if !s.begin() {
		return Array{}
	}
	return s.reduce(&s.lib.c.mlx_min_axis, a, axis, keepDims)
}

// LogSumExp returns the logarithm of the sum of exponentials along an axis, which stays with length 1 if keepDims is set.
func (s *Scope) LogSumExp(a Array, axis int, keepDims bool) Array {
	if !s.begin() {
		return Array{}
	}
	return s.reduce(&s.lib.c.mlx_logsumexp_axis, a, axis, keepDims)
}

// ArgMax returns the index (uint32) of the first greatest element along an axis, which stays with length 1 if keepDims is set.
func (s *Scope) ArgMax(a Array, axis int, keepDims bool) Array {
	if !s.begin() {
		return Array{}
	}
	return s.reduce(&s.lib.c.mlx_argmax_axis, a, axis, keepDims)
}

// Softmax returns exponentials that sum to 1 along an axis; precise computes half-precision input in float32.
func (s *Scope) Softmax(a Array, axis int, precise bool) Array {
	if !s.begin() {
		return Array{}
	}
	return s.reduce(&s.lib.c.mlx_softmax_axis, a, axis, precise)
}

// CumSum returns running sums along an axis, from the end if reverse is set, and without the element itself unless
// inclusive is.
func (s *Scope) CumSum(a Array, axis int, reverse, inclusive bool) Array {
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2] = a.ctx, uintptr(int32(axis))
	s.frame.a[3], s.frame.a[4], s.frame.a[5] = boolWord(reverse), boolWord(inclusive), s.stream.ctx
	return s.finish(&s.lib.c.mlx_cumsum, a)
}

// along runs an operation with one axis. Its caller has begun it.
func (s *Scope) along(f *function, a Array, axis int) Array {
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, uintptr(int32(axis)), s.stream.ctx
	return s.finish(f, a)
}

// Sort sorts along an axis, smallest first.
func (s *Scope) Sort(a Array, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.along(&s.lib.c.mlx_sort_axis, a, axis)
}

// Argsort returns the indices (uint32) that sort along an axis.
func (s *Scope) Argsort(a Array, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.along(&s.lib.c.mlx_argsort_axis, a, axis)
}

// alongWith runs an operation with a number and an axis. Its caller has begun it.
func (s *Scope) alongWith(f *function, a Array, n, axis int) Array {
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, uintptr(int32(n)), uintptr(int32(axis))
	s.frame.a[4] = s.stream.ctx
	return s.finish(f, a)
}

// ArgPartition returns the indices (uint32) that Partition would order by.
func (s *Scope) ArgPartition(a Array, kth, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.alongWith(&s.lib.c.mlx_argpartition_axis, a, kth, axis)
}

// TopK returns the k greatest elements along an axis, in no order.
func (s *Scope) TopK(a Array, k, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.alongWith(&s.lib.c.mlx_topk_axis, a, k, axis)
}
