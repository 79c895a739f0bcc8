package nn

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"axlm/mlxc"
)

func TestMain(m *testing.M) {
	libmlxc := os.Getenv("AXLM_MLXC")
	if libmlxc == "" {
		fmt.Fprintln(os.Stderr, "set AXLM_MLXC (and AXLM_LIBMLX) to the libraries, as `make test` does")
		os.Exit(1)
	}
	if err := mlxc.Load(os.Getenv("AXLM_LIBMLX"), libmlxc); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// newScope makes a scope on a stream of the test's own thread, which ends with
// the test. AXLM_TEST_DEVICE=gpu puts it on the GPU.
func newScope(t *testing.T) *mlxc.Scope {
	t.Helper()
	runtime.LockOSThread()
	device := mlxc.Device{Type: mlxc.CPU}
	if os.Getenv("AXLM_TEST_DEVICE") == "gpu" {
		device.Type = mlxc.GPU
	}
	stream, err := mlxc.NewStream(device)
	if err != nil {
		t.Fatal(err)
	}
	s := mlxc.NewScope(stream)
	t.Cleanup(func() { s.Close(); stream.Free() })
	return s
}

// noise is normal random numbers of a given spread.
func noise(random *rand.Rand, spread float64, n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(spread * random.NormFloat64())
	}
	return values
}

// values evaluates a and returns its elements as float32.
func values(t *testing.T, s *mlxc.Scope, a mlxc.Array) []float32 {
	t.Helper()
	if a.DType() != mlxc.Float32 {
		a = s.AsType(a, mlxc.Float32)
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	if err := mlxc.Eval(a); err != nil {
		t.Fatal(err)
	}
	v, err := a.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}
