package mlxc

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// frame is an argument block of purego's call trampoline. Filling one in place and calling the trampoline with it
// costs neither reflection, nor a pool, nor allocation, and unlike SyscallN it keeps integers and floats apart.
//
// This rests on purego's internals, so Load compares the layout with purego's own type and tries the trampoline on a
// Go callback before it is used; otherwise scopes go through purego's public functions.
//
// Every argument slot the C function reads must be set anew for each call: results overwrite the first ones.
// Arguments past the eighth go to the stack in eight bytes each. Apple's arm64 ABI packs smaller ones there; none of
// the functions called here has two neighbouring small arguments past the eighth.
type frame struct {
	fn uintptr
	a  [frameInts]uintptr
	f  [frameFloats]uintptr
	r8 uintptr
}

const (
	frameInts   = 32
	frameFloats = 8
)

//go:linkname runtime_cgocall runtime.cgocall
func runtime_cgocall(fn uintptr, arg unsafe.Pointer) int32

//go:linkname trampoline github.com/ebitengine/purego.syscallXABI0
var trampoline uintptr

//go:linkname puregoFrames github.com/ebitengine/purego.thePool
var puregoFrames sync.Pool

// call runs the function. The frame must live on the heap: the C side holds its address, and a callback into Go may
// move the goroutine's stack.
func (f *frame) call(fn uintptr) uintptr {
	f.fn = fn
	runtime_cgocall(trampoline, unsafe.Pointer(f))
	return f.a[0]
}

// frameLayoutHolds compares frame with the type of purego's own argument blocks, field by field.
func frameLayoutHolds() bool {
	if trampoline == 0 || puregoFrames.New == nil {
		return false
	}
	block := reflect.TypeOf(puregoFrames.New())
	if block == nil || block.Kind() != reflect.Pointer || block.Elem().Kind() != reflect.Struct {
		return false
	}
	return layoutMatches(block.Elem())
}

func layoutMatches(block reflect.Type) bool {
	var own frame
	if block.Size() != unsafe.Sizeof(own) {
		return false
	}
	want := map[string]uintptr{"fn": unsafe.Offsetof(own.fn), "arm64_r8": unsafe.Offsetof(own.r8)}
	for i := range own.a {
		want[fmt.Sprintf("a%d", i+1)] = unsafe.Offsetof(own.a) + uintptr(i)*unsafe.Sizeof(own.a[0])
	}
	for i := range own.f {
		want[fmt.Sprintf("f%d", i+1)] = unsafe.Offsetof(own.f) + uintptr(i)*unsafe.Sizeof(own.f[0])
	}
	for name, offset := range want {
		field, ok := block.FieldByName(name)
		if !ok || field.Offset != offset || field.Type.Kind() != reflect.Uintptr {
			return false
		}
	}
	return true
}

// frameCallWorks passes distinct integers and floats through a frame to a Go callback and compares what arrives.
func frameCallWorks() bool {
	const ints, floats, result = 14, 4, 77
	var gotInts [ints]uintptr
	var gotFloats [floats]float64
	echo := purego.NewCallback(func(
		i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13 uintptr, f0, f1, f2, f3 float64,
	) uintptr {
		gotInts = [ints]uintptr{i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13}
		gotFloats = [floats]float64{f0, f1, f2, f3}
		return result
	})
	f := new(frame)
	var wantInts [ints]uintptr
	var wantFloats [floats]float64
	for i := range wantInts {
		wantInts[i] = uintptr(1000003 * (i + 1))
		f.a[i] = wantInts[i]
	}
	for i := range wantFloats {
		wantFloats[i] = 0.1 + float64(i)
		f.f[i] = floatBits(wantFloats[i])
	}
	return f.call(echo) == result && gotInts == wantInts && gotFloats == wantFloats
}
