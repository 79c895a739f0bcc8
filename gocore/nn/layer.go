package nn

import (
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// Layer hands out one layer's modules by what they are for. Where they lie, and
// under which names, is the business of the folder's manifest.
type Layer struct {
	st     *Store
	number int
}

// Layer is where a family asks for the modules of layer i, or with
// weights.NoLayer for those of the whole model.
func (st *Store) Layer(i int) Layer { return Layer{st, i} }

func (l Layer) path(role weights.Role) string { return l.st.parts.Path(l.number, role) }

// Has tells whether the folder has the module.
func (l Layer) Has(role weights.Role) bool { return l.st.parts.Has(l.number, role) }

// Linear makes a linear layer with in inputs and out outputs.
func (l Layer) Linear(role weights.Role, in, out int, bias bool) *Linear {
	return l.st.Linear(l.path(role), in, out, bias)
}

// Embedding makes a table.
func (l Layer) Embedding(role weights.Role, vocab, dim int) *Embedding {
	return l.st.Embedding(l.path(role), vocab, dim)
}

// RMSNorm makes a norm.
func (l Layer) RMSNorm(role weights.Role, dim int, eps float64) *RMSNorm {
	return l.st.RMSNorm(l.path(role), dim, eps)
}

// RMSNormFromOne makes a norm from a weight stored as its difference from 1.
func (l Layer) RMSNormFromOne(role weights.Role, dim int, eps float64) *RMSNorm {
	return l.st.RMSNormFromOne(l.path(role), dim, eps)
}

// RMSNormPublished makes a norm from a weight that was published as its
// difference from 1, though the family stores it as it is.
func (l Layer) RMSNormPublished(role weights.Role, dim int, eps float64) *RMSNorm {
	return l.st.RMSNormPublished(l.path(role), dim, eps)
}

// Tensor claims an array that is no module's part.
func (l Layer) Tensor(role weights.Role, shape ...int) mlxc.Array {
	return l.st.Tensor(l.path(role), shape...)
}

// Ignore marks a module that the family does not use on purpose.
func (l Layer) Ignore(role weights.Role) { l.st.ignore(l.path(role)) }

// GatedMLP makes the layer's dense feed-forward.
func (l Layer) GatedMLP(dim, inner int, bias bool, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *GatedMLP {
	return l.gatedMLP(weights.MLPGate, weights.MLPUp, weights.MLPDown, dim, inner, bias, act)
}

// SharedExpert makes the expert that every row takes.
func (l Layer) SharedExpert(dim, inner int, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *GatedMLP {
	return l.gatedMLP(weights.SharedExpertGate, weights.SharedExpertUp, weights.SharedExpertDown, dim, inner, false, act)
}

func (l Layer) gatedMLP(gate, up, down weights.Role, dim, inner int, bias bool, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *GatedMLP {
	return &GatedMLP{
		Gate: l.Linear(gate, dim, inner, bias), Up: l.Linear(up, dim, inner, bias), Down: l.Linear(down, inner, dim, bias), Act: act,
	}
}

// SwitchGLU makes the layer's experts, of dim inputs and outputs and inner
// features: as mlx_lm stacks them, or as they were published, with gate and up
// in one, or one by one.
func (l Layer) SwitchGLU(experts, dim, inner int, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *SwitchGLU {
	switch {
	case l.Has(weights.ExpertsGateUp):
		return l.joinedSwitchGLU(experts, dim, inner, act)
	case l.st.parts.HasExpert(l.number, weights.ExpertUp, 0):
		return l.stackedSwitchGLU(experts, dim, inner, act)
	}
	return &SwitchGLU{
		Gate: l.st.SwitchLinear(l.path(weights.ExpertsGate), experts, dim, inner, false),
		Up:   l.st.SwitchLinear(l.path(weights.ExpertsUp), experts, dim, inner, false),
		Down: l.st.SwitchLinear(l.path(weights.ExpertsDown), experts, inner, dim, false),
		Act:  act,
	}
}
