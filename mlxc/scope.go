package mlxc

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"
)

// Scope builds graphs. Every array one of its operations makes belongs to the scope and is freed by Close or Reset,
// unless Keep took a handle of it. Errors stick: after the first failure every operation returns the zero Array, and
// Err tells what failed, so that formulas need one check at their end.
//
// Close a scope before evaluating what was kept: MLX reuses the buffer of an intermediate array only when no handle
// of it is left.
//
// A scope belongs to one goroutine, the one on the thread of its stream. Operations do not allocate once the scope's
// lists have grown to the size of the graph.
type Scope struct {
	lib    *library
	stream Stream
	err    error
	owned  []Array

	direct bool // call through the frame
	frame  frame
	// Memory that C reads and writes during a call; the heap-allocated scope keeps it in place.
	out     uintptr
	vec     uintptr
	scalar  [8]byte
	source  unsafe.Pointer // of a copy in progress: what it points to must not lie on a stack, which may move
	ints    [3][]int32
	list    []Array
	results []Array
	texts   map[string][]byte
}

// NewScope makes a scope whose operations run on stream.
func NewScope(stream Stream) *Scope {
	lib, err := loaded()
	if err == nil && !stream.Valid() {
		err = errors.New("new scope: the stream is not valid")
	}
	s := &Scope{lib: lib, stream: stream, err: err, texts: map[string][]byte{}}
	if lib != nil {
		s.direct = lib.direct
	}
	return s
}

// Stream returns the stream the scope's operations run on.
func (s *Scope) Stream() Stream { return s.stream }

// Err returns the first failure, nil if there was none.
func (s *Scope) Err() error { return s.err }

// Fail makes err the scope's error unless it has one.
func (s *Scope) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Close frees the scope's arrays and keeps its error.
func (s *Scope) Close() {
	for i, a := range s.owned {
		s.free(a)
		s.owned[i] = Array{}
	}
	s.owned = s.owned[:0]
	s.results = s.results[:0]
}

// Reset frees the scope's arrays and forgets its error, so that it can be used again.
func (s *Scope) Reset() {
	s.Close()
	if s.lib != nil && s.stream.Valid() {
		s.err = nil
	}
}

// Keep returns a handle of a that the caller must free, none after an error.
func (s *Scope) Keep(a Array) Array {
	if s.err != nil {
		return Array{}
	}
	if !a.Valid() {
		s.Fail(errors.New("keep: there is no array"))
		return Array{}
	}
	s.out = 0
	s.frame.a[0], s.frame.a[1] = s.outWord(), a.ctx
	if s.failed(&s.lib.c.mlx_array_set) {
		s.fail("keep", a)
		return Array{}
	}
	return Array{s.out}
}

// Own hands the caller's handle to the scope, which frees it.
func (s *Scope) Own(a Array) Array {
	if a.Valid() {
		s.owned = append(s.owned, a)
	}
	return a
}

// Release frees one of the scope's arrays before the rest. Arrays that are not the scope's are left alone.
func (s *Scope) Release(a Array) {
	for i := len(s.owned) - 1; i >= 0 && a.Valid(); i-- {
		if s.owned[i] == a {
			s.free(a)
			s.owned = append(s.owned[:i], s.owned[i+1:]...)
			return
		}
	}
}

func (s *Scope) free(a Array) {
	s.frame.a[0] = a.ctx
	s.call(&s.lib.c.mlx_array_free)
}

// call runs a function with the arguments that lie in the frame.
func (s *Scope) call(f *function) uintptr {
	if s.direct {
		return s.frame.call(f.addr)
	}
	return s.callSlowly(f)
}

// callSlowly makes the same call without relying on the frame's layout. Surplus arguments are harmless in C.
func (s *Scope) callSlowly(f *function) uintptr {
	a := &s.frame.a
	if f.mixed == nil {
		return s.lib.call(f, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12])
	}
	float := func(i int) float64 { return math.Float64frombits(uint64(s.frame.f[i])) }
	return f.mixed(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], float(0), float(1), float(2))
}

// failed runs a function that returns zero on success.
func (s *Scope) failed(f *function) bool { return s.lib.missing(f) || int32(s.call(f)) != 0 }

