package kvcache

import (
	"axlm/gocore/errs"
	"axlm/mlxc"
)

// Adopt implements Layer.
func (c *Full) Adopt(_ *mlxc.Scope, st State, _ int) error {
	if st.Kind != KindFull {
		return st.wrongKind(KindFull)
	}
	if !st.Empty() {
		c.keys, c.values = st.Arrays[0].Clone(), st.Arrays[1].Clone()
		c.capacity = c.keys.Dim(2)
	}
	c.length, c.mark = st.Offset, st.Offset
	return nil
}

// Export implements Layer; the buffers leave as they are.
func (c *Full) Export(*mlxc.Scope) State {
	st := State{Kind: KindFull, Offset: c.length}
	if c.keys.Valid() {
		st.Arrays = []mlxc.Array{c.keys, c.values}
	}
	*c = Full{pad: c.pad}
	return st
}

// Adopt implements Layer.
func (c *Quantised) Adopt(_ *mlxc.Scope, st State, _ int) error {
	if st.Kind != KindQuantised {
		return st.wrongKind(KindQuantised)
	}
	if !st.Empty() {
		for i := range c.keys {
			c.keys[i], c.values[i] = st.Arrays[i].Clone(), st.Arrays[3+i].Clone()
		}
	}
	c.length, c.mark = st.Offset, st.Offset
	return nil
}

// Export implements Layer; the buffers leave as they are.
func (c *Quantised) Export(*mlxc.Scope) State {
	st := State{Kind: KindQuantised, Offset: c.length, Form: c.form, Arrays: c.Arrays()}
	*c = Quantised{form: c.form}
	return st
}

// Adopt implements Layer.
func (c *Rotating) Adopt(_ *mlxc.Scope, st State, _ int) error {
	if st.Kind != KindRotating {
		return st.wrongKind(KindRotating)
	}
	if st.Keep < 0 || st.MaxSize <= st.Keep {
		return errs.Value("a rotating cache of %d rows cannot keep %d", st.MaxSize, st.Keep)
	}
	if !st.Empty() {
		rows := st.Arrays[0].Dim(2)
		if st.Next < 0 || st.Next > rows || st.Offset < min(st.Next, rows) {
			return errs.Value("%d tokens, the newest before row %d, in a rotating cache of %d rows", st.Offset, st.Next, rows)
		}
		c.keys, c.values = st.Arrays[0].Clone(), st.Arrays[1].Clone()
	}
	c.length, c.mark, c.next = st.Offset, st.Offset, st.Next
	return nil
}

// Export implements Layer; the buffers leave as they are.
func (c *Rotating) Export(*mlxc.Scope) State {
	st := State{Kind: KindRotating, Offset: c.length, Keep: c.keep, MaxSize: c.size, Next: c.next, Arrays: c.Arrays()}
	*c = Rotating{size: c.size, keep: c.keep}
	return st
}

// Adopt implements Layer. Where a prompt came last, mlx_lm's buffer may have
// more rows than the window, in the order of their positions.
func (c *Window) Adopt(s *mlxc.Scope, st State, _ int) error {
	if st.Kind != KindRotating {
		return st.wrongKind(KindRotating)
	}
	if st.MaxSize != c.size || st.Keep != 0 {
		return errs.Value("the model's window is %d tokens, the cache's is %d of which it keeps %d", c.size, st.MaxSize, st.Keep)
	}
	if st.Empty() {
		return nil
	}
	keys, values := st.Arrays[0], st.Arrays[1]
	rows := keys.Dim(2)
	switch {
	case rows > c.size && st.Next == rows && st.Offset >= rows: // in order
		last := func(a mlxc.Array) mlxc.Array { return s.Contiguous(rowsOf(s, a, rows-c.size, c.size)) }
		keys, values = last(keys), last(values)
		rows, c.origin = c.size, st.Offset%c.size
	case rows == c.size && st.Next > 0 && st.Next <= rows && st.Offset > st.Next: // gone round
		c.origin = (st.Offset - st.Next) % c.size
	case rows <= c.size && st.Next == st.Offset && st.Next <= rows: // not yet
	default:
		return errs.Value("%d tokens, the newest before row %d, in a window of %d rows", st.Offset, st.Next, rows)
	}
	if s.Err() != nil {
		return s.Err()
	}
	c.keys, c.values = s.Keep(keys), s.Keep(values)
	c.capacity, c.ringed, c.mark = rows, st.Offset, st.Offset
	c.gone = max(0, st.Offset-c.size)
	return nil
}

// Export implements Layer. The ring leaves without the tail.
func (c *Window) Export(s *mlxc.Scope) State {
	c.settle(s)
	st := State{Kind: KindRotating, Offset: c.ringed, MaxSize: c.size}
	if c.ringed > 0 && s.Err() == nil {
		st.Next = c.slot(c.ringed-1) + 1
		rows := min(c.capacity, c.size)
		for _, a := range []mlxc.Array{c.keys, c.values} {
			if a.Dim(2) > rows {
				a = s.Contiguous(rowsOf(s, a, 0, rows))
			}
			st.Arrays = append(st.Arrays, s.Keep(a))
		}
	}
	c.Free()
	return st
}

// Adopt implements Layer.
func (c *Recurrent) Adopt(_ *mlxc.Scope, st State, offset int) error {
	if st.Kind != KindRecurrent {
		return st.wrongKind(KindRecurrent)
	}
	if !st.Empty() {
		conv, state := st.Arrays[0], st.Arrays[1]
		if conv.NDim() != 3 || state.NDim() != 4 || conv.Dim(0) != state.Dim(0) {
			return errs.Value("want a convolution [B, rows, channels] and a state [B, heads, value size, key size], got %s and %s", conv, state)
		}
		c.now = snapshot{conv: conv.Clone(), state: state.Clone()}
	}
	c.now.length, c.mark.length = offset, offset
	return nil
}

// Export implements Layer.
func (c *Recurrent) Export(*mlxc.Scope) State {
	st := State{Kind: KindRecurrent, Offset: c.now.length}
	if c.now.state.Valid() {
		st.Arrays = []mlxc.Array{c.now.conv, c.now.state}
		c.now = snapshot{}
	}
	c.Free()
	return st
}
