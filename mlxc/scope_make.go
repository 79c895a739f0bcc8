package mlxc

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// Operations that make arrays out of numbers.

// Arange returns start, start+step, … below stop.
func (s *Scope) Arange(start, stop, step float64, dt DType) Array {
	element := s.element("arange", dt)
	if !s.begin() {
		return Array{}
	}
	s.frame.f[0], s.frame.f[1], s.frame.f[2] = floatBits(start), floatBits(stop), floatBits(step)
	s.frame.a[1], s.frame.a[2] = element, s.stream.ctx
	return s.finish(&s.lib.c.mlx_arange)
}

// filled runs an operation with a shape and a type.
func (s *Scope) filled(f *function, dt DType, dims []int) Array {
	address, n := s.intList(0, dims)
	element := s.element(f.name, dt)
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3], s.frame.a[4] = address, n, element, s.stream.ctx
	return s.finish(f)
}

// Zeros returns an array of zeros.
func (s *Scope) Zeros(dt DType, dims ...int) Array {
	if s.err != nil {
		return Array{}
	}
	return s.filled(&s.lib.c.mlx_zeros, dt, dims)
}

// Ones returns an array of ones.
func (s *Scope) Ones(dt DType, dims ...int) Array {
	if s.err != nil {
		return Array{}
	}
	return s.filled(&s.lib.c.mlx_ones, dt, dims)
}

// Full returns an array of one value.
func (s *Scope) Full(dt DType, value float32, dims ...int) Array {
	scalar := s.Scalar(value, dt)
	address, n := s.intList(0, dims)
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = address, n, scalar.ctx
	s.frame.a[4], s.frame.a[5] = uintptr(dt), s.stream.ctx
	return s.finish(&s.lib.c.mlx_full, scalar)
}

// Scalar returns a value without dimensions, rounded to the type.
func (s *Scope) Scalar(v float32, dt DType) Array {
	if s.err != nil {
		return Array{}
	}
	bits := s.scalar[:]
	switch dt {
	case Float32:
		binary.NativeEndian.PutUint32(bits, math.Float32bits(v))
	case Float16:
		binary.NativeEndian.PutUint16(bits, float16Bits(v))
	case BFloat16:
		binary.NativeEndian.PutUint16(bits, bfloat16Bits(v))
	case Float64:
		binary.NativeEndian.PutUint64(bits, math.Float64bits(float64(v)))
	case Complex64:
		binary.NativeEndian.PutUint32(bits, math.Float32bits(v))
		binary.NativeEndian.PutUint32(bits[4:], 0)
	case Bool:
		bits[0] = byte(boolWord(v != 0))
	default:
		return s.ScalarInt(int(v), dt)
	}
	return s.fromMemory(unsafe.Pointer(&s.scalar), dt, nil)
}

// ScalarLike returns a value without dimensions in another array's type.
func (s *Scope) ScalarLike(a Array, v float32) Array {
	return s.Scalar(v, s.dtype(a))
}

// ScalarInt returns an integer without dimensions; what the type cannot hold is cut off.
func (s *Scope) ScalarInt(v int, dt DType) Array {
	if s.err != nil {
		return Array{}
	}
	bits := s.scalar[:]
	switch dt {
	case Int8, Uint8:
		bits[0] = byte(v)
	case Int16, Uint16:
		binary.NativeEndian.PutUint16(bits, uint16(v))
	case Int32, Uint32:
		binary.NativeEndian.PutUint32(bits, uint32(v))
	case Int64, Uint64:
		binary.NativeEndian.PutUint64(bits, uint64(v))
	case Bool, Float16, Float32, Float64, BFloat16, Complex64:
		return s.Scalar(float32(v), dt)
	default:
		s.element("scalar", dt)
		return Array{}
	}
	return s.fromMemory(unsafe.Pointer(&s.scalar), dt, nil)
}

// dtype is DType through the frame.
func (s *Scope) dtype(a Array) DType {
	if s.err != nil || !a.Valid() {
		return AnyDType
	}
	s.frame.a[0] = a.ctx
	return DType(int32(s.call(&s.lib.c.mlx_array_dtype)))
}

// FromInt32s copies integers into an array; without dims it has one axis.
func (s *Scope) FromInt32s(data []int32, dims ...int) Array { return fromSlice(s, data, Int32, dims) }

// FromUint32s copies integers into an array; without dims it has one axis.
func (s *Scope) FromUint32s(data []uint32, dims ...int) Array {
	return fromSlice(s, data, Uint32, dims)
}

// FromFloat32s copies floats into an array; without dims it has one axis.
func (s *Scope) FromFloat32s(data []float32, dims ...int) Array {
	return fromSlice(s, data, Float32, dims)
}

// FromBools copies truth values into an array; without dims it has one axis.
func (s *Scope) FromBools(data []bool, dims ...int) Array { return fromSlice(s, data, Bool, dims) }

// FromBytes copies elements of any type, as they lie in memory, into an array; without dims it has one axis.
func (s *Scope) FromBytes(data []byte, dt DType, dims ...int) Array {
	if s.err == nil && (dt.Size() == 0 || len(data)%dt.Size() != 0) {
		s.Fail(fmt.Errorf("from bytes: %d bytes are no whole number of %s", len(data), dt))
	}
	return fromSlice(s, data, dt, dims)
}

func fromSlice[T any](s *Scope, data []T, dt DType, dims []int) Array {
	if s.err != nil {
		return Array{}
	}
	var one T
	have := len(data) * int(unsafe.Sizeof(one)) / dt.Size()
	if len(dims) == 0 {
		return s.fromMemory(unsafe.Pointer(unsafe.SliceData(data)), dt, []int{have})
	}
	want := 1
	for _, d := range dims {
		want *= d
	}
	if have != want {
		s.Fail(fmt.Errorf("make an array of shape %v from %d elements of %s", append([]int(nil), dims...), have, dt))
		return Array{}
	}
	return s.fromMemory(unsafe.Pointer(unsafe.SliceData(data)), dt, dims)
}

// fromMemory copies elements into an array; no dims means no dimensions.
func (s *Scope) fromMemory(data unsafe.Pointer, dt DType, dims []int) Array {
	address, n := s.intList(0, dims)
	if s.err != nil {
		return Array{}
	}
	f := &s.lib.c.mlx_array_new_data
	s.source = data
	s.frame.a[0], s.frame.a[1], s.frame.a[2], s.frame.a[3] = uintptr(data), address, n, uintptr(dt)
	a := Array{s.call(f)}
	s.source = nil
	if !a.Valid() {
		s.fail(f.name)
	}
	return s.Own(a)
}
