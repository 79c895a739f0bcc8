package engine

import (
	"fmt"

	"axlm/gocore/scheduler"
	"axlm/mlxc"
)

// clearEvery is after how many generated tokens MLX's buffer cache is emptied.
const clearEvery = 256

// execute runs one request's part of a plan. An error ends that request only.
func (e *Engine) execute(item scheduler.Item) {
	r := e.requests[item.ID]
	if r == nil {
		e.planner.Remove(item.ID)
		return
	}
	err := guarded(func() error {
		if item.Phase == scheduler.Prefill {
			return e.prefill(r, item.Tokens)
		}
		return e.decode(r)
	})
	if err != nil {
		e.drop(r, fmt.Errorf("%s: %w", item.Phase, err))
	}
}

// prefill appends the next n prompt tokens to the cache. No logits: the last
// prompt token is left to decode.
func (e *Engine) prefill(r *Request, n int) error {
	from := int(r.filled.Load())
	ids := r.prompt[from : from+n]
	err := e.build(func(s *mlxc.Scope) {
		r.model.model.Forward(s, s.FromInt32s(ids, 1, n), r.cache, 0)
	})
	if err != nil {
		return err
	}
	if err := mlxc.Eval(r.cache.Arrays()...); err != nil {
		return err
	}
	if err := mlxc.ClearCache(); err != nil {
		return err
	}
	r.stats.PrefillSteps++
	r.filled.Add(int64(n))
	e.planner.Prefilled(r.id, n)
	return nil
}

// pass is one forward under way: MLX computes its tokens while we prepare what
// follows. It is consumed once, or freed.
type pass struct {
	tokens   mlxc.Array   // [rows] uint32, sampled
	logprobs []mlxc.Array // a row [vocab] each, when the request wants them
}

func (p *pass) free() {
	if p == nil {
		return
	}
	p.tokens.Free()
	for _, a := range p.logprobs {
		a.Free()
	}
}

// decode makes at least one token. The next step's graph is queued before this
// step's token is read, so that the device never waits for us.
func (e *Engine) decode(r *Request) error {
	if r.options.MaxTokens == 0 {
		return e.finishPrompt(r)
	}
	now := r.ahead
	r.ahead = nil
	var err error
	if now == nil {
		last := r.prompt[len(r.prompt)-1]
		now, err = e.launch(r, func(s *mlxc.Scope) mlxc.Array { return s.FromInt32s([]int32{last}, 1, 1) })
		if err != nil {
			return err
		}
	}
	defer now.free()
	if r.generated+1 != r.options.MaxTokens {
		r.ahead, err = e.launch(r, func(s *mlxc.Scope) mlxc.Array { return s.Reshape(now.tokens, 1, 1) })
		if err != nil {
			return err
		}
	}
	ids, err := now.read()
	if err != nil {
		return err
	}
	r.filled.Store(int64(len(r.prompt)))
	r.stats.DecodeSteps++
	return e.emit(r, now, ids)
}

// launch queues a forward of the ids [1, 1] that input makes, and the choice
// of the token that follows.
func (e *Engine) launch(r *Request, input func(s *mlxc.Scope) mlxc.Array) (*pass, error) {
	p := &pass{}
	err := e.build(func(s *mlxc.Scope) {
		logits := s.Reshape(r.model.model.Forward(s, input(s), r.cache, 1), 1, -1)
		// The choice is made among log probabilities, not logits: in bfloat16
		// they round differently, and mlx_lm compares the former.
		logprobs := s.Subtract(logits, s.LogSumExp(logits, -1, true))
		p.tokens = s.Keep(s.ArgMax(logprobs, -1, false))
		if r.options.Logprobs {
			p.logprobs = append(p.logprobs, s.Keep(s.Reshape(logprobs, -1)))
		}
	})
	if err != nil {
		p.free()
		return nil, err
	}
	if err := mlxc.AsyncEval(append(p.logprobs, p.tokens)...); err != nil {
		p.free()
		return nil, err
	}
	return p, nil
}

// read waits for the pass's tokens.
func (p *pass) read() ([]int32, error) {
	if err := mlxc.Eval(append(p.logprobs, p.tokens)...); err != nil {
		return nil, err
	}
	ids, err := p.tokens.Uint32s()
	if err != nil {
		return nil, fmt.Errorf("reading sampled tokens: %w", err)
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out, nil
}

// emit delivers the tokens of a pass, up to an end token or the request's
// limit.
func (e *Engine) emit(r *Request, p *pass, ids []int32) error {
	tokens := make([]Token, 0, len(ids))
	ended := false
	for i, id := range ids {
		t := Token{ID: id}
		if i < len(p.logprobs) {
			t.Logprobs, p.logprobs[i] = p.logprobs[i], mlxc.Array{}
		}
		tokens = append(tokens, t)
		r.generated++
		if ended = r.ends[id] || r.generated == r.options.MaxTokens; ended {
			break
		}
	}
	r.stats.GeneratedTokens = r.generated
	if r.generated%clearEvery == 1 {
		if err := mlxc.ClearCache(); err != nil {
			return err
		}
	}
	e.planner.Want(r.id, false)
	r.deliver(tokens, ended)
	return nil
}

// finishPrompt puts the last prompt token into the cache and ends the request
// without a token.
func (e *Engine) finishPrompt(r *Request) error {
	if err := e.prefill(r, 1); err != nil {
		return err
	}
	e.planner.Want(r.id, false)
	r.deliver(nil, true)
	return nil
}
