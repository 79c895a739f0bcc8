package models

import (
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// sparseMoE makes a layer's experts as the qwen families have them.
func sparseMoE(at nn.Layer, hidden int, d *weights.MoE, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *nn.SparseMoE {
	m := &nn.SparseMoE{
		Router: nn.Router{
			Gate: at.Linear(weights.Router, hidden, d.Experts, false), PerToken: d.PerToken, Normalize: d.Normalized,
		},
		Experts: at.SwitchGLU(d.Experts, hidden, d.Intermediate, act),
	}
	if d.SharedIntermediate > 0 {
		m.Shared = at.SharedExpert(hidden, d.SharedIntermediate, act)
		m.SharedGate = at.Linear(weights.SharedExpertRouter, hidden, 1, false)
	}
	return m
}
