package nn

import (
	"math/rand/v2"
	"testing"

	"axlm/mlxc"
	"axlm/mlxc/mlxctest"
)

func TestMain(m *testing.M) { mlxctest.Main(m) }

func newScope(t *testing.T) *mlxc.Scope { return mlxctest.NewScope(t) }

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
