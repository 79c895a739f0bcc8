package kvcache

import (
	"fmt"

	"axlm/mlxc"
)

// Quantised holds the keys and values of every token quantised along the head
// size, in buffers that grow by Step. Going back moves the length.
type Quantised struct {
	form         QuantForm
	keys, values [3]mlxc.Array // weight, scales, biases: [B, heads, capacity, …]
	length       int           // tokens held
	mark         int           // length at the checkpoint
}

// NewQuantised returns an empty state.
func NewQuantised(form QuantForm) *Quantised { return &Quantised{form: form} }

// Offset implements Layer.
func (c *Quantised) Offset() int { return c.length }

// Mask implements Attention.
func (c *Quantised) Mask(s *mlxc.Scope, rows int, dt mlxc.DType) Mask {
	if rows == 1 {
		return Mask{}
	}
	return Mask{Mode: "array", Array: causalMask(s, c.length, rows, c.length+rows, dt)}
}

// Update implements Attention.
func (c *Quantised) Update(s *mlxc.Scope, k, v mlxc.Array) Rows {
	end := c.length + k.Dim(2)
	keys, values := c.append(s, &c.keys, k, end), c.append(s, &c.values, v, end)
	if s.Err() != nil {
		return Rows{}
	}
	c.length = end
	return Rows{Quantised: &QuantisedRows{Keys: keys, Values: values, Form: c.form}}
}

// append writes rows behind those held and returns all of them.
func (c *Quantised) append(s *mlxc.Scope, buffers *[3]mlxc.Array, rows mlxc.Array, end int) Packed {
	parts := s.Quantize(rows, c.form.GroupSize, c.form.Bits, "affine")
	if s.Err() != nil {
		return Packed{}
	}
	var out [3]mlxc.Array
	for i, part := range parts[:3] {
		buffer := &buffers[i]
		if have := buffer.Dim(2); end > have {
			larger := grown(s, *buffer, part, have, roundUp(end))
			if s.Err() != nil {
				return Packed{}
			}
			replace(s, buffer, larger)
		}
		written := writeAt(s, *buffer, part, c.length)
		if s.Err() != nil {
			return Packed{}
		}
		replace(s, buffer, written)
		out[i] = rowsOf(s, written, 0, end)
	}
	return Packed{Weight: out[0], Scales: out[1], Biases: out[2]}
}

// Quantised is the state as if it had been kept quantised from the beginning;
// c is empty afterwards.
func (c *Full) Quantised(s *mlxc.Scope, form QuantForm) (*Quantised, error) {
	q := &Quantised{form: form, length: c.length, mark: c.mark}
	if c.keys.Valid() {
		for side, a := range []mlxc.Array{c.keys, c.values} {
			parts := s.Quantize(a, form.GroupSize, form.Bits, "affine")
			if s.Err() != nil {
				q.Free()
				return nil, fmt.Errorf("quantising the KV cache: %w", s.Err())
			}
			for i, part := range parts[:3] {
				q.sides()[side][i] = s.Keep(part)
			}
		}
	}
	c.Free()
	return q, nil
}

func (c *Quantised) sides() [2]*[3]mlxc.Array { return [2]*[3]mlxc.Array{&c.keys, &c.values} }

// Checkpoint implements Layer.
func (c *Quantised) Checkpoint() { c.mark = c.length }

// Rollback implements Layer; it costs nothing.
func (c *Quantised) Rollback(_ *mlxc.Scope, keep int) error {
	if keep < 0 || c.mark+keep > c.length {
		return fmt.Errorf("cannot keep %d tokens of the %d after the checkpoint", keep, c.length-c.mark)
	}
	c.length = c.mark + keep
	return nil
}

// Arrays implements Layer.
func (c *Quantised) Arrays() []mlxc.Array {
	if !c.keys[0].Valid() {
		return nil
	}
	return append(c.keys[:], c.values[:]...)
}

// Bytes implements Layer.
func (c *Quantised) Bytes() int { return sumBytes(c.Arrays()) }

// Free implements Layer.
func (c *Quantised) Free() {
	for _, a := range c.Arrays() {
		a.Free()
	}
	*c = Quantised{form: c.form}
}

func sumBytes(arrays []mlxc.Array) int {
	n := 0
	for _, a := range arrays {
		n += a.NBytes()
	}
	return n
}
