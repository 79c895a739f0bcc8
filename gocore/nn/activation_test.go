package nn

import (
	"math"
	"os"
	"slices"
	"testing"

	"axlm/mlxc"
)

func activationInput() []float32 {
	var x []float32
	for v := float32(-12); v <= 12; v += 0.37 {
		x = append(x, v)
	}
	return append(x, 0, -0.0, 90, -90)
}

func TestActivations(t *testing.T) {
	s := newScope(t)
	x := activationInput()
	up := slices.Clone(x)
	slices.Reverse(up)
	gelu := func(x float64) float64 {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	compare := func(what string, got mlxc.Array, want func(i int) float64) {
		t.Helper()
		for i, v := range values(t, s, got) {
			if w := want(i); math.Abs(float64(v)-w) > 2e-6*(1+math.Abs(w)) {
				t.Errorf("%s of %g is %g, want %g", what, x[i], v, w)
			}
		}
	}
	in := s.FromFloat32s(x)
	compare("gelu", GELUApprox(s, in), func(i int) float64 { return gelu(float64(x[i])) })
	compare("geglu", GeGLU(s, in, s.FromFloat32s(up)), func(i int) float64 { return gelu(float64(x[i])) * float64(up[i]) })
	compare("soft cap", SoftCap(s, in, 30), func(i int) float64 { return 30 * math.Tanh(float64(x[i])/30) })
}

// Half-precision input stays what it is, and one kernel gives the bits of many.
func TestFusedActivations(t *testing.T) {
	if os.Getenv("AXLM_TEST_DEVICE") == "gpu" {
		t.Skip("a GPU's compiler may contract what it fuses")
	}
	s := newScope(t)
	for name, chain := range map[string]Elementwise{
		"geglu":    func(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array { return GeGLU(s, in[0], in[1]) },
		"soft cap": func(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array { return SoftCap(s, in[0], 30) },
	} {
		fused, release, err := compiled(chain)
		if err != nil {
			t.Fatal(err)
		}
		for _, dt := range []mlxc.DType{mlxc.Float32, mlxc.BFloat16, mlxc.Float16} {
			for _, n := range []int{1, 7, len(activationInput())} { // one trace serves all shapes
				x := s.AsType(s.FromFloat32s(activationInput()[:n]), dt)
				plain, one := chain(s, x, x), fused(s, x, x)
				if plain.DType() != dt || one.DType() != dt {
					t.Errorf("%s of %v gives %v, fused %v", name, dt, plain.DType(), one.DType())
				}
				if got, want := values(t, s, one), values(t, s, plain); !slices.Equal(got, want) {
					t.Errorf("%s of %v: fused gives %v, want %v", name, dt, got, want)
				}
			}
		}
		release()
	}
}
