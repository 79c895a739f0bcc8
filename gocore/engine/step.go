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

// execute runs a plan: those that decode share passes, model by model, and then
// those share that fill their prompts. An error ends the request that it is
// about.
func (e *Engine) execute(items []scheduler.Item) {
	var decoding []*Request
	var fills []*filling
	for _, item := range items {
		r := e.requests[item.ID]
		switch {
		case r == nil:
			e.planner.Remove(item.ID)
		case item.Phase == scheduler.Prefill:
			fills = append(fills, r.filling(item.Tokens))
		case r.shares():
			decoding = append(decoding, r)
		default:
			e.alone(r)
		}
	}
	for _, mates := range byModel(decoding, func(r *Request) *Model { return r.model }) {
		e.decode(mates)
	}
	for _, mates := range byModel(fills, func(f *filling) *Model { return f.request.model }) {
		e.fill(mates)
	}
}

// byModel groups parts of a plan, in order.
func byModel[T any](all []T, model func(T) *Model) [][]T {
	var groups [][]T
	for len(all) > 0 {
		m := model(all[0])
		var mates, others []T
		for _, part := range all {
			if model(part) == m {
				mates = append(mates, part)
			} else {
				others = append(others, part)
			}
		}
		groups, all = append(groups, mates), others
	}
	return groups
}

// shares tells whether the request can decode in one pass with others.
func (r *Request) shares() bool {
	return r.options.MaxTokens != 0 && !r.options.ReaderChooses && r.drafter == nil
}

// alone runs the next step of a request that decodes by itself.
func (e *Engine) alone(r *Request) {
	err := guarded(func() error {
		switch {
		case r.options.MaxTokens == 0:
			return e.finishPrompt(r)
		case r.options.ReaderChooses:
			return e.offer(r)
		}
		e.decode([]*Request{r})
		return nil
	})
	if err != nil {
		e.drop(r, fmt.Errorf("%s: %w", scheduler.Decode, err))
	}
	e.served = r.id
}

// turn is a request's part in one step of decoding.
type turn struct {
	request *Request
	pass    *pass
	ahead   bool // the pass was launched a step ago
	err     error
}

// decode makes at least one token for each of some requests of one model: a
// pass each, launched now or one step ago, is read and verified. Those that are
// launched now share a forward, and so do those that are queued for the next
// step. This is the only place where tokens become final.
func (e *Engine) decode(requests []*Request) {
	entered := time.Now()
	turns := make([]*turn, len(requests))
	for i, r := range requests {
		turns[i] = &turn{request: r}
	}
	err := guarded(func() error {
		e.take(turns, entered)
		e.queue(turns)
		for _, t := range turns {
			if t.err == nil {
				t.err = guarded(func() error { return e.land(t) })
			}
		}
		return nil
	})
	for _, t := range turns {
		t.pass.free()
		if t.err == nil {
			t.err = err
		}
		if t.err != nil {
			e.drop(t.request, fmt.Errorf("%s: %w", scheduler.Decode, t.err))
		}
	}
	e.served = 0
	if len(requests) == 1 {
		e.served = requests[0].id
	}
}

// take gives each turn its pass: the one that was queued for it, or one that is
// launched now.
func (e *Engine) take(turns []*turn, entered time.Time) {
	var fresh []*boarding
	var owners []*turn
	for _, t := range turns {
		r := t.request
		if p := r.ahead; p != nil {
			r.ahead = nil
			t.pass, t.ahead = p, true
			p.decision = r.planAhead()
			p.timing.paused, p.timing.shared = entered.Sub(r.delivered), e.served != r.id
			continue
		}
		b := &boarding{request: r}
		t.err = guarded(func() error {
			b.in = r.plan(len(turns))
			return r.drafter.failed()
		})
		if t.err == nil {
			fresh, owners = append(fresh, b), append(owners, t)
		}
	}
	e.launch(fresh)
	for i, b := range fresh {
		t := owners[i]
		if t.err = b.err; t.err == nil {
			t.pass = b.pass
			t.pass.timing.started = t.request.drafter.since(entered)
		}
	}
}

// queue launches the next plain pass of those that want one before this step's
// tokens are read, so that the device does not wait for us.
func (e *Engine) queue(turns []*turn) {
	var next []*boarding
	var owners []*turn
	for _, t := range turns {
		if t.err == nil && t.pass.decision.Lookahead && t.request.remaining() > 1 {
			next, owners = append(next, &boarding{request: t.request, in: input{after: t.pass}}), append(owners, t)
		}
	}
	e.launch(next)
	for i, b := range next {
		if owners[i].err = b.err; b.err == nil {
			owners[i].request.ahead = b.pass
		}
	}
}

// land reads a turn's pass and makes its tokens final.
func (e *Engine) land(t *turn) error {
	r, p := t.request, t.pass
	waiting := time.Now()
	ids, err := p.read()
	if err != nil {
		return err
	}
	now := time.Now()
	seconds := p.timing.seconds(now, waiting)
	switch {
	case p.flight.shared:
		seconds = 0 // what of it was this request's cannot be told
	case r.ahead != nil:
		r.ahead.timing.started = now
	case t.ahead:
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
