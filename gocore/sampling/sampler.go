package sampling

import (
	"math"
	"slices"

	"axlm/gocore/errs"
	"axlm/mlxc"
)

// Sampler chooses a token from log probabilities. Filters come in the order
// top-p, min-p, XTC, top-k, each on values that no temperature has touched;
// then the temperature and a draw. Names and defaults are mlx_lm's.
type Sampler struct {
	Temp             float64 `json:"temp"`  // 0 takes the most probable token
	TopP             float64 `json:"top_p"` // used when within (0, 1)
	MinP             float64 `json:"min_p"` // 0 for none
	MinTokensToKeep  int     `json:"min_tokens_to_keep"`
	TopK             int     `json:"top_k"` // 0 for none
	XTCProbability   float64 `json:"xtc_probability"`
	XTCThreshold     float64 `json:"xtc_threshold"`
	XTCSpecialTokens []int32 `json:"xtc_special_tokens"`
}

// Greedy tells whether the sampler takes the most probable token, drawing
// nothing.
func (c *Sampler) Greedy() bool { return c == nil || c.Temp == 0 }

// Equal tells whether two samplers choose alike, so that one Choose does for
// both.
func (c *Sampler) Equal(o *Sampler) bool {
	if c.Greedy() || o.Greedy() {
		return c.Greedy() && o.Greedy()
	}
	return c.Temp == o.Temp && c.TopP == o.TopP && c.MinP == o.MinP && c.MinTokensToKeep == o.MinTokensToKeep &&
		c.TopK == o.TopK && c.XTCProbability == o.XTCProbability && c.XTCThreshold == o.XTCThreshold &&
		slices.Equal(c.XTCSpecialTokens, o.XTCSpecialTokens)
}

// Validate checks the options against a vocabulary.
func (c *Sampler) Validate(vocab int) error {
	if c.Greedy() {
		return nil
	}
	switch {
	case c.MinP < 0 || c.MinP > 1 || math.IsNaN(c.MinP):
		return errs.Value("`min_p` must lie in [0, 1], but is %v", c.MinP)
	case c.MinP != 0 && c.MinTokensToKeep < 1:
		return errs.Value("`min_tokens_to_keep` must be a positive integer, but is %d", c.MinTokensToKeep)
	case c.MinP != 0 && c.MinTokensToKeep > vocab:
		return errs.Value("`min_tokens_to_keep` must be at most the vocabulary's %d, but is %d", vocab, c.MinTokensToKeep)
	case c.TopK > 0 && c.TopK >= vocab:
		return errs.Value("`top_k` must be an integer in the interval (0, %d), but is %d", vocab, c.TopK)
	case c.XTCProbability > 0 && (c.XTCThreshold < 0 || c.XTCThreshold > 0.5):
		return errs.Value("`xtc_threshold` must lie in [0, 0.5], but is %v", c.XTCThreshold)
	case c.XTCProbability > 1 || math.IsNaN(c.XTCProbability):
		return errs.Value("`xtc_probability` must lie in [0, 1], but is %v", c.XTCProbability)
	case math.IsNaN(c.Temp) || math.IsInf(c.Temp, 0):
		return errs.Value("`temp` must be a finite number, but is %v", c.Temp)
	}
	for _, t := range c.XTCSpecialTokens {
		if t < 0 || int(t) >= vocab {
			return errs.Value("`xtc_special_tokens`: token %d is outside the vocabulary of %d", t, vocab)
		}
	}
	return nil
}

// Draw is one token's random numbers.
type Draw struct {
	Uniform float32 // picks the token
	XTC     bool    // whether XTC applies
}

// Draw takes one token's random numbers and returns the generator's state
// after them.
func (c *Sampler) Draw(state Key) (Draw, Key) {
	var d Draw
	if c.Greedy() {
		return d, state
	}
	var use Key
	if c.XTCProbability > 0 {
		state, use = state.Split()
		d.XTC = use.Uniform() <= float32(c.XTCProbability)
	}
	state, use = state.Split()
	d.Uniform = use.Uniform()
	return d, state
}

// Choose samples a token for each row of logprobs [rows, vocab]: [rows]
// uint32. draws has an entry a row; a greedy sampler needs none. A row without
// a finite maximum has no token to draw: it gives vocab, which is none. See
// Feedable.
func (c *Sampler) Choose(s *mlxc.Scope, logprobs mlxc.Array, draws []Draw) mlxc.Array {
	if c.Greedy() {
		return s.ArgMax(logprobs, -1, false)
	}
	x := logprobs
	if 0 < c.TopP && c.TopP < 1 {
		x = c.topP(s, x)
	}
	if c.MinP != 0 {
		x = c.minP(s, x)
	}
	if c.XTCProbability > 0 {
		x = c.xtc(s, x, draws)
	}
	if c.TopK > 0 {
		// A partition around NaN may leave it out.
		sound := finite(s, s.AsType(s.Max(x, -1, true), mlxc.Float32))
		x = s.Where(sound, c.topK(s, x), s.ScalarLike(x, float32(math.NaN())))
	}
	return categorical(s, c.tempered(s, x), draws)
}

// tempered divides x by the temperature, in x's type as mlx_lm does: [rows,
// vocab] float32. Rows that the temperature drives out of that type's range are
// divided in float32, from their maximum down, where nothing overflows.
func (c *Sampler) tempered(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	scale := 1 / c.Temp
	narrow := s.AsType(s.Multiply(x, s.ScalarLike(x, float32(scale))), mlxc.Float32)
	least, most := scales(x.DType())
	if least <= math.Abs(scale) && math.Abs(scale) <= most {
		return narrow
	}
	wide := s.AsType(x, mlxc.Float32)
	factor := float32(math.Copysign(min(max(math.Abs(scale), smallest), math.MaxFloat32), scale))
	wide = s.Multiply(s.Subtract(wide, s.Max(wide, -1, true)), s.Scalar(factor, mlxc.Float32))
	return s.Where(finite(s, s.Max(narrow, -1, true)), narrow, wide)
}

