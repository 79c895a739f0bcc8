package nn

import "axlm/mlxc"

// Elementwise is a chain of operations on arrays that work element by element.
type Elementwise func(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array

// Fuse makes one kernel of a chain on a GPU, where each operation would be a
// launch and a round through memory. On a CPU the chain stays as it is: there
// MLX would call a C++ compiler at run time, for the same bits. The store owns
// the kernel; it runs on the thread that loads.
func (st *Store) Fuse(chain Elementwise) Elementwise {
	device, err := st.scope.Stream().Device()
	if err != nil {
		st.Fail(err)
		return chain
	}
	if device.Type != mlxc.GPU {
		return chain
	}
	fused, release, err := compiled(chain)
	if err != nil {
		st.Fail(err)
		return chain
	}
	st.onFree(release)
	return fused
}

// compiled is chain as one kernel, and what frees it.
func compiled(chain Elementwise) (fused Elementwise, release func(), err error) {
	fn, err := mlxc.Compile(func(s *mlxc.Scope, in []mlxc.Array) []mlxc.Array {
		return []mlxc.Array{chain(s, in...)}
	}, true)
	if err != nil {
		return nil, nil, err
	}
	return func(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array {
		out := s.Call(fn, in...)
		if len(out) == 0 {
			return mlxc.Array{}
		}
		return out[0]
	}, fn.Free, nil
}

// FuseGate is Fuse for what combines a gate and its partner.
func (st *Store) FuseGate(act func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array) func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array {
	fused := st.Fuse(func(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array { return act(s, in[0], in[1]) })
	return func(s *mlxc.Scope, gate, up mlxc.Array) mlxc.Array { return fused(s, gate, up) }
}
