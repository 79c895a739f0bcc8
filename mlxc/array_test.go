package mlxc

import (
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestMetadata(t *testing.T) {
	s := newScope(t)
	a := s.Zeros(BFloat16, 2, 3, 4)
	if a.NDim() != 3 || !slices.Equal(a.Shape(), []int{2, 3, 4}) || a.DType() != BFloat16 || a.Size() != 24 || a.NBytes() != 48 {
		t.Errorf("got %d %v %v %d %d", a.NDim(), a.Shape(), a.DType(), a.Size(), a.NBytes())
	}
	for axis, want := range map[int]int{0: 2, 1: 3, 2: 4, -1: 4, -3: 2, 3: 0, -4: 0} {
		if got := a.Dim(axis); got != want {
			t.Errorf("dim %d is %d, want %d", axis, got, want)
		}
	}
	if a.String() != "[2,3,4] bfloat16" || s.Zeros(Bool).String() != "[] bool" {
		t.Errorf("got %q", a)
	}
	var none Array
	if none.Valid() || none.NDim() != 0 || none.Dim(0) != 0 || none.Size() != 0 || none.NBytes() != 0 ||
		none.DType() != AnyDType || len(none.Shape()) != 0 || none.String() != "none" || none.Clone().Valid() {
		t.Error("none is not empty")
	}
	none.Free()
}

// A model asks its arrays' shapes and types hundreds of times a token.
func TestMetadataAllocatesNothing(t *testing.T) {
	s := newScope(t)
	a := s.Zeros(BFloat16, 2, 3, 4)
	sum := 0
	for name, ask := range map[string]func(){
		"NDim":   func() { sum += a.NDim() },
		"Dim":    func() { sum += a.Dim(-1) },
		"Size":   func() { sum += a.Size() },
		"NBytes": func() { sum += a.NBytes() },
		"DType":  func() { sum += int(a.DType()) },
		"Valid":  func() { sum += int(boolWord(a.Valid())) },
		"dims":   func() { sum += len(a.dims()) },
		"Clone":  func() { a.Clone().Free() },
		"Keep":   func() { s.Keep(a).Free() },
	} {
		if n := testing.AllocsPerRun(1000, ask); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { sum += len(a.Shape()) }); n > 1 { // the result itself
		t.Errorf("Shape allocates %v times", n)
	}
	if sum == 0 || s.Err() != nil {
		t.Error(s.Err())
	}
}

// The public path of purego gives the same answers.
func TestMetadataWithoutTheFrame(t *testing.T) {
	s := newScope(t)
	a := s.Zeros(BFloat16, 2, 3, 4)
	direct := s.lib.direct
	s.lib.direct = false
	defer func() { s.lib.direct = direct }()
	b := a.Clone()
	defer b.Free()
	if b == a || b.NDim() != 3 || b.Dim(-1) != 4 || b.Size() != 24 || b.NBytes() != 48 || b.DType() != BFloat16 ||
		!slices.Equal(b.Shape(), []int{2, 3, 4}) {
		t.Errorf("got %v", b)
	}
}

func BenchmarkMetadata(b *testing.B) {
	s := newScope(b)
	a := s.Zeros(BFloat16, 2, 3, 4)
	b.Run("Dim", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a.Dim(2)
		}
	})
	b.Run("Clone and Free", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a.Clone().Free()
		}
	})
}

func TestReadingData(t *testing.T) {
	s := newScope(t)
	a := s.FromInt32s([]int32{1, 2, 3, 4, 5, 6}, 2, 3)
	lazy := s.Transpose(a) // neither evaluated nor contiguous
	got, err := lazy.Int32s()
	if err != nil || !slices.Equal(got, []int32{1, 4, 2, 5, 3, 6}) {
		t.Errorf("got %v, %v", got, err)
	}
	reversed, err := s.SliceStrided(a, []int{-1, -1}, []int{-3, -4}, []int{-1, -1}).Int32s()
	if err != nil || !slices.Equal(reversed, []int32{6, 5, 4, 3, 2, 1}) {
		t.Errorf("with negative strides: got %v, %v", reversed, err)
	}
	wide, err := s.BroadcastTo(s.ScalarInt(7, Int32), 2, 2).Int32s()
	if err != nil || !slices.Equal(wide, []int32{7, 7, 7, 7}) {
		t.Errorf("broadcast: got %v, %v", wide, err)
	}
	if _, err := a.Float32s(); err == nil || !strings.Contains(err.Error(), "[2,3] int32 as float32") {
		t.Errorf("reading integers as floats: %v", err)
	}
	if _, err := (Array{}).Float32s(); err == nil {
		t.Error("read no array")
	}
	if _, err := (Array{}).Bytes(); err == nil {
		t.Error("read the bytes of no array")
	}
}

