// Package kvcache holds what the layers of a model remember of one request:
// keys and values of attention, and later the states of other kinds of layer.
//
// Every kind can go back: Checkpoint marks a point, Rollback returns to it and
// keeps the first tokens that came after. The engine verifies drafts that way
// without knowing which kinds of layer the model has.
package kvcache

import (
	"fmt"

	"axlm/mlxc"
)

// Step is by how many tokens buffers grow, and of what the lengths of padded
// views are multiples.
const Step = 256

// Layer is one layer's state.
type Layer interface {
	// Offset counts the tokens that the layer has seen.
	Offset() int
	// Checkpoint marks the present state; one mark is kept.
	Checkpoint()
	// Rollback keeps the first keep tokens after the mark and forgets the
	// rest. Ops that this needs are built in s.
	Rollback(s *mlxc.Scope, keep int) error
	// Arrays are the handles that hold the state, for evaluation; the layer
	// still owns them.
	Arrays() []mlxc.Array
	// Bytes counts what the state takes in memory.
	Bytes() int
	// Free releases the state.
	Free()
	// Adopt makes st, as mlx_lm has it after offset tokens, the state of a
	// layer that is empty. The arrays stay the caller's.
	Adopt(s *mlxc.Scope, st State, offset int) error
	// Export returns the state as mlx_lm has it and leaves the layer empty.
	// What it takes is built in s; the arrays are the caller's, who evaluates
	// them.
	Export(s *mlxc.Scope) State
}

// Mask says which keys each query row may see.
type Mask struct {
	Mode  string     // "", "causal" or "array", as mlx_fast_scaled_dot_product_attention takes it
	Array mlxc.Array // additive, [rows, keys], with Mode "array"
}

// Attention is a layer state made of keys and values.
type Attention interface {
	Layer
	// Mask is for rows queries that follow the present state; dt is the
	// queries' type. Call it before Update.
	Mask(s *mlxc.Scope, rows int, dt mlxc.DType) Mask
	// Update appends k and v, [B, heads, rows, head size], and returns what
	// the rows attend to.
	Update(s *mlxc.Scope, k, v mlxc.Array) Rows
}

// Rows are what queries attend to: keys and values [B, heads, n, head size],
// or the same quantised.
type Rows struct {
	Keys, Values mlxc.Array
	Quantised    *QuantisedRows // in place of the two above
}

// QuantisedRows are keys and values quantised along the head size.
type QuantisedRows struct {
	Keys, Values Packed
	Form         QuantForm
}

// Packed are the parts of a quantised array.
type Packed struct{ Weight, Scales, Biases mlxc.Array }

// QuantForm says how keys and values are quantised.
type QuantForm struct{ GroupSize, Bits int }

// Cache is the state of all layers of a model for one request.
type Cache struct {
	Layers []Layer
}

// Offset counts the tokens that the layers have seen.
func (c *Cache) Offset() int {
	if len(c.Layers) == 0 {
		return 0
	}
	return c.Layers[0].Offset()
}

// Checkpoint marks the present state of every layer.
func (c *Cache) Checkpoint() {
	for _, l := range c.Layers {
		l.Checkpoint()
	}
}

// Rollback keeps the first keep tokens after the checkpoint in every layer.
func (c *Cache) Rollback(s *mlxc.Scope, keep int) error {
	for i, l := range c.Layers {
		if err := l.Rollback(s, keep); err != nil {
			return fmt.Errorf("rolling back layer %d: %w", i, err)
		}
	}
	return nil
}

// Arrays are the handles of all layers' state.
func (c *Cache) Arrays() []mlxc.Array {
	var all []mlxc.Array
	for _, l := range c.Layers {
		all = append(all, l.Arrays()...)
	}
	return all
}

// Bytes counts what the state takes in memory.
func (c *Cache) Bytes() int {
	n := 0
	for _, l := range c.Layers {
		n += l.Bytes()
	}
	return n
}

// Free releases every layer's state.
func (c *Cache) Free() {
	for _, l := range c.Layers {
		l.Free()
	}
}
