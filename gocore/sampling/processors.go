package sampling

import (
	"fmt"
	"math"
	"sort"
	"strconv"

	"axlm/gocore/errs"
	"axlm/mlxc"
)

// Penalty weighs a token's logit by its use among the last Context tokens.
type Penalty struct {
	Value   float64 `json:"value"`   // 0 for none
	Context int     `json:"context"` // 0 for all
}

// Bias is a number that JSON may also write as "inf" or "-inf".
type Bias float64

// UnmarshalJSON reads a number, or its word.
func (b *Bias) UnmarshalJSON(text []byte) error {
	word := string(text)
	if unquoted, err := strconv.Unquote(word); err == nil {
		word = unquoted
	}
	v, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return fmt.Errorf("logit_bias: %s is not a number", text)
	}
	*b = Bias(v)
	return nil
}

// Processors change logits before a token is chosen: the bias first, then the
// repetition, presence and frequency penalties. Names are mlx_lm's.
type Processors struct {
	LogitBias  map[string]Bias `json:"logit_bias"` // by token id, as JSON writes keys
	Repetition Penalty         `json:"repetition"`
	Presence   Penalty         `json:"presence"`
	Frequency  Penalty         `json:"frequency"`

	biasIDs    []int32
	biasValues []float32
}

// Empty tells whether there is nothing to do.
func (p *Processors) Empty() bool {
	return p == nil || len(p.LogitBias) == 0 && p.Repetition.Value == 0 && p.Presence.Value == 0 && p.Frequency.Value == 0
}

// Validate checks the options against a vocabulary; call it before Apply.
func (p *Processors) Validate(vocab int) error {
	if p == nil {
		return nil
	}
	p.biasIDs, p.biasValues = nil, nil
	for key, value := range p.LogitBias {
		id, err := strconv.Atoi(key)
		if err != nil || id < 0 || id >= vocab {
			return errs.Value("`logit_bias`: %q is not a token id of a vocabulary of %d", key, vocab)
		}
		if math.IsNaN(float64(value)) {
			return errs.Value("`logit_bias`: the bias of token %d is not a number", id)
		}
		p.biasIDs = append(p.biasIDs, int32(id))
	}
	sort.Slice(p.biasIDs, func(i, j int) bool { return p.biasIDs[i] < p.biasIDs[j] })
	for _, id := range p.biasIDs {
		p.biasValues = append(p.biasValues, float32(p.LogitBias[strconv.Itoa(int(id))]))
	}
	if p.Repetition.Value < 0 {
		return errs.Value("`repetition_penalty` must not be negative, got %v", p.Repetition.Value)
	}
	for name, q := range map[string]Penalty{"repetition": p.Repetition, "presence": p.Presence, "frequency": p.Frequency} {
		if q.Value != 0 && q.Context < 0 {
			return errs.Value("`%s_context_size` must not be negative, got %d", name, q.Context)
		}
	}
	return nil
}

// History is what the rows of a forward come after: row i follows Tokens, then
// Next (a token that only the device knows, where valid), then Drafts[:i].
type History struct {
	Tokens []int32
	Next   mlxc.Array // [1], integers
	Drafts []int32
}

// Apply changes logits [rows, vocab] in the light of what precedes each row.
func (p *Processors) Apply(s *mlxc.Scope, logits mlxc.Array, h History) mlxc.Array {
	if p.Empty() {
		return logits
	}
	rows, dt := logits.Dim(0), logits.DType()
	if n := len(p.biasIDs); n > 0 {
		ids := s.BroadcastTo(s.FromInt32s(p.biasIDs, 1, n), rows, n)
		values := s.BroadcastTo(s.AsType(s.FromFloat32s(p.biasValues, 1, n), dt), rows, n)
		logits = s.ScatterAdd(logits, ids, values, -1)
	}
	if q := p.Repetition; q.Value != 0 {
		w := h.window(s, rows, q.Context)
		selected := s.TakeAlongAxis(logits, w.ids, -1)
		factor := s.ScalarLike(logits, float32(q.Value))
		penalised := s.Where(s.Less(selected, s.ScalarLike(logits, 0)), s.Multiply(selected, factor), s.Divide(selected, factor))
		logits = s.PutAlongAxis(logits, w.ids, penalised, -1)
	}
	if q := p.Presence; q.Value != 0 {
		w := h.window(s, rows, q.Context)
		selected := s.TakeAlongAxis(logits, w.ids, -1)
		logits = s.PutAlongAxis(logits, w.ids, s.Subtract(selected, s.ScalarLike(logits, float32(q.Value))), -1)
	}
	if q := p.Frequency; q.Value != 0 {
		w := h.window(s, rows, q.Context)
		each := s.Negative(s.Multiply(s.AsType(w.real, dt), s.ScalarLike(logits, float32(q.Value))))
		logits = s.ScatterAdd(logits, w.ids, each, -1)
	}
	return logits
}

// window holds the last tokens before each row.
type window struct {
	ids  mlxc.Array // [rows, n] int32; short windows repeat a token of theirs
	real mlxc.Array // [rows, n] bool, false where a token is repeated
}

func (h History) window(s *mlxc.Scope, rows, context int) window {
	known := len(h.Tokens)
	if h.Next.Valid() {
		known++
	}
	n := known + rows - 1
	if context > 0 {
		n = min(n, context)
	}
	ids := make([]int32, 0, rows*n)
	real := make([]bool, 0, rows*n)
	for row := range rows {
		length := known + row
		for k := length - n; k < length; k++ {
			real = append(real, k >= 0)
			ids = append(ids, h.at(max(k, 0)))
		}
	}
	w := window{ids: s.FromInt32s(ids, rows, n), real: s.FromBools(real, rows, n)}
	if h.Next.Valid() {
		w.ids = h.fill(s, w.ids, rows, n)
	}
	return w
}

// unknown stands in a window for the token that only the device knows.
const unknown = -1

func (h History) at(k int) int32 {
	if k < len(h.Tokens) {
		return h.Tokens[k]
	}
	k -= len(h.Tokens)
	if h.Next.Valid() {
		if k == 0 {
			return unknown
		}
		k--
	}
	return h.Drafts[k]
}

// fill puts the device's token where ids says unknown.
func (h History) fill(s *mlxc.Scope, ids mlxc.Array, rows, n int) mlxc.Array {
	next := s.BroadcastTo(s.AsType(s.Reshape(h.Next, 1, 1), mlxc.Int32), rows, n)
	return s.Where(s.Equal(ids, s.ScalarInt(unknown, mlxc.Int32)), next, ids)
}