func TestReadingEveryType(t *testing.T) {
	s := newScope(t)
	check := func(name string, got, want any, err error) {
		if t.Helper(); err != nil || !equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
	in := []float32{0, 1, 2}
	as := func(dt DType) Array { return s.AsType(s.FromFloat32s(in), dt) }
	f, err := as(Float32).Float32s()
	check("float32", f, in, err)
	i64, err := as(Int64).Int64s()
	check("int64", i64, []int64{0, 1, 2}, err)
	u32, err := as(Uint32).Uint32s()
	check("uint32", u32, []uint32{0, 1, 2}, err)
	u8, err := as(Uint8).Uint8s()
	check("uint8", u8, []uint8{0, 1, 2}, err)
	b, err := as(Bool).Bools()
	check("bool", b, []bool{false, true, true}, err)
	for _, dt := range []DType{Float32, Float16, BFloat16} {
		f, err := as(dt).AsFloat32s()
		check(dt.String()+" widened", f, in, err)
	}
	for dt, want := range map[DType][]byte{
		Int8: {0, 1, 2}, Int16: {0, 0, 1, 0, 2, 0}, BFloat16: {0, 0, 0x80, 0x3f, 0, 0x40},
		Int32: {0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}, Uint64: {7: 0, 8: 1, 16: 2, 23: 0},
	} {
		raw, err := as(dt).Bytes()
		check(dt.String()+" bytes", raw, want, err)
	}
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case []float32:
		return slices.Equal(a, b.([]float32))
	case []int64:
		return slices.Equal(a, b.([]int64))
	case []uint32:
		return slices.Equal(a, b.([]uint32))
	case []uint8:
		return slices.Equal(a, b.([]uint8))
	case []bool:
		return slices.Equal(a, b.([]bool))
	}
	return false
}

func TestDTypes(t *testing.T) {
	s := newScope(t)
	for d := Bool; d <= Complex64; d++ {
		if d == Float64 {
			continue // CPU only
		}
		a := s.Zeros(d, 3)
		if a.DType() != d || a.NBytes() != 3*d.Size() || d.Size() == 0 {
			t.Errorf("%v: MLX made %v of %d bytes", d, a, a.NBytes())
		}
		if parsed, err := ParseDType(d.String()); err != nil || parsed != d {
			t.Errorf("%v parses as %v, %v", d, parsed, err)
		}
	}
	if _, err := ParseDType("float8"); err == nil || AnyDType.Size() != 0 || AnyDType.String() == "" {
		t.Error("unknown types pass")
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

// An array of another owner, as Python's, is known by the address of its C++ object.
func TestArraysOfOthers(t *testing.T) {
	s := newScope(t)
	theirs := s.Keep(s.FromFloat32s([]float32{1, 2}))
	defer theirs.Free()
	ours := ArrayAt(theirs.Ptr())
	defer ours.Free()
	if ours == theirs || ours.DataPtr() == nil || ours.DataPtr() != theirs.DataPtr() {
		t.Errorf("%v is no second handle of %v", ours, theirs)
	}
	replacement := s.Add(theirs, theirs)
	if err := Eval(replacement); err != nil {
		t.Fatal(err)
	}
	if err := SetArrayAt(theirs.Ptr(), replacement); err != nil {
		t.Fatal(err)
	}
	if theirs.DataPtr() != replacement.DataPtr() {
		t.Error("assigning copied the data")
	}
	sameValues(t, values(t, s, theirs), float64s(2, 4))
	sameValues(t, values(t, s, ours), float64s(1, 2))
	if err := SetArrayAt(theirs.Ptr(), Array{}); err == nil {
		t.Error("assigned no array")
	}
	other := theirs.Clone()
	defer other.Free()
	if err := ForgetArrayAt(other.Ptr()); err != nil || other.NDim() != 0 || *(*int32)(other.DataPtr()) != 0 {
		t.Errorf("forgetting an array left %v, %v", other.Shape(), err)
	}
	if *(*float32)(theirs.DataPtr()) != 2 || unsafe.Sizeof(theirs) != unsafe.Sizeof(uintptr(0)) {
		t.Error("the data pointer does not point to the data")
	}
	if (Array{}).DataPtr() != nil {
		t.Error("no array has data")
	}
}

func TestEval(t *testing.T) {
	s := newScope(t)
	a := s.Exp(s.Zeros(Float32, 2))
	if err := AsyncEval(a, s.Add(a, a)); err != nil {
		t.Fatal(err)
	}
	sameValues(t, values(t, s, a), float64s(1, 1))
	if err := Eval(); err != nil {
		t.Error(err)
	}
	if err := Eval(a, Array{}); err == nil || !strings.HasPrefix(err.Error(), "eval: ") {
		t.Errorf("evaluating no array: %v", err)
	}
	if err := AsyncEval(Array{}); err == nil || !strings.HasPrefix(err.Error(), "async_eval: ") {
		t.Errorf("evaluating no array: %v", err)
	}
}
