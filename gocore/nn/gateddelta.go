package nn

import (
	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// DeltaRule is the gated delta recurrence. For each token and value head, with
// state S [value size, key size], decay g and strength β:
//
//	S ← g·S;  S ← S + β·(v − S·k)·kᵀ;  y = S·q
//
// Heads of q and k are shared by groups of value heads. On a GPU one kernel of
// ours runs over all tokens with the state in registers; elsewhere, and for key
// sizes that its lanes do not divide, it is a loop of operations.
type DeltaRule struct {
	kernel *deltaKernel // nil for the loop
}

// DeltaRule makes the recurrence for heads of the given key size.
func (st *Store) DeltaRule(keySize int) *DeltaRule {
	return &DeltaRule{kernel: newDeltaKernel(st, keySize)}
}

// DeltaRows are T tokens' inputs: Q and K are [B, T, key heads, key size], V is
// [B, T, value heads, value size], all of one type, G (float32) and Beta are
// [B, T, value heads].
type DeltaRows struct{ Q, K, V, G, Beta mlxc.Array }

// Forward returns y [B, T, value heads, value size] in Q's type, and the state
// after the rows, [B, value heads, value size, key size] in float32. The state
// before them is none for zeros.
func (d *DeltaRule) Forward(s *mlxc.Scope, in DeltaRows, state mlxc.Array) (y, next mlxc.Array) {
	if s.Err() != nil {
		return mlxc.Array{}, mlxc.Array{}
	}
	if !state.Valid() {
		state = s.Zeros(mlxc.Float32, in.V.Dim(0), in.V.Dim(2), in.V.Dim(3), in.K.Dim(3))
	}
	if d.kernel != nil {
		return runDelta(d.kernel, s, in, state)
	}
	return deltaLoop(s, in, state)
}

// Replay is the kvcache.Recurrence: the state without the outputs. It runs the
// very same recurrence, with any query, since the state does not depend on it.
func (d *DeltaRule) Replay(s *mlxc.Scope, state mlxc.Array, rows kvcache.RecurrentRows) mlxc.Array {
	_, next := d.Forward(s, DeltaRows{Q: rows.K, K: rows.K, V: rows.V, G: rows.G, Beta: rows.Beta}, state)
	return next
}

// deltaLoop is the recurrence in mlx_lm's operations, token by token. Tokens
// keep their axis, [B, 1, heads, …], so that a token costs arithmetic only.
func deltaLoop(s *mlxc.Scope, in DeltaRows, state mlxc.Array) (y, next mlxc.Array) {
	batch, length, heads := in.V.Dim(0), in.V.Dim(1), in.V.Dim(2)
	keySize, valueSize := in.K.Dim(3), in.V.Dim(3)
	if group := heads / in.K.Dim(2); group > 1 {
		in.Q, in.K = s.Repeat(in.Q, group, 2), s.Repeat(in.K, group, 2)
	}
	tokens := func(a mlxc.Array, rows, columns int) []mlxc.Array {
		return s.Split(s.Reshape(a, batch, length, heads, rows, columns), length, 1)
	}
	q, k, v := tokens(in.Q, 1, keySize), tokens(in.K, 1, keySize), tokens(in.V, valueSize, 1)
	g, beta := tokens(in.G, 1, 1), tokens(in.Beta, 1, 1)
	if s.Err() != nil {
		return mlxc.Array{}, mlxc.Array{}
	}
	state = s.ExpandDims(state, 1)
	outputs := make([]mlxc.Array, length)
	for t := range length {
		state = s.Multiply(state, g[t])
		recalled := s.Sum(s.Multiply(state, k[t]), -1, true)
		delta := s.Multiply(s.Subtract(v[t], recalled), beta[t])
		state = s.Add(state, s.Multiply(k[t], delta))
		outputs[t] = s.Sum(s.Multiply(state, q[t]), -1, false)
	}
	return s.AsType(s.Concatenate(1, outputs...), in.Q.DType()), s.Squeeze(state, 1)
}
