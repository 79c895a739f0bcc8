package kvcache

import (
	"fmt"
	"math"

	"axlm/mlxc"
)

// Window holds the keys and values of a layer whose queries see the last size
// tokens, themselves included.
//
// They lie in a ring of size rows, so that memory stays bounded however long
// the text is: one new token takes the place of the one that leaves the window,
// and attends to the ring as it lies. The rows' order is then mlx_lm's, and so
// are the last bits of half-precision sums.
//
// The rows of a verification must not overwrite what is seen again if they are
// rejected. They go into a tail behind the ring, and what was kept of them into
// the ring with the next forward. The tail exists from the first verification
// on. A prompt attends to the ring's rows in the order of their positions with
// its own behind them, and leaves its last ones as the new ring.
//
// Going back moves a number, as in Full: to anywhere in a forward of at most
// MaxReplay rows that followed a checkpoint, and to before the last token
// always. As long as the text fits the window nothing is overwritten, and any
// token can be taken back.
type Window struct {
	keys, values mlxc.Array // [B, heads, capacity, head size]: the ring, then the tail
	size         int        // tokens that a query sees; rows of the ring
	capacity     int        // rows that there are: up to size for the ring alone, else with the tail
	origin       int        // the positions of row 0, modulo size
	ringed       int        // the ring holds the last tokens before this position
	gone         int        // and none before this one
	pending      struct {   // the tokens from ringed on, which lie in the tail
		keys, values mlxc.Array // [B, heads, rows, head size]
		rows         int        // how many of them are still wanted
	}
	mark     int  // position of the checkpoint
	announce bool // the next forward follows a checkpoint
	pad      bool
}

// NewWindow returns an empty state for a window of size tokens. pad is as in
// NewFull.
func NewWindow(size int, pad bool) *Window { return &Window{size: size, pad: pad} }

// Offset implements Layer.
func (c *Window) Offset() int { return c.ringed + c.pending.rows }

// Size is how many tokens a query sees.
func (c *Window) Size() int { return c.size }

// seen is the first position that a query at position p sees.
func (c *Window) seen(p int) int { return max(0, p-c.size+1) }

// slot is the ring's row for a position.
func (c *Window) slot(position int) int { return (position - c.origin + c.size) % c.size }

// way is how a forward's rows enter the state.
type way int

const (
	stepping  way = iota // one row: it takes the place of the oldest
	filling              // the ring has room for all
	verifying            // into the tail
	prompting            // the rows before and the new ones make a new ring
)

func (c *Window) way(rows int) way {
	switch {
	case rows == 1:
		return stepping
	case c.Offset()+rows <= c.size:
		return filling
	case c.announce && rows <= MaxReplay:
		return verifying
	}
	return prompting
}

// view is how many keys rows new queries attend over.
func (c *Window) view(rows int, w way) int {
	offset := c.Offset()
	switch n := offset + rows; {
	case w == stepping:
		return min(n, c.size)
	case w == filling && c.pad:
		return min(padded(n), c.size)
	case w == filling:
		return n
	case w == verifying && c.pad:
		return c.size + MaxReplay
	case w == verifying:
		return c.size + rows
	case c.pad:
		return padded(n - c.seen(offset))
	default:
		return n - c.seen(offset)
	}
}

// Mask implements Attention.
func (c *Window) Mask(s *mlxc.Scope, rows int, dt mlxc.DType) Mask {
	w, offset := c.way(rows), c.Offset()
	keys := c.view(rows, w)
	switch {
	case w == stepping:
		return Mask{}
	case w == filling && keys == offset+rows:
		return Mask{Mode: "causal"}
	case w == verifying:
		return Mask{Mode: "array", Array: c.mask(s, rows, s.FromInt32s(c.positions(keys), 1, keys), dt)}
	}
	first := 0
	if w == prompting {
		first = c.seen(offset)
	}
	k := s.Arange(float64(first), float64(first+keys), 1, mlxc.Int32)
	return Mask{Mode: "array", Array: c.mask(s, rows, s.Reshape(k, 1, keys), dt)}
}

