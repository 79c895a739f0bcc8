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
func (st *Store) Depthwise(name string, channels, width int) mlxc.Array {
	if !st.PublishedDepthwise(name) {
		return st.Tensor(name, channels, width, 1)
	}
	st.asPublished()
	stored := st.take(name, channels, 1, width)
	return st.converted(name, func(s *mlxc.Scope) mlxc.Array { return s.Contiguous(s.MoveAxis(stored, 2, 1)) })
}

// PublishedDepthwise tells whether a convolution's weight is PyTorch's.
func (st *Store) PublishedDepthwise(name string) bool {
	shape := st.folder.Tensors[name].Shape
	return len(shape) > 0 && shape[len(shape)-1] != 1
}

// JoinedSwitchGLU makes the experts at path, an object with a trailing dot,
// whose gate and up are stored as the halves of one tensor gateUp, [experts,
// 2·inner, dim].
func (st *Store) JoinedSwitchGLU(path, gateUp, down string, experts, dim, inner int, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *SwitchGLU {
	st.asPublished()
	joined := st.take(gateUp, experts, 2*inner, dim)
	half := func(name string, from int) *SwitchLinear {
		return st.switchLinear(path+name, Matrix{Weight: st.converted(path+name+".weight", func(s *mlxc.Scope) mlxc.Array {
			return s.Slice(joined, []int{0, from, 0}, []int{experts, from + inner, dim})
		})}, experts, dim, inner)
	}
	rest := st.Tensor(down, experts, dim, inner)
	st.renamed[down] = path + "down_proj.weight"
	return &SwitchGLU{
		Gate: half("gate_proj", 0), Up: half("up_proj", inner),
		Down: st.switchLinear(path+"down_proj", Matrix{Weight: rest}, experts, inner, dim),
		Act:  act,
	}
}

// StackedSwitchGLU makes the experts at path, an object with a trailing dot,
// that are stored one by one, at stored followed by their numbers.
func (st *Store) StackedSwitchGLU(path, stored string, experts, dim, inner int, act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) *SwitchGLU {
	st.asPublished()
	stack := func(name string, in, out int) *SwitchLinear {
		parts := make([]mlxc.Array, experts)
		for e := range parts {
			parts[e] = st.take(fmt.Sprintf("%s%d.%s.weight", stored, e, name), out, in)
		}
		stacked := st.converted(path+name+".weight", func(s *mlxc.Scope) mlxc.Array { return s.Stack(0, parts...) })
		return st.switchLinear(path+name, Matrix{Weight: stacked}, experts, in, out)
	}
	return &SwitchGLU{
		Gate: stack("gate_proj", dim, inner), Up: stack("up_proj", dim, inner), Down: stack("down_proj", inner, dim),
		Act: act,
	}
}
