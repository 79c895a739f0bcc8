package nn

import "axlm/mlxc"

// multiply is x·Wᵀ for a quantised W.
func (m *Matrix) multiply(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	q := m.Quant
	return s.QuantizedMatmul(x, m.Weight, m.Scales, m.Biases, true, q.GroupSize, q.Bits, q.Mode)
}

// Linear is x·Wᵀ (+ b), with W plain, then kept as Wᵀ [in, out], or quantised,
// packed along its inputs.
type Linear struct {
	Matrix
	In, Out int
	adapter *LowRank // nil for none
}

// Forward maps x [..., in] to [..., out].
func (l *Linear) Forward(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	if l.adapter != nil {
		return l.adapter.forward(s, l, x)
	}
	return l.plain(s, x)
}

// plain is Forward without an adapter.
func (l *Linear) plain(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	switch {
	case l.Quant == nil && l.Bias.Valid():
		return s.AddMM(l.Bias, x, l.Weight, 1, 1)
	case l.Bias.Valid():
		return s.Add(l.product(s, x), l.Bias)
	}
	return l.product(s, x)
}

// product is x·Wᵀ.
func (l *Linear) product(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	if l.Quant == nil {
		return s.Matmul(x, l.Weight)
	}
	return l.multiply(s, x)
}

// Embedding maps token ids to rows of a table [vocab, dim], plain or
// quantised.
type Embedding struct {
	Matrix
	transposed mlxc.Array // plain: a view [dim, vocab] for AsLinear
	Vocab, Dim int
	adapter    *LowRank // nil for none
}

// Forward maps ids [...] to rows [..., dim].
func (e *Embedding) Forward(s *mlxc.Scope, ids mlxc.Array) mlxc.Array {
	rows := e.look(s, ids)
	if e.adapter != nil {
		return e.adapter.look(s, ids, rows)
	}
	return rows
}

func (e *Embedding) look(s *mlxc.Scope, ids mlxc.Array) mlxc.Array {
	rows := s.Take(e.Weight, ids, 0)
	if e.Quant == nil {
		return rows
	}
	var biases mlxc.Array
	if e.Biases.Valid() {
		biases = s.Take(e.Biases, ids, 0)
	}
	q := e.Quant
	return s.Dequantize(rows, s.Take(e.Scales, ids, 0), biases, q.GroupSize, q.Bits, q.Mode, mlxc.AnyDType)
}

// AsLinear uses the table as the output head: x [..., dim] to logits [..., vocab].
func (e *Embedding) AsLinear(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	var y mlxc.Array
	if e.Quant == nil {
		y = s.Matmul(x, e.transposed)
	} else {
		y = e.multiply(s, x)
	}
	if e.adapter != nil {
		return e.adapter.head(s, x, y)
	}
	return y
}

// RMSNorm divides by the root mean square over the last axis and scales by a
// weight; without a weight it only divides.
type RMSNorm struct {
	Weight mlxc.Array
	Eps    float32
}

// Forward normalises x [..., dim].
func (n *RMSNorm) Forward(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	return s.RMSNorm(x, n.Weight, n.Eps)
}
