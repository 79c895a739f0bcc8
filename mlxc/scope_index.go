package mlxc

import (
	"fmt"
	"unsafe"
)

// Operations that read or write parts of an array.

// unitStrides returns strides of one for n axes, in the third integer list.
func (s *Scope) unitStrides(n int) (address, count uintptr) {
	address, _ = s.intList(2, nil)
	for range n {
		s.ints[2] = append(s.ints[2], 1)
	}
	if n > 0 {
		address = uintptr(unsafe.Pointer(unsafe.SliceData(s.ints[2])))
	}
	return address, uintptr(n)
}

// Slice returns the elements from start up to stop along every axis. Negative bounds count from the end.
func (s *Scope) Slice(a Array, start, stop []int) Array {
	return s.slice(a, start, stop, nil)
}

// SliceStrided returns every strides-th element from start up to stop along every axis.
func (s *Scope) SliceStrided(a Array, start, stop, strides []int) Array {
	if s.err == nil && len(strides) != len(start) {
		s.Fail(fmt.Errorf("slice %s: %d strides for %d axes", a, len(strides), len(start)))
	}
	return s.slice(a, start, stop, strides)
}

func (s *Scope) slice(a Array, start, stop, strides []int) Array {
	startAt, startN := s.intList(0, start)
	stopAt, stopN := s.intList(1, stop)
	var stridesAt, stridesN uintptr
	if strides == nil {
		stridesAt, stridesN = s.unitStrides(len(start))
	} else {
		stridesAt, stridesN = s.intList(2, strides)
	}
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = a.ctx, startAt, startN, stopAt
	f.a[5], f.a[6], f.a[7], f.a[8] = stopN, stridesAt, stridesN, s.stream.ctx
	return s.finish(&s.lib.c.mlx_slice, a)
}

// SliceUpdate returns a with the elements from start up to stop replaced by update, which is broadcast.
func (s *Scope) SliceUpdate(a, update Array, start, stop []int) Array {
	startAt, startN := s.intList(0, start)
	stopAt, stopN := s.intList(1, stop)
	stridesAt, stridesN := s.unitStrides(len(start))
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4], f.a[5] = a.ctx, update.ctx, startAt, startN, stopAt
	f.a[6], f.a[7], f.a[8], f.a[9] = stopN, stridesAt, stridesN, s.stream.ctx
	return s.finish(&s.lib.c.mlx_slice_update, a, update)
}

// indexed runs an operation with an array of indices along an axis. Its caller has begun it.
func (s *Scope) indexed(f *function, a, indices Array, axis int) Array {
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, indices.ctx, uintptr(int32(axis))
	s.frame.a[4] = s.stream.ctx
	return s.finish(f, a, indices)
}

// Take returns the slices of a at the indices along an axis, which the indices' shape replaces.
func (s *Scope) Take(a, indices Array, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.indexed(&s.lib.c.mlx_take_axis, a, indices, axis)
}

// TakeAlongAxis returns for each position of indices the element that lies at that index along the axis.
func (s *Scope) TakeAlongAxis(a, indices Array, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.indexed(&s.lib.c.mlx_take_along_axis, a, indices, axis)
}

// scattered runs an operation that writes values at indices along an axis. Its caller has begun it.
func (s *Scope) scattered(f *function, a, indices, values Array, axis int) Array {
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = a.ctx, indices.ctx, values.ctx
	s.frame.a[4], s.frame.a[5] = uintptr(int32(axis)), s.stream.ctx
	return s.finish(f, a, indices, values)
}

// PutAlongAxis returns a with values written at the indices along an axis.
func (s *Scope) PutAlongAxis(a, indices, values Array, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.scattered(&s.lib.c.mlx_put_along_axis, a, indices, values, axis)
}

// ScatterAdd returns a with values added at the indices along an axis; repeated indices add up.
func (s *Scope) ScatterAdd(a, indices, values Array, axis int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.scattered(&s.lib.c.mlx_scatter_add_axis, a, indices, values, axis)
}