// smallest is the least normal float32.
const smallest = 0x1p-126

// scales are the bounds within which a factor neither vanishes in a type, which
// would make banned tokens not a number, nor drives a row's maximum, at most
// 128 below 0, out of it.
func scales(t mlxc.DType) (least, most float64) {
	if t == mlxc.Float16 {
		return 0x1p-14, 65504 / 128
	}
	return smallest, math.MaxFloat32 / 128
}

// finite tells where x is neither infinite nor not a number.
func finite(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	return s.LessEqual(s.Abs(x), s.Scalar(math.MaxFloat32, mlxc.Float32))
}

// Feedable is tokens that Choose gave, any of which may go into a model: rows
// without a token get the last one of the vocabulary.
func Feedable(s *mlxc.Scope, tokens mlxc.Array, vocab int) mlxc.Array {
	return s.Minimum(tokens, s.ScalarInt(vocab-1, mlxc.Uint32))
}

func lowest(s *mlxc.Scope, like mlxc.Array) mlxc.Array {
	return s.ScalarLike(like, float32(math.Inf(-1)))
}

// topP keeps the fewest most probable tokens whose probabilities sum to at
// least TopP of the whole.
func (c *Sampler) topP(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	rows := x.Dim(0)
	sorted := s.Sort(x, -1)
	probabilities := s.Exp(s.AsType(sorted, mlxc.Float32))
	above := s.CumSum(probabilities, -1, true, false)
	first := func(a mlxc.Array) mlxc.Array { return s.Slice(a, []int{0, 0}, []int{rows, 1}) }
	total := s.Add(first(above), first(probabilities))
	enough := s.Multiply(s.Scalar(float32(c.TopP), mlxc.Float32), total)
	dropped := s.Sum(s.GreaterEqual(above, enough), -1, true)
	threshold := s.TakeAlongAxis(sorted, dropped, -1)
	return s.Where(s.Less(x, threshold), lowest(s, x), x)
}

// minP drops tokens less probable than MinP times the most probable one.
func (c *Sampler) minP(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	least := s.Add(s.Max(x, -1, true), s.ScalarLike(x, float32(math.Log(c.MinP))))
	drop := s.Less(x, least)
	if keep := c.MinTokensToKeep; keep > 1 {
		rows, vocab := x.Dim(0), x.Dim(1)
		top := s.Slice(s.ArgPartition(x, vocab-keep, -1), []int{0, vocab - keep}, []int{rows, vocab})
		drop = s.PutAlongAxis(drop, top, s.BroadcastTo(s.Scalar(0, mlxc.Bool), rows, keep), -1)
	}
	return s.Where(drop, lowest(s, x), x)
}

// xtc drops all tokens above the threshold but the least probable of them, in
// the rows where it applies.
func (c *Sampler) xtc(s *mlxc.Scope, x mlxc.Array, draws []Draw) mlxc.Array {
	applies := make([]bool, len(draws))
	any := false
	for i, d := range draws {
		applies[i] = d.XTC
		any = any || d.XTC
	}
	if !any {
		return x
	}
	rows := x.Dim(0)
	p := s.Softmax(x, -1, false)
	over := s.Where(s.Greater(p, s.ScalarLike(p, float32(c.XTCThreshold))), p, s.ScalarLike(p, float32(math.Inf(1))))
	drop := s.Greater(p, s.Min(over, -1, true))
	if n := len(c.XTCSpecialTokens); n > 0 {
		special := s.BroadcastTo(s.FromInt32s(c.XTCSpecialTokens, 1, n), rows, n)
		drop = s.PutAlongAxis(drop, special, s.BroadcastTo(s.Scalar(0, mlxc.Bool), rows, n), -1)
	}
	drop = s.LogicalAnd(drop, s.FromBools(applies, rows, 1))
	return s.Where(drop, lowest(s, x), x)
}

// topK keeps the TopK most probable tokens.
func (c *Sampler) topK(s *mlxc.Scope, x mlxc.Array) mlxc.Array {
	rows, vocab := x.Dim(0), x.Dim(1)
	order := s.ArgPartition(s.Negative(x), c.TopK-1, -1)
	rest := s.Slice(order, []int{0, c.TopK}, []int{rows, vocab})
	return s.PutAlongAxis(x, rest, s.BroadcastTo(lowest(s, x), rows, vocab-c.TopK), -1)
}

// categorical inverts each row's cumulative distribution at its draw. It adds
// up in float32: a running sum over a vocabulary in bfloat16 soon stands still.
func categorical(s *mlxc.Scope, x mlxc.Array, draws []Draw) mlxc.Array {
	x = s.AsType(x, mlxc.Float32)
	uniform := make([]float32, len(draws))
	for i, d := range draws {
		uniform[i] = d.Uniform
	}
	weights := s.Exp(s.Subtract(x, s.Max(x, -1, true)))
	below := s.CumSum(weights, -1, false, false)
	total := s.Sum(weights, -1, true)
	u := s.Multiply(s.FromFloat32s(uniform, len(uniform), 1), total)
	chosen := s.Sum(s.LessEqual(below, u), -1, false)
	chosen = s.Subtract(chosen, s.ScalarInt(1, chosen.DType()))
	if s.Err() != nil {
		return mlxc.Array{}
	}
	// Not a number where the maximum is infinite or none.
	drawn := finite(s, s.Reshape(total, -1))
	return s.AsType(s.Where(drawn, chosen, s.ScalarInt(x.Dim(1), chosen.DType())), mlxc.Uint32)
}
