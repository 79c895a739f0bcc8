package mlxc

import (
	"fmt"
	"unsafe"
)

// Eval computes the arrays and everything they depend on, and waits for it. The streams of the graph must belong to
// the calling thread.
func Eval(arrays ...Array) error {
	return eval("eval", func(s *symbols) *function { return &s.mlx_eval }, arrays)
}

// AsyncEval starts computing the arrays and returns; reading their data waits for them.
func AsyncEval(arrays ...Array) error {
	return eval("async_eval", func(s *symbols) *function { return &s.mlx_async_eval }, arrays)
}

func eval(op string, f func(*symbols) *function, arrays []Array) error {
	if len(arrays) == 0 {
		return nil
	}
	lib, err := loaded()
	if err != nil {
		return err
	}
	vector, err := lib.vector(arrays)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer lib.call(&lib.c.mlx_vector_array_free, vector)
	return lib.check(f(&lib.c), vector)
}

// vector makes a C++ vector of arrays.
func (l *library) vector(arrays []Array) (uintptr, error) {
	if len(arrays) == 0 {
		return l.create(&l.c.mlx_vector_array_new_data, 0, 0)
	}
	// Array is nothing but its address, so the slice has the layout of C's array of handles.
	return l.create(&l.c.mlx_vector_array_new_data, uintptr(unsafe.Pointer(&arrays[0])), uintptr(len(arrays)))
}

// vectorItems returns handles of a C++ vector's arrays.
func (l *library) vectorItems(vector uintptr) ([]Array, error) {
	arrays := make([]Array, l.call(&l.c.mlx_vector_array_size, vector))
	for i := range arrays {
		if err := l.check(&l.c.mlx_vector_array_get, uintptr(unsafe.Pointer(&arrays[i])), vector, uintptr(i)); err != nil {
			freeAll(arrays[:i])
			return nil, err
		}
	}
	return arrays, nil
}

func freeAll(arrays []Array) {
	for _, a := range arrays {
		a.Free()
	}
}
