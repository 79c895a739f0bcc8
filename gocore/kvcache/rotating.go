package kvcache

import (
	"fmt"

	"axlm/mlxc"
)

// Rotating holds at most size keys and values: the first keep tokens, and the
// last of the others. It bounds the memory of a model that attends to all
// tokens, as mlx_lm's max_kv_size does, and like there what is gone is not
// seen any more.
//
// Its rows lie as mlx_lm's do: one new token takes the place of the oldest
// behind the kept ones; several attend to the rows in the order of their
// positions with their own behind them.
//
// Going back moves the length, as long as nothing was overwritten.
type Rotating struct {
	keys, values mlxc.Array // [B, heads, rows, head size]
	size, keep   int
	length       int // tokens seen
	next         int // the row behind the newest one
	mark         int // length at the checkpoint
}

// NewRotating returns an empty state of at most size rows, of which the first
// keep stay.
func NewRotating(size, keep int) *Rotating { return &Rotating{size: size, keep: keep} }

// Offset implements Layer.
func (c *Rotating) Offset() int { return c.length }

// Room is how many more tokens can be taken back again.
func (c *Rotating) Room() int { return max(0, c.size-c.length) }

// Mask implements Attention. Rows are counted in the order in which they lie,
// not by their positions: that is how mlx_lm sees them.
func (c *Rotating) Mask(s *mlxc.Scope, rows int, dt mlxc.DType) Mask {
	before := min(c.size-1, c.length)
	switch {
	case rows == 1:
		return Mask{}
	case before+rows <= c.size:
		return Mask{Mode: "causal"}
	}
	k := s.Reshape(s.Arange(0, float64(before+rows), 1, mlxc.Int32), 1, before+rows)
	return Mask{Mode: "array", Array: windowMask(s, before, rows, k, c.size, dt)}
}

// Update implements Attention.
func (c *Rotating) Update(s *mlxc.Scope, k, v mlxc.Array) Rows {
	if k.Dim(2) > 1 {
		return c.append(s, k, v)
	}
	at := c.slot(s)
	c.reserve(s, k, v, at+1)
	if s.Err() != nil {
		return Rows{}
	}
	keys, values := writeAt(s, c.keys, k, at), writeAt(s, c.values, v, at)
	if s.Err() != nil {
		return Rows{}
	}
	replace(s, &c.keys, keys)
	replace(s, &c.values, values)
	c.length++
	c.next = at + 1
	n := min(c.length, c.size)
	return Rows{Keys: rowsOf(s, c.keys, 0, n), Values: rowsOf(s, c.values, 0, n)}
}

// slot is the row of the next token.
func (c *Rotating) slot(s *mlxc.Scope) int {
	if c.keys.Valid() && c.keys.Dim(2) > c.size {
		// What several rows left is more than may stay.
		c.set(s, c.ordered(s, c.keys, c.size), c.ordered(s, c.values, c.size))
	}
	if c.next >= c.size {
		return c.keep
	}
	return c.next
}

// append attends to what is held, in order, and the new rows.
func (c *Rotating) append(s *mlxc.Scope, k, v mlxc.Array) Rows {
	keys, values := k, v
	if c.length > 0 {
		keys = s.Concatenate(2, c.ordered(s, c.keys, c.size-1), k)
		values = s.Concatenate(2, c.ordered(s, c.values, c.size-1), v)
	}
	c.set(s, keys, values)
	if s.Err() != nil {
		return Rows{}
	}
	c.length += k.Dim(2)
	return Rows{Keys: c.keys, Values: c.values}
}

// set makes whole buffers the state, the newest row last.
func (c *Rotating) set(s *mlxc.Scope, keys, values mlxc.Array) {
	if s.Err() != nil {
		return
	}
	replace(s, &c.keys, keys)
	replace(s, &c.values, values)
	c.next = c.keys.Dim(2)
}

// ordered is a buffer's rows in the order of their positions: the kept ones and
// of the others the last, at most n in all.
func (c *Rotating) ordered(s *mlxc.Scope, buffer mlxc.Array, n int) mlxc.Array {
	rows := buffer.Dim(2)
	parts := []mlxc.Array{buffer}
	switch {
	case c.next < rows && c.next < c.length: // it went round
		parts = []mlxc.Array{
			rowsOf(s, buffer, 0, c.keep), rowsOf(s, buffer, c.next, rows-c.next), rowsOf(s, buffer, c.keep, c.next-c.keep),
		}
	case c.next < rows:
		parts = []mlxc.Array{rowsOf(s, buffer, 0, c.next)}
		rows = c.next
	}
	all := parts[0]
	if len(parts) > 1 {
		all = s.Concatenate(2, parts...)
	}
	if rows <= n {
		return all
	}
	return s.Concatenate(2, rowsOf(s, all, 0, c.keep), rowsOf(s, all, rows-n+c.keep, n-c.keep))
}

// reserve makes room for n rows.
func (c *Rotating) reserve(s *mlxc.Scope, k, v mlxc.Array, n int) {
	have := 0
	if c.keys.Valid() {
		have = c.keys.Dim(2)
	}
	if n <= have || s.Err() != nil {
		return
	}
	rows := min(roundUp(n), c.size)
	keys, values := grown(s, c.keys, k, have, rows), grown(s, c.values, v, have, rows)
	if s.Err() != nil {
		return
	}
	replace(s, &c.keys, keys)
	replace(s, &c.values, values)
}

// Checkpoint implements Layer.
func (c *Rotating) Checkpoint() { c.mark = c.length }

// Rollback implements Layer. It costs nothing, and is possible as long as no
// row was overwritten.
func (c *Rotating) Rollback(_ *mlxc.Scope, keep int) error {
	target := c.mark + keep
	switch {
	case keep < 0 || target > c.length:
		return fmt.Errorf("cannot keep %d tokens of the %d after the checkpoint", keep, c.length-c.mark)
	case target < c.length && c.length > c.size:
		return fmt.Errorf("cannot go back %d tokens: a cache of %d rows has overwritten them", c.length-target, c.size)
	}
	c.next -= c.length - target
	c.length = target
	return nil
}

// Arrays implements Layer.
func (c *Rotating) Arrays() []mlxc.Array {
	if !c.keys.Valid() {
		return nil
	}
	return []mlxc.Array{c.keys, c.values}
}

// Bytes implements Layer.
func (c *Rotating) Bytes() int { return sumBytes(c.Arrays()) }

// Free implements Layer.
func (c *Rotating) Free() {
	c.keys.Free()
	c.values.Free()
	*c = Rotating{size: c.size, keep: c.keep}
}
