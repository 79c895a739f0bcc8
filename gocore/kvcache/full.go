package kvcache

import (
	"fmt"
	"math"

	"axlm/mlxc"
)

// Full holds the keys and values of every token in buffers that grow by Step.
// Going back moves the length: what lies beyond it is written over later.
type Full struct {
	keys, values mlxc.Array // [B, heads, capacity, head size]
	length       int        // tokens held
	capacity     int        // tokens that fit
	mark         int        // length at the checkpoint
	pad          bool
}

// NewFull returns an empty state. With pad, several rows at once attend over a
// view of one of few lengths, under a mask: for backends where every new
// attention length costs a plan of its own (CUDA's cuDNN).
func NewFull(pad bool) *Full { return &Full{pad: pad} }

// Offset counts the tokens held.
func (c *Full) Offset() int { return c.length }

// view is how many keys rows new queries attend over.
func (c *Full) view(rows int) int {
	n := c.length + rows
	if c.pad && rows > 1 {
		n = padded(n)
	}
	return n
}

// padded is the length of a view of n keys: of few different lengths, since a
// backend plans for each, and at most a quarter longer.
func padded(n int) int {
	step := Step
	for 4*step < n {
		step *= 2
	}
	return (n + step - 1) / step * step
}

// Mask implements Attention.
func (c *Full) Mask(s *mlxc.Scope, rows int, dt mlxc.DType) Mask {
	switch {
	case rows == 1:
		return Mask{}
	case c.view(rows) == c.length+rows:
		return Mask{Mode: "causal"}
	}
	return Mask{Mode: "array", Array: causalMask(s, c.length, rows, c.view(rows), dt)}
}

// causalMask is 0 where query offset+i may see key j, and −inf elsewhere.
func causalMask(s *mlxc.Scope, offset, rows, keys int, dt mlxc.DType) mlxc.Array {
	q := s.Reshape(s.Arange(float64(offset), float64(offset+rows), 1, mlxc.Int32), rows, 1)
	k := s.Reshape(s.Arange(0, float64(keys), 1, mlxc.Int32), 1, keys)
	return s.Where(s.GreaterEqual(q, k), s.Scalar(0, dt), s.Scalar(float32(math.Inf(-1)), dt))
}

// Update implements Attention.
func (c *Full) Update(s *mlxc.Scope, k, v mlxc.Array) Rows {
	rows := k.Dim(2)
	view := c.view(rows)
	end := c.length + rows
	c.reserve(s, k, v, view)
	keys := writeAt(s, c.keys, k, c.length)
	values := writeAt(s, c.values, v, c.length)
	if s.Err() != nil {
		return Rows{}
	}
	replace(s, &c.keys, keys)
	replace(s, &c.values, values)
	c.length = end
	return Rows{Keys: rowsOf(s, keys, 0, view), Values: rowsOf(s, values, 0, view)}
}

// reserve makes room for n tokens.
func (c *Full) reserve(s *mlxc.Scope, k, v mlxc.Array, n int) {
	if n <= c.capacity {
		return
	}
	capacity := roundUp(n)
	keys, values := grown(s, c.keys, k, c.capacity, capacity), grown(s, c.values, v, c.capacity, capacity)
	if s.Err() != nil {
		return
	}
	replace(s, &c.keys, keys)
	replace(s, &c.values, values)
	c.capacity = capacity
}

// grown is old, of have tokens, with room for want of sample's shape.
func grown(s *mlxc.Scope, old, sample mlxc.Array, have, want int) mlxc.Array {
	added := s.Zeros(sample.DType(), sample.Dim(0), sample.Dim(1), want-have, sample.Dim(3))
	if !old.Valid() {
		return added
	}
	return s.Concatenate(2, old, added)
}

// Checkpoint implements Layer.
func (c *Full) Checkpoint() { c.mark = c.length }

// Rollback implements Layer; it costs nothing.
func (c *Full) Rollback(_ *mlxc.Scope, keep int) error {
	if keep < 0 || c.mark+keep > c.length {
		return fmt.Errorf("cannot keep %d tokens of the %d after the checkpoint", keep, c.length-c.mark)
	}
	c.length = c.mark + keep
	return nil
}

// Arrays implements Layer.
func (c *Full) Arrays() []mlxc.Array {
	if !c.keys.Valid() {
		return nil
	}
	return []mlxc.Array{c.keys, c.values}
}

// Bytes implements Layer.
func (c *Full) Bytes() int { return sumBytes(c.Arrays()) }

// Free implements Layer.
func (c *Full) Free() {
	c.keys.Free()
	c.values.Free()
	*c = Full{pad: c.pad}
}

// writeAt puts update into the buffer from position at on.
func writeAt(s *mlxc.Scope, buffer, update mlxc.Array, at int) mlxc.Array {
	b, h, n, d := update.Dim(0), update.Dim(1), update.Dim(2), update.Dim(3)
	return s.SliceUpdate(buffer, update, []int{0, 0, at, 0}, []int{b, h, at + n, d})
}

// replace gives up the handle of the old array at once: MLX writes into a
// buffer in place only when nobody else holds it.
func replace(s *mlxc.Scope, slot *mlxc.Array, a mlxc.Array) {
	slot.Free()
	*slot = s.Keep(a)
}

func roundUp(n int) int { return (n + Step - 1) / Step * Step }
