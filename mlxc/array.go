package mlxc

import (
	"strconv"
	"unsafe"
)

// Array is a handle of an MLX array, a node of a graph that may not have been evaluated yet. The zero value is "none",
// which optional arguments take. A handle is released by Free, or by the Scope that owns it.
type Array struct {
	// The address of the C++ object. It is memory of C, so the garbage collector need not see it.
	ctx uintptr
}

// Valid tells whether a is an array rather than "none".
func (a Array) Valid() bool { return a.ctx != 0 }

// Ptr returns the address of the C++ object behind the handle, 0 for none.
func (a Array) Ptr() uintptr { return a.ctx }

// ArrayAt returns a handle of our own for the C++ mlx::core::array that lives at an address and belongs to another.
func ArrayAt(address uintptr) Array { return Array{address}.Clone() }

// SetArrayAt assigns src to the C++ mlx::core::array that lives at an address and belongs to another.
func SetArrayAt(address uintptr, src Array) error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	target := Array{address}
	return lib.check(&lib.c.mlx_array_set, uintptr(unsafe.Pointer(&target)), src.ctx)
}

// ForgetArrayAt assigns a zero to the C++ mlx::core::array at an address, so that what it was need not stay in memory.
func ForgetArrayAt(address uintptr) error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	var zero int32 // its address also stands for the shape of a scalar, which has no lengths to read
	handle, err := lib.create(&lib.c.mlx_array_new_data,
		uintptr(unsafe.Pointer(&zero)), uintptr(unsafe.Pointer(&zero)), 0, uintptr(Int32))
	if err != nil {
		return err
	}
	a := Array{handle}
	defer a.Free()
	return SetArrayAt(address, a)
}

// Clone returns a second handle of the same array, or none if there is none.
func (a Array) Clone() Array {
	lib := current.lib.Load()
	if lib == nil || a.ctx == 0 {
		return Array{}
	}
	return Array{lib.copyHandle(&lib.c.mlx_array_set, a.ctx)}
}

// Free releases the handle. The array itself goes with its last handle and user.
func (a Array) Free() {
	if lib := current.lib.Load(); lib != nil && a.ctx != 0 {
		lib.ask(&lib.c.mlx_array_free, a.ctx, 0)
	}
}

// NDim returns the number of dimensions.
func (a Array) NDim() int {
	lib := current.lib.Load()
	if lib == nil || a.ctx == 0 {
		return 0
	}
	return int(lib.ask(&lib.c.mlx_array_ndim, a.ctx, 0))
}

// Dim returns the length along one axis; negative axes count from the end. Axes that do not exist have length 0.
func (a Array) Dim(axis int) int {
	lib := current.lib.Load()
	if lib == nil || a.ctx == 0 {
		return 0
	}
	return int(int32(lib.ask(&lib.c.mlx_array_dim, a.ctx, uintptr(int32(axis)))))
}

// Shape returns the lengths along all axes.
func (a Array) Shape() []int {
	dims := a.dims()
	shape := make([]int, len(dims))
	for i, d := range dims {
		shape[i] = int(d)
	}
	return shape
}

// dims is the shape in MLX's own memory, valid while the handle is.
func (a Array) dims() []int32 {
	n := a.NDim()
	if n == 0 {
		return nil
	}
	lib := current.lib.Load()
	return unsafe.Slice((*int32)(pointer(lib.ask(&lib.c.mlx_array_shape, a.ctx, 0))), n)
}

// DType returns the element type.
func (a Array) DType() DType {
	lib := current.lib.Load()
	if lib == nil || a.ctx == 0 {
		return AnyDType
	}
	return DType(int32(lib.ask(&lib.c.mlx_array_dtype, a.ctx, 0)))
}

// Size returns the number of elements.
func (a Array) Size() int {
	lib := current.lib.Load()
	if lib == nil || a.ctx == 0 {
		return 0
	}
	return int(lib.ask(&lib.c.mlx_array_size, a.ctx, 0))
}

// NBytes returns the bytes of the elements.
func (a Array) NBytes() int {
	lib := current.lib.Load()
	if lib == nil || a.ctx == 0 {
		return 0
	}
	return int(lib.ask(&lib.c.mlx_array_nbytes, a.ctx, 0))
}

// String describes the array by shape and type, as in "[2,3] float32", without evaluating it.
func (a Array) String() string {
	if !a.Valid() {
		return "none"
	}
	text := []byte{'['}
	for i, d := range a.dims() {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(d), 10)
	}
	return string(append(text, "] "...)) + a.DType().String()
}
