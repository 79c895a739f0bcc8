package nn

import (
	"fmt"

	"axlm/mlxc"
)

// What a checkpoint as it was published needs before its weights are as mlx_lm
// converts them.

// take claims a tensor that only serves to make another one: the array goes
// when the scope does, and its memory when the other is evaluated.
func (st *Store) take(name string, shape ...int) mlxc.Array {
	t := st.claims.Tensor(name, shape...)
	a := st.array(t)
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

// RMSNormFromOne makes the norm at path from a weight stored as its difference
// from 1.
func (st *Store) RMSNormFromOne(path string, dim int, eps float64) *RMSNorm {
	stored := st.take(path+".weight", dim)
	weight := st.derive(func(s *mlxc.Scope) mlxc.Array { return s.Add(stored, s.ScalarLike(stored, 1)) })
	return &RMSNorm{Weight: weight, Eps: float32(eps)}
}

// Depthwise claims the weight of a convolution of each channel by itself as MLX
// takes it, [channels, width, 1]. PyTorch has the last two the other way round.
func (st *Store) Depthwise(name string, channels, width int) mlxc.Array {
	if !st.PublishedDepthwise(name) {
		return st.Tensor(name, channels, width, 1)
	}
	stored := st.take(name, channels, 1, width)
	return st.derive(func(s *mlxc.Scope) mlxc.Array { return s.Contiguous(s.MoveAxis(stored, 2, 1)) })
}

// PublishedDepthwise tells whether a convolution's weight is PyTorch's.
func (st *Store) PublishedDepthwise(name string) bool {
	shape := st.folder.Tensors[name].Shape
	return len(shape) > 0 && shape[len(shape)-1] != 1
}

// JoinedSwitchGLU makes experts whose gate and up are the halves of one tensor
// gateUp, [experts, 2·inner, dim].
func (st *Store) JoinedSwitchGLU(gateUp, down string, experts, dim, inner int, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *SwitchGLU {
	joined := st.take(gateUp, experts, 2*inner, dim)
	half := func(from int) *SwitchLinear {
		return st.switchLinear(Matrix{Weight: st.derive(func(s *mlxc.Scope) mlxc.Array {
			return s.Slice(joined, []int{0, from, 0}, []int{experts, from + inner, dim})
		})})
	}
	return &SwitchGLU{
		Gate: half(0), Up: half(inner),
		Down: st.switchLinear(Matrix{Weight: st.Tensor(down, experts, dim, inner)}),
		Act:  act,
	}
}

// StackedSwitchGLU makes experts that are stored one by one, at path followed
// by their numbers.
func (st *Store) StackedSwitchGLU(path string, experts, dim, inner int, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *SwitchGLU {
	stack := func(name string, in, out int) *SwitchLinear {
		parts := make([]mlxc.Array, experts)
		for e := range parts {
			parts[e] = st.take(fmt.Sprintf("%s%d.%s.weight", path, e, name), out, in)
		}
		return st.switchLinear(Matrix{Weight: st.derive(func(s *mlxc.Scope) mlxc.Array { return s.Stack(0, parts...) })})
	}
	return &SwitchGLU{
		Gate: stack("gate_proj", dim, inner), Up: stack("up_proj", dim, inner), Down: stack("down_proj", inner, dim),
		Act: act,
	}
}
