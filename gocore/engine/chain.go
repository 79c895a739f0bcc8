package engine

import (
	"fmt"
	"math"

	"axlm/gocore/models"
	"axlm/gocore/sampling"
	"axlm/mlxc"
)

// chain is a draft in the making: each token is fed to the model to choose the
// next, without waiting for it.
type chain struct {
	*drafter
	text     []int32
	fed      []int32      // the text's tokens that the cache lacks
	tokens   []mlxc.Array // [1] each, chosen so far
	known    []int32      // those of them that were read
	stepwise bool
}

// step queues the choice of another token.
func (c *chain) step(draw []sampling.Draw) error {
	r := c.request
	history := sampling.History{Tokens: c.text}
	if len(c.tokens) > 0 && !r.options.Processors.Empty() {
		// Processors look at the tokens themselves.
		ids, err := c.read()
		if err != nil {
			return err
		}
		history.Tokens = append(c.text[:len(c.text):len(c.text)], ids...)
	}
	if !c.stepwise && len(c.tokens) > 0 {
		if err := r.engine.rollback(c.cache, 0); err != nil {
			return err
		}
	}
	var token mlxc.Array
	err := r.engine.build(func(s *mlxc.Scope) {
		in, padding := c.input(s)
		logits := c.model.model.Forward(s, models.One(in, c.cache, 1+padding))
		logits = fitColumns(s, firstRow(s, logits), r.model.vocab)
		logits = r.options.Processors.Apply(s, logits, history)
		logprobs := s.Subtract(logits, s.LogSumExp(logits, -1, true))
		token = s.Keep(sampling.Feedable(s, r.options.Sampler.Choose(s, logprobs, draw), r.model.vocab))
	})
	if err == nil {
		err = mlxc.AsyncEval(token)
	}
	if err != nil {
		token.Free()
		return err
	}
	c.tokens = append(c.tokens, token)
	return nil
}

// input is what the next forward runs on, [1, L]: the token before, or all
// since the checkpoint where the state goes back within one forward only. That
// may end with padding, rows that only make the forward as wide as one that was
// warmed up.
func (c *chain) input(s *mlxc.Scope) (ids mlxc.Array, padding int) {
	drafted := len(c.tokens)
	switch {
	case drafted == 0:
		return s.FromInt32s(c.fed, 1, len(c.fed)), 0
	case c.stepwise:
		return s.Reshape(c.tokens[drafted-1], 1, 1), 0
	}
	parts := []mlxc.Array{s.FromInt32s(c.fed, len(c.fed))}
	for _, t := range c.tokens {
		parts = append(parts, s.AsType(t, mlxc.Int32))
	}
	if rows := len(c.fed) + drafted; c.request.engine.warm {
		padding = max(0, padded(rows)-rows)
	}
	if padding > 0 {
		parts = append(parts, s.FromInt32s(make([]int32, padding), padding))
	}
	return s.Reshape(s.Concatenate(0, parts...), 1, -1), padding
}

// firstRow is the first row of logits [1, rows, n], [1, n].
func firstRow(s *mlxc.Scope, logits mlxc.Array) mlxc.Array {
	if s.Err() != nil {
		return mlxc.Array{}
	}
	return s.Reshape(s.Slice(logits, []int{0, 0, 0}, []int{1, 1, logits.Dim(2)}), 1, -1)
}

// read waits for the tokens.
func (c *chain) read() ([]int32, error) {
	for _, t := range c.tokens[len(c.known):] {
		if err := mlxc.Eval(t); err != nil {
			return nil, err
		}
		ids, err := t.Uint32s()
		if err != nil {
			return nil, fmt.Errorf("reading drafted tokens: %w", err)
		}
		c.known = append(c.known, int32(ids[0]))
	}
	return c.known, nil
}

func (c *chain) free() {
	for _, t := range c.tokens {
		t.Free()
	}
}

// fitColumns brings logits [1, n] to vocab columns: what only the other model
// knows is dropped, what it does not know is never chosen.
func fitColumns(s *mlxc.Scope, logits mlxc.Array, vocab int) mlxc.Array {
	if s.Err() != nil {
		return mlxc.Array{}
	}
	switch n := logits.Dim(1); {
	case n > vocab:
		return s.Slice(logits, []int{0, 0}, []int{1, vocab})
	case n < vocab:
		return s.Pad(logits, []int{1}, []int{0}, []int{vocab - n}, s.ScalarLike(logits, float32(math.Inf(-1))))
	}
	return logits
}
