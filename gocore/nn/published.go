package nn

import (
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// What a checkpoint as it was published needs before its weights are as mlx_lm
// converts them.

// take claims a tensor that only serves to make another one: the array goes
// when the scope does, and its memory when the other is evaluated.
func (st *Store) take(name string, shape ...int) mlxc.Array {
	t := st.claims.Tensor(name, shape...)
	a := st.array(t)
	if st.replaced[name] {
		return a // an adapter's, which stays with the others of its file
	}
	delete(st.arrays, t.Source)
	return st.scope.Own(a)
}

// derive makes the store own what make builds, unless something failed before.
func (st *Store) derive(make func(s *mlxc.Scope) mlxc.Array) mlxc.Array {
	if st.Err() != nil {
		return mlxc.Array{}
	}
	return st.Adopt(st.scope.Keep(make(st.scope)))
}

// converted is derive for what mlx_lm's conversion stores under name.
func (st *Store) converted(name string, make func(s *mlxc.Scope) mlxc.Array) mlxc.Array {
	a := st.derive(make)
	if a.Valid() {
		st.made[name] = a
	}
	return a
}

// RMSNormPublished makes the norm at path from a weight that was published as
// its difference from 1.
func (st *Store) RMSNormPublished(path string, dim int, eps float64) *RMSNorm {
	stored := st.take(path+".weight", dim)
	weight := st.converted(path+".weight", func(s *mlxc.Scope) mlxc.Array { return s.Add(stored, s.ScalarLike(stored, 1)) })
	return &RMSNorm{Weight: weight, Eps: float32(eps)}
}

// Depthwise claims the weight of a convolution of each channel by itself as MLX
// takes it, [channels, width, 1]. PyTorch has the last two the other way round.
func (l Layer) Depthwise(role weights.Role, channels, width int) mlxc.Array {
	name := l.path(role) + ".weight"
	if !l.PublishedDepthwise(role) {
		return l.st.Tensor(name, channels, width, 1)
	}
	l.st.asPublished()
	stored := l.st.take(name, channels, 1, width)
	return l.st.converted(name, func(s *mlxc.Scope) mlxc.Array { return s.Contiguous(s.MoveAxis(stored, 2, 1)) })
}

// PublishedDepthwise tells whether a convolution's weight is PyTorch's.
func (l Layer) PublishedDepthwise(role weights.Role) bool {
	shape := l.st.folder.Tensors[l.path(role)+".weight"].Shape
	return len(shape) > 0 && shape[len(shape)-1] != 1
}

// joinedSwitchGLU makes experts whose gate and up are stored as the halves of
// one array, [experts, 2·inner, dim].
func (l Layer) joinedSwitchGLU(experts, dim, inner int, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *SwitchGLU {
	st := l.st
	st.asPublished()
	joined := st.take(l.path(weights.ExpertsGateUp), experts, 2*inner, dim)
	half := func(role weights.Role, from int) *SwitchLinear {
		return st.switchLinear(l.path(role), Matrix{Weight: st.converted(l.path(role)+".weight", func(s *mlxc.Scope) mlxc.Array {
			return s.Slice(joined, []int{0, from, 0}, []int{experts, from + inner, dim})
		})}, experts, dim, inner)
	}
	down := l.path(weights.ExpertsDown)
	return &SwitchGLU{
		Gate: half(weights.ExpertsGate, 0), Up: half(weights.ExpertsUp, inner),
		Down: st.switchLinear(down, Matrix{Weight: st.Tensor(down+".weight", experts, dim, inner)}, experts, inner, dim),
		Act:  act,
	}
}

// stackedSwitchGLU makes experts that are stored one by one.
func (l Layer) stackedSwitchGLU(experts, dim, inner int, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *SwitchGLU {
	st := l.st
	st.asPublished()
	stack := func(role, one weights.Role, in, out int) *SwitchLinear {
		parts := make([]mlxc.Array, experts)
		for e := range parts {
			parts[e] = st.take(st.parts.ExpertPath(l.number, one, e)+".weight", out, in)
		}
		stacked := st.converted(l.path(role)+".weight", func(s *mlxc.Scope) mlxc.Array { return s.Stack(0, parts...) })
		return st.switchLinear(l.path(role), Matrix{Weight: stacked}, experts, in, out)
	}
	return &SwitchGLU{
		Gate: stack(weights.ExpertsGate, weights.ExpertGate, dim, inner),
		Up:   stack(weights.ExpertsUp, weights.ExpertUp, dim, inner),
		Down: stack(weights.ExpertsDown, weights.ExpertDown, inner, dim),
		Act:  act,
	}
}
