package nn

import (
	"math"

	"axlm/mlxc"
)

// GELUApprox is x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2, op by op as mlx_lm
// has it: in half precision another order rounds to other numbers.
func GELUApprox(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	scalar := func(v float64) mlxc.Array { return s.ScalarLike(x, float32(v)) }
	inner := s.Add(x, s.Multiply(scalar(0.044715), s.Power(x, scalar(3))))
	turn := s.Tanh(s.Multiply(scalar(math.Sqrt(2/math.Pi)), inner))
	return s.Multiply(s.Multiply(scalar(0.5), x), s.Add(scalar(1), turn))
}

// GeGLU is gelu(gate)·up.
func GeGLU(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array {
	return s.Multiply(GELUApprox(s, gate), up)
}

// SoftCap is limit·tanh(x/limit).
func SoftCap(s *mlxc.Scope, x mlxc.Array, limit float32) mlxc.Array {
	cap := s.ScalarLike(x, limit)
	return s.Multiply(s.Tanh(s.Divide(x, cap)), cap)
}
