package mlxc

// Operations that change an array's shape. Negative axes count from the end.

// shaped runs an operation with a list of integers. Its caller has checked for errors.
func (s *Scope) shaped(f *function, a Array, ints []int) Array {
	address, n := s.intList(0, ints)
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3], s.frame.a[4] = a.ctx, address, n, s.stream.ctx
	return s.finish(f, a)
}

// Reshape gives the elements another shape; one dimension may be -1, which is then inferred.
func (s *Scope) Reshape(a Array, dims ...int) Array {
	if s.err != nil {
		return Array{}
	}
	return s.shaped(&s.lib.c.mlx_reshape, a, dims)
}

// BroadcastTo repeats axes of length 1, and new ones in front, to reach a shape.
func (s *Scope) BroadcastTo(a Array, dims ...int) Array {
	if s.err != nil {
		return Array{}
	}
	return s.shaped(&s.lib.c.mlx_broadcast_to, a, dims)
}

// Transpose orders the axes anew; without any it reverses them.
func (s *Scope) Transpose(a Array, axes ...int) Array {
	if s.err != nil {
		return Array{}
	}
	if len(axes) == 0 {
		s.begin()
		return s.unary(&s.lib.c.mlx_transpose, a)
	}
	return s.shaped(&s.lib.c.mlx_transpose_axes, a, axes)
}

// ExpandDims inserts axes of length 1 where the result is to have them.
func (s *Scope) ExpandDims(a Array, axes ...int) Array {
	if s.err != nil {
		return Array{}
	}
	return s.shaped(&s.lib.c.mlx_expand_dims_axes, a, axes)
}

// Squeeze removes axes of length 1; without any given it removes all of them.
func (s *Scope) Squeeze(a Array, axes ...int) Array {
	if s.err != nil {
		return Array{}
	}
	if len(axes) == 0 {
		s.begin()
		return s.unary(&s.lib.c.mlx_squeeze, a)
	}
	return s.shaped(&s.lib.c.mlx_squeeze_axes, a, axes)
}

// SwapAxes exchanges two axes.
func (s *Scope) SwapAxes(a Array, axis1, axis2 int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.alongWith(&s.lib.c.mlx_swapaxes, a, axis1, axis2)
}

// MoveAxis moves one axis to another place.
func (s *Scope) MoveAxis(a Array, source, destination int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.alongWith(&s.lib.c.mlx_moveaxis, a, source, destination)
}

// Flatten joins the axes from start to end, both included.
func (s *Scope) Flatten(a Array, start, end int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.alongWith(&s.lib.c.mlx_flatten, a, start, end)
}

// Unflatten splits one axis into several; one of them may be -1, which is then inferred.
func (s *Scope) Unflatten(a Array, axis int, dims ...int) Array {
	address, n := s.intList(0, dims)
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, uintptr(int32(axis)), address
	s.frame.a[4], s.frame.a[5] = n, s.stream.ctx
	return s.finish(&s.lib.c.mlx_unflatten, a)
}

// Repeat repeats each element n times along an axis.
func (s *Scope) Repeat(a Array, n, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.alongWith(&s.lib.c.mlx_repeat_axis, a, n, axis)
}

// Contiguous returns the array with its elements in row-major order.
func (s *Scope) Contiguous(a Array) Array {
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, 0, s.stream.ctx
	return s.finish(&s.lib.c.mlx_contiguous, a)
}

// joined runs an operation on a list of arrays.
func (s *Scope) joined(f *function, axis int, arrays []Array) Array {
	vector := s.vector(f.name, arrays)
	if vector == 0 {
		return Array{}
	}
	s.begin()
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = vector, uintptr(int32(axis)), s.stream.ctx
	out := s.finish(f, arrays...)
	s.freeVector(vector)
	return out
}

// Concatenate joins arrays along an axis they have.
func (s *Scope) Concatenate(axis int, arrays ...Array) Array {
	if s.err != nil {
		return Array{}
	}
	return s.joined(&s.lib.c.mlx_concatenate_axis, axis, arrays)
}

// Stack joins arrays of one shape along a new axis.
func (s *Scope) Stack(axis int, arrays ...Array) Array {
	if s.err != nil {
		return Array{}
	}
	return s.joined(&s.lib.c.mlx_stack_axis, axis, arrays)
}

// Split cuts an axis into equal parts. The slice is good until the scope is closed.
func (s *Scope) Split(a Array, parts, axis int) []Array {
	if !s.beginVector() {
		return nil
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, uintptr(int32(parts)), uintptr(int32(axis))
	s.frame.a[4] = s.stream.ctx
	return s.finishVector(&s.lib.c.mlx_split, a)
}

// SplitAt cuts an axis before the given indices. The slice is good until the scope is closed.
func (s *Scope) SplitAt(a Array, axis int, at ...int) []Array {
	address, n := s.intList(0, at)
	if !s.beginVector() {
		return nil
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, address, n
	s.frame.a[4], s.frame.a[5] = uintptr(int32(axis)), s.stream.ctx
	return s.finishVector(&s.lib.c.mlx_split_sections, a)
}

// Pad adds low elements before and high after along each of the axes, all of them value.
func (s *Scope) Pad(a Array, axes, low, high []int, value Array) Array {
	axesAt, axesN := s.intList(0, axes)
	lowAt, lowN := s.intList(1, low)
	highAt, highN := s.intList(2, high)
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4], f.a[5] = a.ctx, axesAt, axesN, lowAt, lowN
	f.a[6], f.a[7], f.a[8], f.a[9], f.a[10] = highAt, highN, value.ctx, s.text("constant"), s.stream.ctx
	return s.finish(&s.lib.c.mlx_pad, a, value)
}
