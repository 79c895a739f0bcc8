package mlxc

import (
	"reflect"
	"structs"
	"testing"
	"unsafe"
)

func TestFrameIsUsed(t *testing.T) {
	if !frameLayoutHolds() {
		t.Error("purego's argument block has changed: scopes fall back to slow calls")
	}
	if !frameCallWorks() {
		t.Error("a call through the frame does not pass its arguments")
	}
	if !current.lib.Load().direct {
		t.Error("the library was loaded without the frame")
	}
}

// Blocks like purego's in all but one thing; each must be noticed.
type (
	blockTooShort struct {
		_      structs.HostLayout
		fn, a1 uintptr
	}
	blockSwapped struct {
		arm64_r8 uintptr
		a        [frameInts]uintptr
		f        [frameFloats]uintptr
		fn       uintptr
	}
)

func TestChangedFrameLayoutIsNoticed(t *testing.T) {
	for _, block := range []reflect.Type{reflect.TypeFor[blockTooShort](), reflect.TypeFor[blockSwapped]()} {
		if layoutMatches(block) {
			t.Errorf("%v passes for the frame's layout", block)
		}
	}
}

func benchmarkAdd(b *testing.B, direct bool) {
	s := newScope(b)
	s.direct = direct
	x, y := s.Keep(s.Ones(Float32, 8)), s.Keep(s.Ones(Float32, 8))
	s.Reset()
	defer x.Free()
	defer y.Free()
	b.ReportAllocs()
	for b.Loop() {
		s.Add(x, y)
		s.Reset()
	}
	if s.Err() != nil {
		b.Fatal(s.Err())
	}
}

func BenchmarkAddFrame(b *testing.B)    { benchmarkAdd(b, true) }
func BenchmarkAddFallback(b *testing.B) { benchmarkAdd(b, false) }

func BenchmarkAddSyscallN(b *testing.B) {
	s := newScope(b)
	x, y := s.Ones(Float32, 8), s.Ones(Float32, 8)
	lib := s.lib
	b.ReportAllocs()
	out := new(Array)
	for b.Loop() {
		out.ctx = 0
		lib.call(&lib.c.mlx_add, uintptr(unsafe.Pointer(out)), x.ctx, y.ctx, s.stream.ctx)
		lib.call(&lib.c.mlx_array_free, out.ctx)
	}
}

func BenchmarkCallOverhead(b *testing.B) {
	s := newScope(b)
	x := s.Ones(Float32, 8)
	b.Run("frame", func(b *testing.B) {
		for b.Loop() {
			s.dtype(x)
		}
	})
	b.Run("SyscallN", func(b *testing.B) {
		for b.Loop() {
			x.DType()
		}
	})
}