func (s *Scope) outWord() uintptr { return uintptr(unsafe.Pointer(&s.out)) }

// begin points the first argument at an empty result; it tells whether there is anything to do.
func (s *Scope) begin() bool {
	if s.err != nil {
		return false
	}
	s.out = 0
	s.frame.a[0] = s.outWord()
	return true
}

// finish runs an operation whose arguments lie in the frame and takes over its result. The operands are for the
// error text.
func (s *Scope) finish(f *function, operands ...Array) Array {
	if s.failed(f) {
		s.fail(f.name, operands...)
		return Array{}
	}
	return s.Own(Array{s.out})
}

// fail records that an operation failed, with MLX's reason and what it was given.
func (s *Scope) fail(op string, operands ...Array) {
	s.Fail(&Error{Op: describe(op, operands), Message: s.lib.messages.take()})
}

func describe(op string, operands []Array) string {
	var text strings.Builder
	text.WriteString(op)
	for i, a := range operands {
		if i > 0 {
			text.WriteString(" ×")
		}
		text.WriteString(" " + a.String())
	}
	return text.String()
}

// intList copies integers to where C can read them: list which of three. It returns address and length.
func (s *Scope) intList(which int, values []int) (address, n uintptr) {
	list := s.ints[which][:0]
	for _, v := range values {
		if v != int(int32(v)) {
			s.Fail(fmt.Errorf("%d does not fit MLX's 32-bit dimensions and axes", v))
			v = 0
		}
		list = append(list, int32(v))
	}
	if cap(list) == 0 {
		list = make([]int32, 0, 8) // C wants an address even for no integers
	}
	s.ints[which] = list
	return uintptr(unsafe.Pointer(unsafe.SliceData(list))), uintptr(len(values))
}

// element is an element type as an argument of an operation.
func (s *Scope) element(op string, dt DType) uintptr {
	w, err := dt.word()
	if err != nil {
		s.Fail(fmt.Errorf("%s: %w", op, err))
	}
	return w
}

// text returns the address of a NUL-terminated copy that lives as long as the scope.
func (s *Scope) text(value string) uintptr {
	t, ok := s.texts[value]
	if !ok {
		t = cString(value)
		s.texts[strings.Clone(value)] = t
	}
	return uintptr(unsafe.Pointer(&t[0]))
}

// vector makes a C++ vector of arrays; 0 means failure, which is recorded.
func (s *Scope) vector(op string, arrays []Array) uintptr {
	s.list = append(s.list[:0], arrays...)
	s.frame.a[0], s.frame.a[1] = uintptr(unsafe.Pointer(unsafe.SliceData(s.list))), uintptr(len(s.list))
	v := s.call(&s.lib.c.mlx_vector_array_new_data)
	if v == 0 {
		s.fail(op, arrays...)
	}
	return v
}

func (s *Scope) freeVector(vector uintptr) {
	s.frame.a[0] = vector
	s.call(&s.lib.c.mlx_vector_array_free)
}

// beginVector points the first argument at an empty vector for the result.
func (s *Scope) beginVector() bool {
	if s.err != nil {
		return false
	}
	s.vec = 0
	s.frame.a[0] = uintptr(unsafe.Pointer(&s.vec))
	return true
}

// finishVector is finish for operations with several results. The slice is the scope's: it is good until Close.
func (s *Scope) finishVector(f *function, operands ...Array) []Array {
	if s.failed(f) {
		s.fail(f.name, operands...)
		return nil
	}
	return s.takeVector(s.vec)
}

// takeVector takes over the arrays of a C++ vector and frees it.
func (s *Scope) takeVector(vector uintptr) []Array {
	defer s.freeVector(vector)
	s.frame.a[0] = vector
	n := int(s.call(&s.lib.c.mlx_vector_array_size))
	first := len(s.results)
	for i := range n {
		s.begin()
		s.frame.a[1], s.frame.a[2] = vector, uintptr(i)
		s.results = append(s.results, s.finish(&s.lib.c.mlx_vector_array_get))
		if s.err != nil {
			return nil
		}
	}
	return s.results[first:len(s.results):len(s.results)]
}
