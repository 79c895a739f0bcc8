package nn

import "axlm/mlxc"

// sortFrom is from how many rows on experts work faster on rows that are
// sorted by expert.
const sortFrom = 64

// SwitchLinear is a stack of linear layers, of which each row of the input
// takes its own.
type SwitchLinear struct {
	Matrix           // plain: Wᵀ [experts, in, out]; quantised: packed along the inputs
	adapter *LowRank // nil for none
}

// SwitchLinear makes the layer at path, whose weight is [experts, out, in].
func (st *Store) SwitchLinear(path string, experts, in, out int, bias bool) *SwitchLinear {
	return st.switchLinear(path, st.Matrix(path, bias, experts, out, in), experts, in, out)
}

// switchLinear makes of m the layer that mlx_lm has at path.
func (st *Store) switchLinear(path string, m Matrix, experts, in, out int) *SwitchLinear {
	if m.Quant == nil && m.Weight.Valid() && st.Err() == nil {
		m.Weight = st.view(st.scope.SwapAxes(m.Weight, -1, -2))
	}
	l := &SwitchLinear{Matrix: m}
	st.adaptSwitch(l, path, experts, in, out)
	return l
}

// Forward maps x [..., n or 1, 1, in] to [..., n, 1, out], row by row with the
// experts [..., n]; sorted promises that these rise.
func (l *SwitchLinear) Forward(s *mlxc.Scope, x, experts mlxc.Array, sorted bool) mlxc.Array {
	var y mlxc.Array
	if q := l.Quant; q == nil {
		y = s.GatherMM(x, l.Weight, mlxc.Array{}, experts, sorted)
	} else {
		y = s.GatherQMM(x, l.Weight, l.Scales, l.Biases, mlxc.Array{}, experts, true, q.GroupSize, q.Bits, q.Mode, sorted)
	}
	if l.Bias.Valid() {
		y = s.Add(y, s.ExpandDims(s.Take(l.Bias, experts, 0), -2))
	}
	if l.adapter != nil {
		return l.adapter.gather(s, x, y, experts, sorted)
	}
	return y
}

// SwitchGLU is a GatedMLP for each expert.
type SwitchGLU struct {
	Gate, Up, Down *SwitchLinear
	// Act combines the two projections: SwiGLU, or a family's own.
	Act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array
}

// Forward maps x [..., L, dim] to [..., L, k, dim]: what each of the k experts
// [..., L, k] makes of its row.
func (m *SwitchGLU) Forward(s *mlxc.Scope, x, experts mlxc.Array) mlxc.Array {
	if s.Err() != nil {
		return mlxc.Array{}
	}
	x = s.ExpandDims(x, -2, -3)
	if experts.Size() < sortFrom {
		return s.Squeeze(m.apply(s, x, experts, false), -2)
	}
	shape := experts.Shape()
	flat := s.Flatten(experts, 0, -1)
	order := s.Argsort(flat, 0)
	row := s.FloorDivide(order, s.ScalarInt(shape[len(shape)-1], mlxc.Uint32))
	sorted := m.apply(s, s.Take(s.Flatten(x, 0, -3), row, 0), s.Take(flat, order, 0), true)
	back := s.Take(sorted, s.Argsort(order, 0), 0)
	return s.Squeeze(s.Unflatten(back, 0, shape...), -2)
}

func (m *SwitchGLU) apply(s *mlxc.Scope, x, experts mlxc.Array, sorted bool) mlxc.Array {
	up := m.Up.Forward(s, x, experts, sorted)
	gate := m.Gate.Forward(s, x, experts, sorted)
	return m.Down.Forward(s, m.Act(s, gate, up), experts, sorted)
}

// Router chooses each row's experts and weighs them: the PerToken greatest of
// a softmax over all.
type Router struct {
	Gate      *Linear
	PerToken  int
	Normalize bool // the weights of the chosen ones sum to 1
}

// Forward maps x [..., dim] to experts and their weights, [..., PerToken].
func (r *Router) Forward(s *mlxc.Scope, x mlxc.Array) (experts, scores mlxc.Array) {
	all := s.Softmax(r.Gate.Forward(s, x), -1, true)
	order := s.ArgPartition(all, -r.PerToken, -1)
	if s.Err() != nil {
		return mlxc.Array{}, mlxc.Array{}
	}
	stop := order.Shape()
	start := make([]int, len(stop))
	start[len(start)-1] = stop[len(stop)-1] - r.PerToken
	experts = s.Slice(order, start, stop)
	scores = s.TakeAlongAxis(all, experts, -1)
	if r.Normalize {
		scores = s.Divide(scores, s.Sum(scores, -1, true))
	}
	return experts, scores
}

// WeighExperts is the sum of what the experts made, y [..., k, dim], by their
// scores [..., k].
func WeighExperts(s *mlxc.Scope, y, scores mlxc.Array) mlxc.Array {
	return s.Sum(s.Multiply(y, s.ExpandDims(scores, -1)), -2, false)
}

// SparseMoE is a mixture of experts, with one more that every row takes where
// the family has it.
type SparseMoE struct {
	Router  Router
	Experts *SwitchGLU
	// Shared's output is scaled by the sigmoid of SharedGate's; both or none.
	Shared     *GatedMLP
	SharedGate *Linear
}

// Forward maps x [..., dim] to [..., dim].
func (m *SparseMoE) Forward(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	experts, scores := m.Router.Forward(s, x)
	y := WeighExperts(s, m.Experts.Forward(s, x, experts), scores)
	if m.Shared == nil {
		return y
	}
	shared := m.Shared.Forward(s, x)
	return s.Add(y, s.Multiply(s.Sigmoid(m.SharedGate.Forward(s, x)), shared))
}
