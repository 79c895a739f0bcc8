package models

import (
	"axlm/gocore/kvcache"
	"axlm/gocore/nn"
	"axlm/mlxc"
)

// Input is what a forward runs on.
type Input struct {
	// IDs are token ids [B, L]: of one request, or [1, L] of several, one after
	// another.
	IDs mlxc.Array
	// Embedded are embeddings [B, L, dim] in place of the ids', none for those.
	// The family scales them as it does its own; IDs may be none then where the
	// family has no other use for them.
	Embedded mlxc.Array
	Spans    []Span
}

// Span is one request's part of a forward.
type Span struct {
	Cache  *kvcache.Cache // to which the tokens are appended
	Tokens int            // how many they are
	Logits int            // after how many of the last ones logits are wanted
}

// One is the input of a forward for one request: ids [B, L], and logits wanted
// after the last rows of them.
func One(ids mlxc.Array, cache *kvcache.Cache, rows int) Input {
	return Input{IDs: ids, Spans: []Span{{Cache: cache, Tokens: ids.Dim(1), Logits: rows}}}
}

// OneEmbedded is One with embeddings h [B, L, dim]; ids may be none.
func OneEmbedded(ids, h mlxc.Array, cache *kvcache.Cache, rows int) Input {
	return Input{IDs: ids, Embedded: h, Spans: []Span{{Cache: cache, Tokens: h.Dim(1), Logits: rows}}}
}

// embed is what the first layer gets, [B, L, dim].
func (in Input) embed(s *mlxc.Scope, e *nn.Embedding) mlxc.Array {
	if in.Embedded.Valid() {
		return in.Embedded
	}
	return e.Forward(s, in.IDs)
}

// wanted counts the positions of which logits are wanted.
func (in Input) wanted() int {
	n := 0
	for _, span := range in.Spans {
		n += span.Logits
	}
	return n
}

// pass is a forward on its way through the layers.
type pass struct {
	*nn.Packed
	spans []Span
	masks []maskSet // one a request
}

func newPass(in Input, dt mlxc.DType) *pass {
	p := &pass{Packed: &nn.Packed{}, spans: in.Spans}
	for _, span := range in.Spans {
		p.Lengths = append(p.Lengths, span.Tokens)
		p.Offsets = append(p.Offsets, span.Cache.Offset())
		p.masks = append(p.masks, maskSet{rows: span.Tokens, dt: dt})
	}
	return p
}

// attention are the requests' states of a layer, with masks. Ask before the
// first layer of a kind is updated.
func (p *pass) attention(s *mlxc.Scope, layer int) []nn.Sequence {
	all := make([]nn.Sequence, len(p.spans))
	for i, span := range p.spans {
		state := span.Cache.Layers[layer].(kvcache.Attention)
		all[i] = nn.Sequence{State: state, Mask: p.masks[i].of(s, state)}
	}
	return all
}

// recurrent are the requests' states of a recurrent layer.
func (p *pass) recurrent(layer int) []*kvcache.Recurrent {
	all := make([]*kvcache.Recurrent, len(p.spans))
	for i, span := range p.spans {
		all[i] = span.Cache.Layers[layer].(*kvcache.Recurrent)
	}
	return all
}

// last keeps the positions of h [B, L, dim] of which logits are wanted, so that
// the head works for no others.
func (in Input) last(s *mlxc.Scope, h mlxc.Array) mlxc.Array {
	if len(in.Spans) == 1 {
		return lastRows(s, h, in.Spans[0].Logits)
	}
	var wanted []int32
	end := 0
	for _, span := range in.Spans {
		end += span.Tokens
		for i := span.Logits; i > 0; i-- {
			wanted = append(wanted, int32(end-i))
		}
	}
	if len(wanted) == end {
		return h
	}
	return s.Take(h, s.FromInt32s(wanted), 1)
}

// logits are the output head's, [B, wanted, vocab], for h [B, L, dim]; the
// embedding is the head where head is nil. If none are wanted, h comes back.
func (in Input) logits(s *mlxc.Scope, h mlxc.Array, norm *nn.RMSNorm, embed *nn.Embedding, head *nn.Linear) mlxc.Array {
	if in.wanted() == 0 {
		return h
	}
	h = norm.Forward(s, in.last(s, h))
	if head == nil {
		return embed.AsLinear(s, h)
	}
	return head.Forward(s, h)
}
