package kvcache

import (
	"axlm/gocore/errs"
	"axlm/mlxc"
)

// Kind names a layer's state as mlx_lm's class does.
type Kind string

// The classes of mlx_lm.models.cache that states come from and become.
const (
	KindFull      Kind = "KVCache"          // keys, values
	KindRotating  Kind = "RotatingKVCache"  // keys, values
	KindQuantised Kind = "QuantizedKVCache" // weight, scales, biases of the keys, then of the values
	KindRecurrent Kind = "ArraysCache"      // convolution, state
)

// State is a layer's state in mlx_lm's form: arrays, and the numbers beside
// them. A state without arrays is empty.
type State struct {
	Kind   Kind
	Arrays []mlxc.Array

	Offset int // tokens seen
	// Of rotating states: rows that stay, rows at most, and the row behind the
	// newest one.
	Keep, MaxSize, Next int
	// Of quantised states.
	Form QuantForm
}

// Empty tells whether the state holds nothing.
func (st *State) Empty() bool { return len(st.Arrays) == 0 }

// Free releases the state's arrays.
func (st *State) Free() {
	for _, a := range st.Arrays {
		a.Free()
	}
	st.Arrays = nil
}

// Adopt makes states, one a layer, those of a cache that is empty. The arrays
// stay the caller's; as long as it holds them, the first write copies. A layer
// becomes quantised or rotating where its state is. An error names the layer,
// and leaves the cache empty.
func (c *Cache) Adopt(s *mlxc.Scope, states []State) error {
	if len(states) != len(c.Layers) {
		return errs.Value("prompt_cache: it has %d layers, the model wants %d", len(states), len(c.Layers))
	}
	offset, err := commonOffset(states)
	if err != nil {
		return err
	}
	for i, st := range states {
		if _, full := c.Layers[i].(*Full); full {
			c.Layers[i] = like(c.Layers[i], &st)
		}
		if err = st.check(); err == nil {
			err = c.Layers[i].Adopt(s, st, offset)
		}
		if err == nil {
			err = s.Err()
		}
		if err != nil {
			c.Free()
			return errs.Value("prompt_cache: layer %d: %v", i, err)
		}
	}
	return nil
}

// like is an empty layer of the state's kind in place of full, if it has one.
func like(full Layer, st *State) Layer {
	switch st.Kind {
	case KindRotating:
		return NewRotating(st.MaxSize, st.Keep)
	case KindQuantised:
		return NewQuantised(st.Form)
	}
	return full
}

// commonOffset is how many tokens the attention layers have seen, all the same
// number.
func commonOffset(states []State) (int, error) {
	offset, first := 0, -1
	for i := range states {
		st := &states[i]
		if st.Kind == KindRecurrent {
			continue
		}
		if first < 0 {
			offset, first = st.Offset, i
		}
		if st.Offset != offset {
			return 0, errs.Value("prompt_cache: layer %d holds %d tokens, layer %d holds %d", first, offset, i, st.Offset)
		}
	}
	return offset, nil
}

// check makes sure that the state's numbers and arrays fit together.
func (st *State) check() error {
	if st.Offset < 0 || (st.Empty() && st.Offset > 0) {
		return errs.Value("%d tokens in a cache of no rows", st.Offset)
	}
	wanted := map[Kind]int{KindFull: 2, KindRotating: 2, KindQuantised: 6, KindRecurrent: 2}[st.Kind]
	if n := len(st.Arrays); n != 0 && n != wanted {
		return errs.Value("%s has %d arrays, want %d", st.Kind, n, wanted)
	}
	if st.Kind == KindRecurrent || st.Empty() {
		return nil
	}
	first := st.Arrays[0]
	for _, a := range st.Arrays {
		if a.NDim() != 4 || a.Dim(0) != first.Dim(0) || a.Dim(1) != first.Dim(1) || a.Dim(2) != first.Dim(2) {
			return errs.Value("keys and values do not fit together: %s and %s", first, a)
		}
	}
	if st.Kind != KindRotating && st.Offset > first.Dim(2) {
		return errs.Value("%d tokens in a cache of %d rows", st.Offset, first.Dim(2))
	}
	return nil
}

// wrongKind is the error of a layer that cannot take the state.
func (st *State) wrongKind(want Kind) error {
	return errs.Value("the model wants a %s there, not a %s", want, st.Kind)
}

// Export returns every layer's state as mlx_lm has it, for the caller to
// evaluate and to free, and leaves the cache empty.
func (c *Cache) Export(s *mlxc.Scope) []State {
	states := make([]State, len(c.Layers))
	for i, l := range c.Layers {
		states[i] = l.Export(s)
	}
	return states
}

// WrittenOver tells whether a layer of bounded size has written over rows: then
// not even the last token can be taken back.
func (c *Cache) WrittenOver() bool {
	for _, l := range c.Layers {
		if r, ok := l.(*Rotating); ok && r.length > r.size {
			return true
		}
	}
	return false
}

// Room is how many more tokens can be appended such that a rollback can take
// them back; limited tells whether there is a limit at all.
func (c *Cache) Room() (rows int, limited bool) {
	for _, l := range c.Layers {
		if r, ok := l.(*Rotating); ok && (!limited || r.Room() < rows) {
			rows, limited = r.Room(), true
		}
	}
	return rows, limited
}

// Quantise makes every layer that holds all its keys quantised.
func (c *Cache) Quantise(s *mlxc.Scope, form QuantForm) error {
	for i, l := range c.Layers {
		full, ok := l.(*Full)
		if !ok {
			continue
		}
		q, err := full.Quantised(s, form)
		if err != nil {
			return err
		}
		c.Layers[i] = q
	}
	return nil
}
