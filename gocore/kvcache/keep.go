package kvcache

import "axlm/mlxc"

// Keep returns the state of each layer as it is now, for Restore, and leaves the
// cache as it was. Of layers that hold all tokens it has copies of those in
// [from, to) alone; the others' is whole, and to must be the cache's offset if
// there are such. ok is false for kinds of layers of which nothing is kept. What
// it takes is built in s; the arrays are the caller's, who evaluates them.
func (c *Cache) Keep(s *mlxc.Scope, from, to int) (states []State, ok bool) {
	for _, l := range c.Layers {
		st, ok := keep(s, l, from, to)
		if !ok || s.Err() != nil {
			for i := range states {
				states[i].Free()
			}
			return nil, false
		}
		states = append(states, st)
	}
	return states, true
}

func keep(s *mlxc.Scope, l Layer, from, to int) (State, bool) {
	switch l := l.(type) {
	case *Full:
		if from < 0 || to <= from || to > l.length {
			return State{}, false
		}
		st := State{Kind: KindFull, Offset: to}
		for _, a := range []mlxc.Array{l.keys, l.values} {
			st.Arrays = append(st.Arrays, s.Keep(s.Contiguous(rowsOf(s, a, from, to-from))))
		}
		return st, true
	case *Window:
		if to != l.Offset() {
			return State{}, false
		}
		l.settle(s)
		copied := *l
		copied.keys, copied.values = l.keys.Clone(), l.values.Clone()
		return copied.Export(s), true
	case *Recurrent:
		if to != l.Offset() || !l.now.state.Valid() {
			return State{}, false
		}
		return State{Kind: KindRecurrent, Offset: to, Arrays: []mlxc.Array{l.now.conv.Clone(), l.now.state.Clone()}}, true
	}
	return State{}, false
}

// Keeps tells whether all layers are of kinds that Keep and Restore know.
func (c *Cache) Keeps() bool {
	for _, l := range c.Layers {
		switch l.(type) {
		case *Full, *Window, *Recurrent:
		default:
			return false
		}
	}
	return true
}

// Whole tells whether some layer's state can be kept only as it is at the
// moment, since it forgets tokens or sums them up.
func (c *Cache) Whole() bool {
	for _, l := range c.Layers {
		if _, full := l.(*Full); !full {
			return true
		}
	}
	return false
}

// Restore makes what Keep returned, for parts that follow each other from the
// first token on, the state of an empty cache. The arrays stay the caller's.
func (c *Cache) Restore(s *mlxc.Scope, parts [][]State) error {
	last := parts[len(parts)-1]
	states := make([]State, len(last))
	for i, st := range last {
		states[i] = st
		if st.Kind != KindFull {
			continue
		}
		states[i].Arrays = make([]mlxc.Array, len(st.Arrays))
		for j := range st.Arrays {
			all := make([]mlxc.Array, len(parts))
			for k, part := range parts {
				all[k] = part[i].Arrays[j]
			}
			states[i].Arrays[j] = all[0]
			if len(all) > 1 {
				states[i].Arrays[j] = s.Concatenate(2, all...)
			}
		}
	}
	if s.Err() != nil {
		return s.Err()
	}
	return c.Adopt(s, states)
}
