package mlxc

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
)

// TestMain loads the library under test; without one there is nothing to test, which must not look like success.
func TestMain(m *testing.M) {
	if os.Getenv("AXLM_TEST_UNLOADED") != "" {
		os.Exit(m.Run())
	}
	path := os.Getenv("AXLM_MLXC")
	if path == "" {
		fmt.Fprintln(os.Stderr, "mlxc: set AXLM_MLXC to an mlx-c library (and AXLM_LIBMLX to its libmlx), as make test-go does")
		os.Exit(1)
	}
	if err := Load(os.Getenv("AXLM_LIBMLX"), path); err != nil {
		fmt.Fprintln(os.Stderr, "mlxc:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// newScope makes a scope on a thread of the test's own: MLX's streams belong to threads, and a goroutine that ends
// while locked takes its thread with it. AXLM_TEST_DEVICE=gpu runs the tests on the GPU.
func newScope(t testing.TB) *Scope {
	t.Helper()
	runtime.LockOSThread()
	device := Device{Type: CPU}
	if os.Getenv("AXLM_TEST_DEVICE") == "gpu" {
		device.Type = GPU
	}
	stream, err := DefaultStream(device)
	if err != nil {
		t.Fatal(err)
	}
	s := NewScope(stream)
	t.Cleanup(func() { s.Close(); stream.Free() })
	return s
}

// bothPaths runs a test with the call frame and with the fallback that does not rely on purego's internals.
func bothPaths(t *testing.T, test func(t *testing.T, s *Scope)) {
	for _, direct := range []bool{true, false} {
		t.Run(map[bool]string{true: "frame", false: "fallback"}[direct], func(t *testing.T) {
			s := newScope(t)
			s.direct = direct
			test(t, s)
		})
	}
}

// values evaluates an array of any type and widens its elements.
func values(t testing.TB, s *Scope, a Array) []float64 {
	t.Helper()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	wide := a
	if a.DType() != Float32 && a.DType() != Int64 {
		wide = s.AsType(a, map[bool]DType{true: Float32, false: Int64}[a.DType().IsFloat()])
	}
	if err := Eval(wide); err != nil {
		t.Fatal(err)
	}
	var out []float64
	if wide.DType() == Float32 {
		got, err := wide.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range got {
			out = append(out, float64(v))
		}
		return out
	}
	got, err := wide.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range got {
		out = append(out, float64(v))
	}
	return out
}

// near tells whether two numbers agree to float32's precision; two NaNs agree.
func near(got, want float64) bool {
	if math.IsNaN(want) {
		return math.IsNaN(got)
	}
	if math.IsInf(want, 0) {
		return got == want
	}
	return math.Abs(got-want) <= 2e-6+5e-6*math.Abs(want)
}

func sameValues(t testing.TB, got, want []float64) {
	t.Helper()
	if text := difference(got, want); text != "" {
		t.Error(text)
	}
}

// difference tells where numbers differ first, "" if nowhere.
func difference(got, want []float64) string {
	if len(got) != len(want) {
		return fmt.Sprintf("got %d values, want %d", len(got), len(want))
	}
	for i := range got {
		if !near(got[i], want[i]) {
			return fmt.Sprintf("value %d is %v, want %v", i, got[i], want[i])
		}
	}
	return ""
}

// expectation is what an operation on known numbers must give.
type expectation struct {
	name  string
	op    func(s *Scope) Array
	shape []int
	dtype DType
	want  []float64
}

// expect builds, evaluates and compares every case.
func expect(t *testing.T, cases []expectation) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		for _, c := range cases {
			a := c.op(s)
			if s.Err() != nil {
				t.Fatalf("%s: %v", c.name, s.Err())
			}
			if !slices.Equal(a.Shape(), c.shape) || a.DType() != c.dtype {
				t.Errorf("%s: got %v, want %v %v", c.name, a, c.shape, c.dtype)
			}
			if text := difference(values(t, s, a), c.want); text != "" {
				t.Errorf("%s: %s", c.name, text)
			}
			s.Reset()
		}
	})
}

// sequence is 0, 1, … in an array.
func sequence(s *Scope, dims ...int) Array {
	n := 1
	for _, d := range dims {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	return s.FromFloat32s(data, dims...)
}

// noise is repeatable numbers between -1 and 1, as an array's data.
func noise(n int, seed uint32) []float32 {
	out := make([]float32, n)
	state := seed*2654435761 + 1
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] = float32(int32(state)) / (1 << 31)
	}
	return out
}

func float64s[T int | float32](in ...T) []float64 {
	out := make([]float64, len(in))
	for i, v := range in {
		out[i] = float64(v)
	}
	return out
}
