package engine

import (
	"fmt"
	"time"

	"axlm/gocore/kvcache"
	"axlm/gocore/scheduler"
	"axlm/mlxc"
)

// clearEvery is after how many decode steps MLX's buffer cache is emptied.
const clearEvery = 256

// execute runs one request's part of a plan. An error ends that request only.
func (e *Engine) execute(item scheduler.Item) {
	r := e.requests[item.ID]
	if r == nil {
		e.planner.Remove(item.ID)
		return
	}
	err := guarded(func() error {
		switch {
		case item.Phase == scheduler.Prefill:
			return e.prefill(r, item.Tokens)
		case r.options.MaxTokens == 0:
			return e.finishPrompt(r)
		case r.options.ReaderChooses:
			return e.offer(r)
		}
		return e.decode(r)
	})
	if err != nil {
		e.drop(r, fmt.Errorf("%s: %w", item.Phase, err))
	}
	e.served = item.ID
}

// prefill appends the next n prompt tokens to the cache. No logits: the last
// prompt token is left to decode.
func (e *Engine) prefill(r *Request, n int) error {
	from := int(r.filled.Load())
	var ids []int32
	if len(r.prompt) > 0 {
		ids = r.prompt[from : from+n]
	}
	if err := e.extend(r, ids, r.embeddings(from, n)); err != nil {
		return err
	}
	if err := mlxc.ClearCache(); err != nil {
		return err
	}
	if len(r.prompt) > 0 {
		if err := r.drafter.follow(r.prompt[:from+n]); err != nil {
			return err
		}
	}
	r.stats.PrefillSteps++
	r.filled.Add(int64(n))
	e.planner.Prefilled(r.id, n)
	r.rested()
	return nil
}

// extend appends tokens, or embeddings in their place, to the cache and waits
// for it.
func (e *Engine) extend(r *Request, ids []int32, rows rowRange) error {
	if err := e.quantise(r); err != nil {
		return err
	}
	err := e.build(func(s *mlxc.Scope) {
		r.model.forward(s, ids, rows.of(s, r.options.Embeddings), r.cache, 0)
	})
	if err != nil {
		return err
	}
	return e.evaluate(r.cache, max(len(ids), rows.n), r.wanted)
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

// decode makes at least one token: one pass, launched now or one step ago, is
// read and verified. This is the only place where tokens become final.
func (e *Engine) decode(r *Request) error {
	entered := time.Now()
	p, ahead := r.ahead, r.ahead != nil
	r.ahead = nil
	var err error
	if !ahead {
		in := r.plan()
		if err = r.drafter.failed(); err != nil {
			return err
		}
		if p, err = e.launch(r, in); err != nil {
			return err
		}
		p.timing.started = r.drafter.since(entered)
	} else {
		p.decision = r.planAhead()
		p.timing.paused, p.timing.shared = entered.Sub(r.delivered), e.served != r.id
	}
	defer p.free()
	if p.decision.Lookahead && r.remaining() > 1 {
		// Queued before this step's token is read, so that the device does not
		// wait for us.
		if r.ahead, err = e.launch(r, next(p)); err != nil {
			return err
		}
	}
	waiting := time.Now()
	ids, err := p.read()
	if err != nil {
		return err
	}
	now := time.Now()
	seconds := p.timing.seconds(now, waiting)
	switch {
	case r.ahead != nil:
		r.ahead.timing.started = now
	case ahead:
		// Queuing it was part of the pass before, and this one queues none: its
		// time says little.
		seconds = 0
	}
	accepted := p.accepted(ids)
	good, cut := drawable(ids[:accepted+1], r.model.vocab)
	tokens, ended := r.emit(p, good)
	if cut && !ended {
		// What comes before can still be read.
		r.out.Deliver(tokens, false)
		return errNoToken
	}
	// Where the text ends among its drafts, the cache does without the others.
	if err := e.commit(r, p, len(tokens)-1); err != nil {
		for _, t := range tokens {
			t.Free()
		}
		return err
	}
	r.filled.Store(int64(r.total))
	r.stats.DecodeSteps++
	if r.stats.DecodeSteps%clearEvery == 0 {
		if err := mlxc.ClearCache(); err != nil {
			return err
		}
	}
	r.learn(p, accepted, seconds)
	e.planner.Want(r.id, false)
	r.deliver(tokens, ended)
	r.delivered = time.Now()
	return nil
}

// commit makes the pass's accepted rows part of the cache and forgets the
// others.
func (e *Engine) commit(r *Request, p *pass, accepted int) error {
	if p.rows == 1 {
		return nil
	}
	r.state = p.states[accepted]
	if accepted+1 == p.rows {
		return nil
	}
	return e.rollback(r.cache, accepted+1)
}

// rollback keeps the first keep tokens after the cache's checkpoint.
func (e *Engine) rollback(cache *kvcache.Cache, keep int) error {
	return e.try(func(s *mlxc.Scope) error { return cache.Rollback(s, keep) })
}

// emit makes tokens final, up to an end token or the request's limit, and tells
// whether they end it. All but the last of a pass were drafts.
func (r *Request) emit(p *pass, ids []int32) (tokens []Token, ended bool) {
	tokens = make([]Token, 0, len(ids))
	for i, id := range ids {
		t := Token{ID: id, FromDraft: i < len(ids)-1, State: p.states[i]}
		if i < len(p.logprobs) {
			t.Logprobs, p.logprobs[i] = p.logprobs[i], mlxc.Array{}
		}
		tokens = append(tokens, t)
		r.keys.advance(p.states[i])
		r.generated++
		if ended = r.ends[id] || r.generated == r.options.MaxTokens; ended {
			break
		}
	}
	r.text = append(r.text, ids[:len(tokens)]...)
	r.stats.GeneratedTokens = r.generated
	return tokens, ended
}
