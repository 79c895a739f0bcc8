package mlxc

// Arguments that are addresses of Go values are written uintptr(unsafe.Pointer(&v)) in the argument list itself: that
// form alone makes the compiler keep v alive, on the heap, for the length of a call marked uintptrescapes.

import (
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// call runs a C function that takes no floats. It is safe for concurrent use. One that the library lacks gives 0.
//
//go:uintptrescapes
func (l *library) call(f *function, args ...uintptr) uintptr {
	if l.missing(f) {
		return 0
	}
	r, _, _ := purego.SyscallN(f.addr, args...)
	return r
}

// callPair is call for functions that return a struct of two addresses, which the C ABIs in question pass in two
// integer registers.
//
//go:uintptrescapes
func (l *library) callPair(f *function, args ...uintptr) (first, second uintptr) {
	if l.missing(f) {
		return 0, 0
	}
	first, second, _ = purego.SyscallN(f.addr, args...)
	return first, second
}

// question is a call frame of its own with room for one result. It lies on the heap, see frame.call.
type question struct {
	frame frame
	out   uintptr
}

func (l *library) question() *question {
	if q, ok := l.asked.Get().(*question); ok {
		return q
	}
	return new(question)
}

// ask is call for functions of at most two arguments, neither of them an address of a Go value. It allocates nothing:
// what a model asks of its arrays' shapes would otherwise be hundreds of allocations a token.
func (l *library) ask(f *function, first, second uintptr) uintptr {
	if !l.direct {
		return l.call(f, first, second)
	}
	q := l.question()
	q.frame.a[0], q.frame.a[1] = first, second
	r := q.frame.call(f.addr)
	l.asked.Put(q)
	return r
}

// copyHandle runs a function that sets a handle to another; 0 is failure. Like ask it allocates nothing.
func (l *library) copyHandle(f *function, source uintptr) uintptr {
	q := l.question()
	q.out = 0
	out := uintptr(unsafe.Pointer(&q.out))
	if l.direct {
		q.frame.a[0], q.frame.a[1] = out, source
		q.frame.call(f.addr)
	} else {
		l.call(f, out, source)
	}
	handle := q.out
	l.asked.Put(q)
	return handle
}

// check is call for functions that return zero on success.
//
//go:uintptrescapes
func (l *library) check(f *function, args ...uintptr) error {
	// The message of a failure is filed under the thread, so the goroutine must stay on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if l.missing(f) || int32(l.call(f, args...)) != 0 {
		return l.failure(f.name)
	}
	return nil
}

// create is call for functions that return a handle, null on failure.
//
//go:uintptrescapes
func (l *library) create(f *function, args ...uintptr) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if handle := l.call(f, args...); handle != 0 {
		return handle, nil
	}
	return 0, l.failure(f.name)
}

// mixedFunc is the widest signature of a C function with floats. Integers and floats travel in registers of their
// own, so only the order within each kind matters and surplus arguments are harmless; a C float is the low half of
// its register.
type mixedFunc func(i0, i1, i2, i3, i4, i5, i6, i7, i8 uintptr, f0, f1, f2 float64) uintptr

// pointer makes a pointer into C memory of an address that C returned.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// goString copies a NUL-terminated C string.
func goString(address uintptr) string {
	if address == 0 {
		return ""
	}
	p := pointer(address)
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// cString makes a NUL-terminated copy of s on the Go heap.
func cString(s string) []byte {
	return append([]byte(s), 0)
}

func boolWord(b bool) uintptr {
	if b {
		return 1
	}
	return 0
}

// optional is mlx-c's struct of a 32-bit value and a flag, which the C ABIs in question pass in one integer register.
func optional(value uint32, has bool) uintptr {
	return uintptr(value) | boolWord(has)<<32
}
