package mlxc

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Traced is a function of arrays to be compiled. It is called on the goroutine of Call, whenever MLX has not seen the
// inputs' shapes and types before, with placeholders instead of data; the scope is its own and is closed for it.
type Traced func(s *Scope, in []Array) []Array

// Function is a compiled function.
type Function struct {
	closure uintptr
	id      uintptr
	body    Traced

	// What Call and the trace inside it tell each other.
	stream Stream
	err    error
}

// tracedFunctions finds the Go function behind a C callback. The callbacks of purego are never released, so there is
// one for all functions, which tells them apart by the payload that C hands back.
type tracedFunctions struct {
	mu       sync.Mutex
	byID     map[uintptr]*Function
	lastID   uintptr
	callback uintptr
}

func (t *tracedFunctions) install(lib *library) {
	t.byID = map[uintptr]*Function{}
	t.callback = purego.NewCallback(func(result *uintptr, inputs, id uintptr) uintptr {
		return t.trace(lib, result, inputs, id)
	})
}

func (t *tracedFunctions) add(f *Function) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastID++
	f.id = t.lastID
	t.byID[f.id] = f
}

func (t *tracedFunctions) remove(id uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}

// trace is called by C. A nonzero result tells it that the function failed.
func (t *tracedFunctions) trace(lib *library, result *uintptr, inputs, id uintptr) uintptr {
	t.mu.Lock()
	f := t.byID[id]
	t.mu.Unlock()
	if f == nil {
		return 1
	}
	if f.err = f.trace(lib, result, inputs); f.err != nil {
		return 1
	}
	return 0
}

func (f *Function) trace(lib *library, result *uintptr, inputs uintptr) (err error) {
	defer func() {
		// A panic must not unwind through C.
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a traced function: %v", p)
		}
	}()
	in, err := lib.vectorItems(inputs)
	if err != nil {
		return err
	}
	s := NewScope(f.stream)
	defer s.Close()
	for _, a := range in {
		s.Own(a)
	}
	out := f.body(s, in)
	if s.Err() != nil {
		return s.Err()
	}
	if len(out) == 0 {
		return errors.New("a traced function returned no arrays")
	}
	return lib.check(&lib.c.mlx_vector_array_set_data,
		uintptr(unsafe.Pointer(result)), uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)))
}

// Compile makes a function that MLX traces once for every combination of input shapes and types, simplifies and
// fuses; a shapeless one is traced once for every combination of types. Free it on the thread that calls it.
func Compile(body Traced, shapeless bool) (*Function, error) {
	lib, err := loaded()
	if err != nil {
		return nil, err
	}
	f := &Function{body: body}
	lib.traced.add(f)
	plain, err := lib.create(&lib.c.mlx_closure_new_func_payload, lib.traced.callback, f.id, 0)
	if err != nil {
		lib.traced.remove(f.id)
		return nil, err
	}
	defer lib.call(&lib.c.mlx_closure_free, plain)
	err = lib.check(&lib.c.mlx_compile, uintptr(unsafe.Pointer(&f.closure)), plain, boolWord(shapeless))
	if err != nil {
		lib.traced.remove(f.id)
		return nil, err
	}
	return f, nil
}

// Free releases the function.
func (f *Function) Free() {
	lib := current.lib.Load()
	if lib == nil || f.closure == 0 {
		return
	}
	lib.call(&lib.c.mlx_closure_free, f.closure)
	lib.traced.remove(f.id)
	f.closure = 0
}

// Call applies a compiled function. The slice is good until the scope is closed.
func (s *Scope) Call(f *Function, in ...Array) []Array {
	if s.err != nil {
		return nil
	}
	if f.closure == 0 {
		s.Fail(errors.New("call: the compiled function was freed"))
		return nil
	}
	vector := s.vector("call", in)
	if vector == 0 {
		return nil
	}
	s.beginVector()
	s.frame.a[1], s.frame.a[2] = f.closure, vector
	f.stream, f.err = s.stream, nil
	failed := s.failed(&s.lib.c.mlx_closure_apply)
	switch {
	case f.err != nil:
		s.Fail(fmt.Errorf("%s: %w", describe("trace", in), f.err))
	case failed:
		s.fail("call", in...)
	}
	result := s.vec
	s.freeVector(vector)
	if s.err != nil {
		return nil
	}
	return s.takeVector(result)
}

// EnableCompile turns compilation on or off; off, compiled functions run as they are.
func EnableCompile(on bool) error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	if on {
		return lib.check(&lib.c.mlx_enable_compile)
	}
	return lib.check(&lib.c.mlx_disable_compile)
}
