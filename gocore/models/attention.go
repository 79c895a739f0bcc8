package models

import (
	"axlm/gocore/kvcache"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// windows are what each layer's attention sees: 0 for all tokens, else the
// number of the last ones.
func windows(d *weights.Description) []int {
	sizes := make([]int, len(d.LayerTypes))
	for i, kind := range d.LayerTypes {
		if kind == weights.SlidingAttention {
			sizes[i] = d.Dimensions.Window
		}
	}
	return sizes
}

// newAttention makes an attention layer's empty state.
func newAttention(window int, o CacheOptions) kvcache.Layer {
	if window > 0 {
		return kvcache.NewWindow(window, o.PadViews)
	}
	if o.MaxSize > 0 {
		return kvcache.NewRotating(o.MaxSize, o.Keep)
	}
	return kvcache.NewFull(o.PadViews)
}

// maskSet makes one mask a forward for each kind of attention: layers of a kind
// hold the same tokens. Ask before the first layer of the kind is updated.
type maskSet struct {
	rows int
	dt   mlxc.DType

	full, window, rotating, quantised *kvcache.Mask
}

// of is the mask for a layer's state.
func (m *maskSet) of(s *mlxc.Scope, state kvcache.Attention) kvcache.Mask {
	kind := &m.full
	switch state.(type) {
	case *kvcache.Window:
		kind = &m.window
	case *kvcache.Rotating:
		kind = &m.rotating
	case *kvcache.Quantised:
		kind = &m.quantised
	}
	if *kind == nil {
		mask := state.Mask(s, m.rows, m.dt)
		*kind = &mask
	}
	return **kind
}
