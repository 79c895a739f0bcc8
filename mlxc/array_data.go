package mlxc

import (
	"fmt"
	"unsafe"
)

// DataPtr returns the address of the first element, nil if a could not be evaluated. It stays valid while the array
// lives and nothing writes to its buffer.
func (a Array) DataPtr() unsafe.Pointer {
	p, err := a.data()
	if err != nil {
		return nil
	}
	return p
}

// data evaluates the array, if that has not been done, since reading it otherwise crashes.
func (a Array) data() (unsafe.Pointer, error) {
	lib, err := loaded()
	if err != nil {
		return nil, err
	}
	if err := lib.check(&lib.c.mlx_array_eval, a.ctx); err != nil {
		return nil, err
	}
	p, err := lib.create(&lib.c.mlx_array_data_uint8, a.ctx)
	return pointer(p), err
}

// Float32s copies out the elements of a float32 array in row-major order.
func (a Array) Float32s() ([]float32, error) { return elements[float32](a, Float32) }

// Int32s copies out the elements of an int32 array in row-major order.
func (a Array) Int32s() ([]int32, error) { return elements[int32](a, Int32) }

// Int64s copies out the elements of an int64 array in row-major order.
func (a Array) Int64s() ([]int64, error) { return elements[int64](a, Int64) }

// Uint32s copies out the elements of a uint32 array in row-major order.
func (a Array) Uint32s() ([]uint32, error) { return elements[uint32](a, Uint32) }

// Uint8s copies out the elements of a uint8 array in row-major order.
func (a Array) Uint8s() ([]uint8, error) { return elements[uint8](a, Uint8) }

// Bools copies out the elements of a bool array in row-major order.
func (a Array) Bools() ([]bool, error) { return elements[bool](a, Bool) }

// Bytes copies out the elements of an array of any type in row-major order, as they lie in memory.
func (a Array) Bytes() ([]byte, error) {
	var out []byte
	var err error
	switch size := a.DType().Size(); size {
	case 1:
		out, err = elements[uint8](a, a.DType())
	case 2:
		out, err = bytesOf(elements[uint16](a, a.DType()))
	case 4:
		out, err = bytesOf(elements[uint32](a, a.DType()))
	case 8:
		out, err = bytesOf(elements[uint64](a, a.DType()))
	default:
		err = fmt.Errorf("read %s: no such array", a)
	}
	return out, err
}

// AsFloat32s copies out the elements of a float32, float16 or bfloat16 array, widened, in row-major order.
func (a Array) AsFloat32s() ([]float32, error) {
	widen := float16Value
	switch a.DType() {
	case Float16:
	case BFloat16:
		widen = bfloat16Value
	default:
		return a.Float32s()
	}
	halves, err := elements[uint16](a, a.DType())
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(halves))
	for i, h := range halves {
		out[i] = widen(h)
	}
	return out, nil
}

func bytesOf[T uint16 | uint32 | uint64](values []T, err error) ([]byte, error) {
	if err != nil || len(values) == 0 {
		return nil, err
	}
	var one T
	n := len(values) * int(unsafe.Sizeof(one))
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), n), nil
}

// elements copies an array's elements in row-major order, whatever order they lie in.
func elements[T any](a Array, want DType) ([]T, error) {
	if got := a.DType(); !a.Valid() || got != want {
		return nil, fmt.Errorf("read %s as %s: the types differ", a, want)
	}
	n := a.Size()
	if n == 0 {
		return nil, nil
	}
	data, err := a.data()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", a, err)
	}
	lib := current.lib.Load()
	var contiguous bool
	if err := lib.check(&lib.c._mlx_array_is_row_contiguous, uintptr(unsafe.Pointer(&contiguous)), a.ctx); err != nil {
		return nil, fmt.Errorf("read %s: %w", a, err)
	}
	out := make([]T, n)
	if contiguous {
		copy(out, unsafe.Slice((*T)(data), n))
		return out, nil
	}
	dims := a.dims()
	strides := unsafe.Slice((*int64)(pointer(lib.ask(&lib.c.mlx_array_strides, a.ctx, 0))), len(dims))
	copyStrided(out, data, dims, strides)
	return out, nil
}

// copyStrided walks the elements in row-major order like an odometer; strides are in elements and may be negative.
func copyStrided[T any](out []T, data unsafe.Pointer, dims []int32, strides []int64) {
	var one T
	index := make([]int32, len(dims))
	offset := int64(0)
	for i := range out {
		out[i] = *(*T)(unsafe.Add(data, offset*int64(unsafe.Sizeof(one))))
		for axis := len(dims) - 1; axis >= 0; axis-- {
			index[axis]++
			offset += strides[axis]
			if index[axis] < dims[axis] {
				break
			}
			offset -= int64(index[axis]) * strides[axis]
			index[axis] = 0
		}
	}
}
