package nn

import (
	"slices"

	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// Packed says whose tokens a forward runs on: those of one request, or of
// several, one after another along the length. What a layer does with each
// token alone is done for all at once; only what looks at other tokens is done
// for each request by itself, on a state of its own. So nothing is padded,
// requests of any kinds and lengths of cache go together, and none is copied
// when another comes or goes.
type Packed struct {
	Lengths []int // tokens of each request
	Offsets []int // the position of each one's first token

	positions mlxc.Array // [L] int32
}

// Sequence is a request's part of an attention layer.
type Sequence struct {
	State kvcache.Attention
	Mask  kvcache.Mask
}

// one tells whether there is a single request.
func (p *Packed) one() bool { return len(p.Lengths) == 1 }

// split cuts x along an axis into the requests' parts.
func (p *Packed) split(s *mlxc.Scope, x mlxc.Array, axis int) []mlxc.Array {
	if p.one() {
		return []mlxc.Array{x}
	}
	cuts := make([]int, len(p.Lengths)-1)
	at := 0
	for i := range cuts {
		at += p.Lengths[i]
		cuts[i] = at
	}
	return slices.Clone(s.SplitAt(x, axis, cuts...))
}

// join is split undone.
func (p *Packed) join(s *mlxc.Scope, parts []mlxc.Array, axis int) mlxc.Array {
	if len(parts) == 1 {
		return parts[0]
	}
	return s.Concatenate(axis, parts...)
}

// Rotate is r's rotation of x [1, heads, L, d], each token by its own position.
func (p *Packed) Rotate(s *mlxc.Scope, r *RoPE, x mlxc.Array) mlxc.Array {
	if p.one() {
		return r.Forward(s, x, p.Offsets[0])
	}
	if r.dynamic != nil { // the angles depend on the text's length
		parts := p.split(s, x, 2)
		for i := range parts {
			parts[i] = r.Forward(s, parts[i], p.Offsets[i])
		}
		return p.join(s, parts, 2)
	}
	if s.Err() != nil {
		return mlxc.Array{}
	}
	if !p.positions.Valid() {
		p.positions = s.FromInt32s(p.tokenPositions())
	}
	// MLX takes an offset for each member of a batch: each token is one.
	heads, length, size := x.Dim(1), x.Dim(2), x.Dim(3)
	x = s.Reshape(s.Transpose(x, 0, 2, 1, 3), length, heads, 1, size)
	x = s.Reshape(r.forwardAt(s, x, p.positions), 1, length, heads, size)
	return s.Transpose(x, 0, 2, 1, 3)
}

func (p *Packed) tokenPositions() []int32 {
	var all []int32
	for i, n := range p.Lengths {
		for j := range n {
			all = append(all, int32(p.Offsets[i]+j))
		}
	}
	return all
}

// Attended are what each request's tokens attend to in a layer.
type Attended []kvcache.Rows

// Update appends k and v [1, heads, L, d] to the layer's states.
func (p *Packed) Update(s *mlxc.Scope, layer []Sequence, k, v mlxc.Array) Attended {
	ks, vs := p.split(s, k, 2), p.split(s, v, 2)
	if s.Err() != nil {
		return nil
	}
	seen := make(Attended, len(layer))
	for i := range layer {
		seen[i] = layer[i].State.Update(s, ks[i], vs[i])
	}
	return seen
}

// Attend is attention of q [1, heads, L, d], each request's over its own rows,
// as [1, L, heads·d].
func (p *Packed) Attend(s *mlxc.Scope, a *Attender, q mlxc.Array, seen Attended, layer []Sequence, scale float32) mlxc.Array {
	parts := p.split(s, q, 2)
	if s.Err() != nil {
		return mlxc.Array{}
	}
	if a != nil || p.one() {
		for i := range parts {
			parts[i] = a.Forward(s, parts[i], seen[i], scale, layer[i].Mask)
		}
		return p.join(s, parts, 1)
	}
	for i := range parts {
		parts[i] = Attend(s, parts[i], seen[i], scale, layer[i].Mask)
	}
	return MergeHeads(s, p.join(s, parts, 2), q.Dim(0), q.Dim(2)) // once for all
}
