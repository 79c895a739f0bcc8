package nn

import (
	"math"

	"axlm/gocore/kvcache"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// GatedDeltaNet is linear attention by the gated delta rule: a short
// convolution over queries, keys and values, the recurrence, and a gated norm.
type GatedDeltaNet struct {
	QKV, Z, B, A, Out *Linear
	Conv              mlxc.Array // [channels, width, 1]
	ALog, DtBias      mlxc.Array // [value heads]
	Norm              *RMSNorm   // over the value size
	*DeltaParts
}

// DeltaParts are what the GatedDeltaNets of a model share.
type DeltaParts struct {
	DeltaDims
	rule              *DeltaRule
	mixer             *mixKernel // what comes before the rule; nil for operations
	silu, decay, gate Elementwise
}

// DeltaDims are the sizes of a GatedDeltaNet.
type DeltaDims struct {
	KeyHeads, ValueHeads int // the second is a multiple of the first
	KeySize, ValueSize   int // of a head
	Width                int // rows that the convolution reads for one
}

func (d DeltaDims) keys() int   { return d.KeyHeads * d.KeySize }
func (d DeltaDims) values() int { return d.ValueHeads * d.ValueSize }

// channels are the features that the convolution mixes, q, k and v.
func (d DeltaDims) channels() int { return 2*d.keys() + d.values() }

// DeltaParts makes what layers of the given sizes share.
func (st *Store) DeltaParts(d DeltaDims) *DeltaParts {
	return &DeltaParts{
		DeltaDims: d, rule: st.DeltaRule(d.KeySize), mixer: newMixKernel(st),
		silu: st.Fuse(silu), decay: st.Fuse(decay), gate: st.Fuse(preciseGate),
	}
}

// NewState is a layer's empty state.
func (d *DeltaParts) NewState() *kvcache.Recurrent { return kvcache.NewRecurrent(d.rule.Replay) }

// GatedDeltaNet makes the layer's linear attention.
func (l Layer) GatedDeltaNet(hidden int, eps float64, d *DeltaParts) *GatedDeltaNet {
	return &GatedDeltaNet{
		QKV:    l.Linear(weights.LinearAttnQKV, hidden, d.channels(), false),
		Z:      l.Linear(weights.LinearAttnZ, hidden, d.values(), false),
		B:      l.Linear(weights.LinearAttnB, hidden, d.ValueHeads, false),
		A:      l.Linear(weights.LinearAttnA, hidden, d.ValueHeads, false),
		Out:    l.Linear(weights.LinearAttnOut, d.values(), hidden, false),
		Conv:   l.Depthwise(weights.LinearAttnConv, d.channels(), d.Width),
		ALog:   l.Tensor(weights.LinearAttnALog, d.ValueHeads),
		DtBias: l.Tensor(weights.LinearAttnDtBias, d.ValueHeads),
		Norm:   l.RMSNorm(weights.LinearAttnNorm, d.ValueSize, eps), DeltaParts: d,
	}
}

func silu(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array {
	return s.Multiply(in[0], s.Sigmoid(in[0]))
}

// decay is exp(−exp(A_log)·softplus(a + dt_bias)) of A_log, a and dt_bias; in
// float32 from the product on.
func decay(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array {
	x := s.Add(in[1], in[2])
	softplus := s.LogAddExp(x, s.ScalarLike(x, 0))
	return s.Exp(s.Multiply(s.Negative(s.Exp(s.AsType(in[0], mlxc.Float32))), softplus))
}

// preciseGate is silu(z)·x in float32 of z, x and an array whose type the
// result has.
func preciseGate(s *mlxc.Scope, in ...mlxc.Array) mlxc.Array {
	z, x := s.AsType(in[0], mlxc.Float32), s.AsType(in[1], mlxc.Float32)
	return s.AsType(s.Multiply(silu(s, z), x), in[2].DType())
}

// Forward maps x [B, T, dim] to [B, T, dim], taking the tokens into the states.
func (l *GatedDeltaNet) Forward(s *mlxc.Scope, x mlxc.Array, p *Packed, states []*kvcache.Recurrent) mlxc.Array {
	batch, length := x.Dim(0), x.Dim(1)
	qkv, z := l.QKV.Forward(s, x), l.Z.Forward(s, x)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	inputs, as, bs := p.split(s, qkv, 1), p.split(s, l.A.Forward(s, x), 1), p.split(s, l.B.Forward(s, x), 1)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	outputs := make([]mlxc.Array, len(states))
	for i, state := range states {
		outputs[i] = l.recur(s, inputs[i], as[i], bs[i], state)
	}
	y := p.join(s, outputs, 1)
	y = l.gate(s, s.Reshape(z, batch, length, l.ValueHeads, -1), l.Norm.Forward(s, y), y)
	return l.Out.Forward(s, s.Reshape(y, batch, length, -1))
}

// recur takes one request's tokens, qkv [B, T, channels] and a and b
// [B, T, value heads], into its state and returns [B, T, value heads, value size].
func (l *GatedDeltaNet) recur(s *mlxc.Scope, qkv, a, b mlxc.Array, state *kvcache.Recurrent) mlxc.Array {
	if s.Err() != nil {
		return mlxc.Array{}
	}
	window := state.Window(s, qkv, l.Width)
	rows := l.mix(s, window, a, b, qkv.Dim(1))
	y, next := l.rule.Forward(s, rows, state.State())
	if s.Err() != nil {
		return mlxc.Array{}
	}
	state.Update(s, kvcache.RecurrentRows{Conv: window, K: rows.K, V: rows.V, G: rows.G, Beta: rows.Beta}, next)
	return y
}

// mix makes the recurrence's inputs: of window, the rows that the convolution
// reads, q, k and v; of a and b, decay and strength.
func (l *GatedDeltaNet) mix(s *mlxc.Scope, window, a, b mlxc.Array, length int) DeltaRows {
	if s.Err() != nil {
		return DeltaRows{}
	}
	if l.mixer != nil {
		if rows, ok := l.mixFused(s, window, a, b, length); ok {
			return rows
		}
	}
	mixed := l.silu(s, s.Conv1d(window, l.Conv, 1, 0, 1, l.channels()))
	parts := s.SplitAt(mixed, -1, l.keys(), 2*l.keys())
	if s.Err() != nil {
		return DeltaRows{}
	}
	heads := func(a mlxc.Array, n int) mlxc.Array { return s.Reshape(a, window.Dim(0), length, n, -1) }
	scale := 1 / math.Sqrt(float64(l.KeySize))
	return DeltaRows{
		Q:    l.unit(s, heads(parts[0], l.KeyHeads), scale*scale),
		K:    l.unit(s, heads(parts[1], l.KeyHeads), scale),
		V:    heads(parts[2], l.ValueHeads),
		G:    l.decay(s, l.ALog, a, l.DtBias),
		Beta: s.Sigmoid(b),
	}
}

// mixFused is mix as one kernel; not if its inputs are of several types, but
// for A_log, which may have its own.
func (l *GatedDeltaNet) mixFused(s *mlxc.Scope, window, a, b mlxc.Array, length int) (DeltaRows, bool) {
	dt := window.DType()
	for _, other := range []mlxc.Array{a, b, l.Conv, l.DtBias} {
		if other.DType() != dt {
			return DeltaRows{}, false
		}
	}
	launch := mixLaunch{batch: window.Dim(0), length: length, DeltaDims: l.DeltaDims, rows: dt, log: l.ALog.DType()}
	out := l.mixer.apply(s, launch, mixLaunch.describe, window, l.Conv, a, b, l.ALog, l.DtBias)
	if len(out) != 5 {
		return DeltaRows{}, true
	}
	return DeltaRows{Q: out[0], K: out[1], V: out[2], G: out[3], Beta: out[4]}, true
}

// unit is factor·x/|x| of each head times the root of the key size. The
// reference adds its epsilon to the sum of squares, MLX to their mean.
func (l *GatedDeltaNet) unit(s *mlxc.Scope, x mlxc.Array, factor float64) mlxc.Array {
	x = s.RMSNorm(x, mlxc.Array{}, float32(1e-6/float64(l.KeySize)))
	return s.Multiply(s.ScalarLike(x, float32(factor)), x)
}