// positions are those of the first n rows, as far as the next forward's queries
// may see them; the tail's rows are counted on from the ring's last.
func (c *Window) positions(n int) []int32 {
	out := make([]int32, n)
	offset := c.Offset()
	newest := c.slot(offset - 1)
	for row := range out {
		position := offset - 1 - newest + row // in the ring's last round
		switch {
		case row >= c.size:
			position = offset + row - c.size
		case row > newest:
			position -= c.size
		}
		if position < 0 {
			position = math.MaxInt32 // nothing was written there yet
		}
		out[row] = int32(position)
	}
	return out
}

// mask is windowMask for the next rows; keys [1, n] are positions.
func (c *Window) mask(s *mlxc.Scope, rows int, keys mlxc.Array, dt mlxc.DType) mlxc.Array {
	return windowMask(s, c.Offset(), rows, keys, c.size, dt)
}

// windowMask is 0 where query offset+i may see a key of keys [1, n], the last
// size up to its own, and −inf elsewhere.
func windowMask(s *mlxc.Scope, offset, rows int, keys mlxc.Array, size int, dt mlxc.DType) mlxc.Array {
	q := s.Reshape(s.Arange(float64(offset), float64(offset+rows), 1, mlxc.Int32), rows, 1)
	oldest := s.Subtract(q, s.ScalarInt(size, mlxc.Int32))
	visible := s.LogicalAnd(s.LessEqual(keys, q), s.Greater(keys, oldest))
	return s.Where(visible, s.Scalar(0, dt), s.Scalar(float32(math.Inf(-1)), dt))
}

// Update implements Attention.
func (c *Window) Update(s *mlxc.Scope, k, v mlxc.Array) Rows {
	rows := k.Dim(2)
	w := c.way(rows)
	n := c.view(rows, w)
	c.settle(s)
	if s.Err() != nil {
		return Rows{}
	}
	c.announce = false
	if w == prompting {
		return c.prompt(s, k, v, n)
	}
	at := c.slot(c.ringed)
	if w == verifying {
		at = c.size
		c.reserve(s, k, v, c.size+MaxReplay)
	} else {
		c.reserve(s, k, v, n)
	}
	c.write(s, k, v, at)
	if w == verifying {
		c.pending.keys, c.pending.values = s.Keep(k), s.Keep(v)
	}
	if s.Err() != nil {
		return Rows{}
	}
	if w == verifying {
		c.pending.rows = rows
	} else {
		c.advance(rows)
	}
	return Rows{Keys: rowsOf(s, c.keys, 0, n), Values: rowsOf(s, c.values, 0, n)}
}

// advance counts rows that were written into the ring.
func (c *Window) advance(rows int) {
	c.ringed += rows
	c.gone = max(c.gone, c.ringed-c.size)
}

// settle moves the pending rows into the ring.
func (c *Window) settle(s *mlxc.Scope) {
	rows := c.pending.rows
	for done := 0; done < rows; {
		at := c.slot(c.ringed + done)
		n := min(rows-done, c.size-at)
		c.write(s, rowsOf(s, c.pending.keys, done, n), rowsOf(s, c.pending.values, done, n), at)
		done += n
	}
	if s.Err() != nil {
		return
	}
	c.advance(rows)
	c.dropPending()
}

func (c *Window) dropPending() {
	c.pending.keys.Free()
	c.pending.values.Free()
	c.pending.keys, c.pending.values, c.pending.rows = mlxc.Array{}, mlxc.Array{}, 0
}

// prompt attends to what the window holds and the new rows, n keys in all, in
// the order of their positions, and makes the last ones the ring.
func (c *Window) prompt(s *mlxc.Scope, k, v mlxc.Array, n int) Rows {
	end := c.ringed + k.Dim(2)
	held := end - c.seen(c.ringed)
	keys, values := c.ordered(s, c.keys, k, n), c.ordered(s, c.values, v, n)
	// MLX copies them where a view would hold on to a much larger buffer.
	ring := func(a mlxc.Array) mlxc.Array { return s.Contiguous(rowsOf(s, a, held-c.size, c.size)) }
	ringKeys, ringValues := ring(keys), ring(values)
	if s.Err() != nil {
		return Rows{}
	}
	replace(s, &c.keys, ringKeys)
	replace(s, &c.values, ringValues)
	c.capacity, c.ringed, c.gone = c.size, end, end-c.size
	c.origin = c.gone % c.size
	return Rows{Keys: keys, Values: values}
}

