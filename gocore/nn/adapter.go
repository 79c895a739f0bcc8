package nn

import (
	"axlm/gocore/errs"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// LowRank is what an adapter does to a layer's output y: it adds
// Scale·(x·A)·B. A DoRA then multiplies each output by its Factor.
type LowRank struct {
	A, B   mlxc.Array // as the layer multiplies by them, see its constructor
	Scale  float32
	Factor mlxc.Array // [out], none for a LoRA
}

// Adapt makes the layers that are built from now on those of an adapter, whose
// file's arrays the store takes over.
func (st *Store) Adapt(a *weights.Adapter, arrays map[string]mlxc.Array) error {
	st.adapter, st.adapterArrays = a, arrays
	d, err := st.folder.Describe()
	if err != nil {
		return err
	}
	a.ForLayers(d.Dimensions.Layers)
	return nil
}

// Adapter is what the layers have beside their weights, for other layers to
// take, and its arrays, which stay the store's. It is nil for none, and for one
// that replaces weights.
func (st *Store) Adapter() (*weights.Adapter, map[string]mlxc.Array) {
	if st.adapter == nil || st.adapter.Type == weights.AdapterFull {
		return nil, nil
	}
	return st.adapter.Again(), st.adapterArrays
}

// asPublished refuses an adapter that replaces tensors: it knows them as mlx_lm
// converts them.
func (st *Store) asPublished() {
	if st.adapter != nil && st.adapter.Type == weights.AdapterFull {
		st.Fail(errs.NotImplemented("%s: an adapter of type full wants converted weights, and these are as published", st.adapter.Dir))
	}
}

// lowRank finds the adapter of the layer at path; nil for none. The arrays are
// as the file has them.
func (st *Store) lowRank(path string, shape weights.LowRankShape) (l *LowRank, magnitude mlxc.Array) {
	found, ok := st.adapter.LowRank(path, shape)
	if !ok {
		return nil, mlxc.Array{}
	}
	l = &LowRank{A: st.adapterArray(found.A), B: st.adapterArray(found.B), Scale: float32(st.adapter.Scale)}
	if found.Magnitude.Name != "" {
		magnitude = st.adapterArray(found.Magnitude)
	}
	return l, magnitude
}

func (st *Store) adapterArray(t weights.Tensor) mlxc.Array {
	a, ok := st.adapterArrays[t.Name]
	if !ok {
		st.Fail(errs.Internal("%s: MLX did not find tensor %s", st.adapter.Path(), t.Name))
	}
	return a
}

// adaptLinear gives a linear layer its adapter: A [in, rank], B [rank, out].
func (st *Store) adaptLinear(l *Linear, path string) {
	adapter, magnitude := st.lowRank(path, func(rank int) (a, b, m []int) {
		return []int{l.In, rank}, []int{rank, l.Out}, []int{l.Out}
	})
	if adapter != nil && magnitude.Valid() {
		adapter.Factor = st.derive(func(s *mlxc.Scope) mlxc.Array {
			rows := l.rows(s)
			if l.Quant == nil {
				rows = s.Transpose(rows, 1, 0)
			}
			delta := s.Multiply(s.ScalarLike(adapter.B, adapter.Scale), s.Transpose(adapter.B, 1, 0))
			return rowFactor(s, magnitude, s.Add(rows, s.Matmul(delta, s.Transpose(adapter.A, 1, 0))))
		})
	}
	l.adapter = adapter
}

// adaptSwitch gives experts their adapters: views A [experts, in, rank] and
// B [experts, rank, out] of what is stored the other way round.
func (st *Store) adaptSwitch(l *SwitchLinear, path string, experts, in, out int) {
	if st.adapter.Has(path) && st.adapter.Type == weights.AdapterDoRA {
		st.adapter.Unsupported(path, "experts have no DoRA")
		return
	}
	adapter, _ := st.lowRank(path, func(rank int) (a, b, m []int) {
		return []int{experts, rank, in}, []int{experts, out, rank}, nil
	})
	if adapter != nil && st.Err() == nil {
		adapter.A = st.view(st.scope.SwapAxes(adapter.A, -1, -2))
		adapter.B = st.view(st.scope.SwapAxes(adapter.B, -1, -2))
	}
	l.adapter = adapter
}

// adaptEmbedding gives a table its adapter: A [vocab, rank], B [rank, dim].
func (st *Store) adaptEmbedding(e *Embedding, path string) {
	adapter, magnitude := st.lowRank(path, func(rank int) (a, b, m []int) {
		return []int{e.Vocab, rank}, []int{rank, e.Dim}, []int{e.Vocab}
	})
	switch {
	case adapter == nil:
		return
	case magnitude.Valid() && e.Quant != nil:
		st.adapter.Unsupported(path, "a quantised embedding has no DoRA")
		return
	case magnitude.Valid():
		adapter.Factor = st.derive(func(s *mlxc.Scope) mlxc.Array {
			delta := s.Matmul(s.Multiply(s.ScalarLike(adapter.A, adapter.Scale), adapter.A), adapter.B)
			return rowFactor(s, magnitude, s.Add(e.Weight, delta))
		})
	}
	e.adapter = adapter
}

// rows is the weight itself, unpacked: Wᵀ [in, out] where it is plain.
func (m *Matrix) rows(s *mlxc.Scope) mlxc.Array {
	if q := m.Quant; q != nil {
		return s.Dequantize(m.Weight, m.Scales, m.Biases, q.GroupSize, q.Bits, q.Mode, mlxc.AnyDType)
	}
	return m.Weight
}

// rowFactor is what makes each row of w as long as magnitude says.
func rowFactor(s *mlxc.Scope, magnitude, w mlxc.Array) mlxc.Array {
	return s.Divide(magnitude, s.Sqrt(s.Sum(s.Square(w), -1, false)))
}

// add is y with the low-rank part for the inputs x added.
func (l *LowRank) add(s *mlxc.Scope, x, y mlxc.Array) mlxc.Array {
	return l.plus(s, y, s.Matmul(s.Matmul(x, l.A), l.B), x)
}

// plus is y + Scale·z, the product in the type of z and rounded to that of like.
func (l *LowRank) plus(s *mlxc.Scope, y, z, like mlxc.Array) mlxc.Array {
	z = s.Multiply(s.ScalarLike(z, l.Scale), z)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	return s.Add(y, s.AsType(z, like.DType()))
}

// forward is a linear layer with its adapter.
func (l *LowRank) forward(s *mlxc.Scope, base *Linear, x mlxc.Array) mlxc.Array {
	if !l.Factor.Valid() {
		return l.add(s, x, base.plain(s, x))
	}
	y := l.add(s, x, base.product(s, x))
	if s.Err() != nil {
		return mlxc.Array{}
	}
	y = s.Multiply(s.AsType(l.Factor, x.DType()), y)
	if base.Bias.Valid() {
		y = s.Add(y, base.Bias)
	}
	return y
}

// gather is add for rows that take their own experts.
func (l *LowRank) gather(s *mlxc.Scope, x, y, experts mlxc.Array, sorted bool) mlxc.Array {
	z := s.GatherMM(x, l.A, mlxc.Array{}, experts, sorted)
	return l.plus(s, y, s.GatherMM(z, l.B, mlxc.Array{}, experts, sorted), x)
}

// look is y, rows of a table, with those of the adapter added. The factor of a
// DoRA is not rounded to the rows' type.
func (l *LowRank) look(s *mlxc.Scope, ids, y mlxc.Array) mlxc.Array {
	a := s.Take(l.A, ids, 0)
	if !l.Factor.Valid() {
		return l.plus(s, y, s.Matmul(a, l.B), y)
	}
	z := s.Matmul(s.Multiply(s.ScalarLike(a, l.Scale), a), l.B)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	y = s.Add(y, s.AsType(z, y.DType()))
	return s.Multiply(s.ExpandDims(s.Take(l.Factor, ids, 0), -1), y)
}

// head is y, logits of a table, with those of the adapter added.
func (l *LowRank) head(s *mlxc.Scope, x, y mlxc.Array) mlxc.Array {
	z := s.Matmul(s.Matmul(x, s.Transpose(l.B, 1, 0)), s.Transpose(l.A, 1, 0))
	y = l.plus(s, y, z, x)
	if l.Factor.Valid() {
		y = s.Multiply(l.Factor, y)
	}
	return y
}
