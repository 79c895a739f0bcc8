package models

import (
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// sparseMoE makes the expert layer at path, an object with a trailing dot, with
// weights as the qwen families name them, converted or as published.
func sparseMoE(st *nn.Store, path string, hidden int, d *weights.MoE, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *nn.SparseMoE {
	m := &nn.SparseMoE{
		Router: nn.Router{Gate: st.Linear(path+"gate", hidden, d.Experts, false), PerToken: d.PerToken, Normalize: d.Normalized},
	}
	switch {
	case st.Has(path + "experts.gate_up_proj"):
		m.Experts = st.JoinedSwitchGLU(path+"switch_mlp.", path+"experts.gate_up_proj", path+"experts.down_proj", d.Experts, hidden, d.Intermediate, act)
	case st.Has(path + "experts.0.up_proj.weight"):
		m.Experts = st.StackedSwitchGLU(path+"switch_mlp.", path+"experts.", d.Experts, hidden, d.Intermediate, act)
	default:
		m.Experts = st.SwitchGLU(path+"switch_mlp.", d.Experts, hidden, d.Intermediate, act)
	}
	if d.SharedIntermediate > 0 {
		m.Shared = gatedMLP(st, path+"shared_expert.", hidden, d.SharedIntermediate, false, act)
		m.SharedGate = st.Linear(path+"shared_expert_gate", hidden, 1, false)
	}
	return m
}