// ordered is the rows that the next query sees, then added, then zeros, n in
// all.
func (c *Window) ordered(s *mlxc.Scope, buffer, added mlxc.Array, n int) mlxc.Array {
	parts := make([]mlxc.Array, 0, 4)
	first := c.seen(c.ringed)
	if rows := c.ringed - first; rows > 0 {
		at := c.slot(first)
		straight := min(rows, c.size-at)
		parts = append(parts, rowsOf(s, buffer, at, straight))
		if rows > straight {
			parts = append(parts, rowsOf(s, buffer, 0, rows-straight))
		}
	}
	parts = append(parts, added)
	if room := n - (c.ringed - first) - added.Dim(2); room > 0 {
		parts = append(parts, s.Zeros(added.DType(), added.Dim(0), added.Dim(1), room, added.Dim(3)))
	}
	if len(parts) == 1 {
		return added
	}
	return s.Concatenate(2, parts...)
}

// reserve makes room for n rows: the ring grows by Step, the tail comes whole.
func (c *Window) reserve(s *mlxc.Scope, k, v mlxc.Array, n int) {
	if n <= c.capacity || s.Err() != nil {
		return
	}
	if n <= c.size {
		n = min(roundUp(n), c.size)
	}
	keys, values := grown(s, c.keys, k, c.capacity, n), grown(s, c.values, v, c.capacity, n)
	if s.Err() != nil {
		return
	}
	replace(s, &c.keys, keys)
	replace(s, &c.values, values)
	c.capacity = n
}

// write puts k and v into the buffers from a row on.
func (c *Window) write(s *mlxc.Scope, k, v mlxc.Array, at int) {
	if s.Err() != nil {
		return
	}
	keys, values := writeAt(s, c.keys, k, at), writeAt(s, c.values, v, at)
	if s.Err() != nil {
		return
	}
	replace(s, &c.keys, keys)
	replace(s, &c.values, values)
}

// Checkpoint implements Layer.
func (c *Window) Checkpoint() { c.mark, c.announce = c.Offset(), true }

// Rollback implements Layer; it costs nothing. Going back to where the window's
// rows are gone is an error, and changes nothing.
func (c *Window) Rollback(_ *mlxc.Scope, keep int) error {
	target, offset := c.mark+keep, c.Offset()
	switch {
	case keep < 0 || target > offset:
		return fmt.Errorf("cannot keep %d tokens of the %d after the checkpoint", keep, offset-c.mark)
	case target >= c.ringed:
		c.pending.rows = target - c.ringed
	case c.gone > c.seen(target):
		return fmt.Errorf("cannot go back %d tokens: the window's rows before position %d are gone", offset-target, c.gone)
	default:
		c.dropPending()
		c.ringed = target
	}
	c.announce = keep == 0 // as if the checkpoint had just been set
	return nil
}

// Arrays implements Layer.
func (c *Window) Arrays() []mlxc.Array {
	var all []mlxc.Array
	for _, a := range []mlxc.Array{c.keys, c.values, c.pending.keys, c.pending.values} {
		if a.Valid() {
			all = append(all, a)
		}
	}
	return all
}

// Bytes implements Layer.
func (c *Window) Bytes() int { return sumBytes(c.Arrays()) }

// Free implements Layer.
func (c *Window) Free() {
	c.keys.Free()
	c.values.Free()
	c.dropPending()
	*c = Window{size: c.size, pad: c.pad}
}

// rowsOf is n rows of a buffer [B, heads, rows, head size] from row first on.
func rowsOf(s *mlxc.Scope, buffer mlxc.Array, first, n int) mlxc.Array {
	return s.Slice(buffer, []int{0, 0, first, 0}, []int{buffer.Dim(0), buffer.Dim(1), first + n, buffer.Dim(3)})
}
