package nn

import "axlm/mlxc"

// SwiGLU is silu(gate)·up.
func SwiGLU(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array {
	return s.Multiply(s.Multiply(gate, s.Sigmoid(gate)), up)
}

// GatedMLP is down(act(gate x)·up x).
type GatedMLP struct {
	Gate, Up, Down *Linear
	// Act combines the two projections: SwiGLU, or a family's own.
	Act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array
}

// Forward maps x [..., dim] to [..., dim].
func (m *GatedMLP) Forward(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	return m.Down.Forward(s, m.Act(s, m.Gate.Forward(s, x), m.Up.Forward(s, x)))
}
