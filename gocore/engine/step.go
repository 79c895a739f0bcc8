package engine

import (
	"fmt"
	"slices"
	"time"

	"axlm/gocore/kvcache"
	"axlm/gocore/scheduler"
	"axlm/mlxc"
)

// clearEvery is after how many decode steps MLX's buffer cache is emptied.
const clearEvery = 256

// stepTokens is how many tokens a step takes beside those that decode, so that
// a long prompt does not keep them waiting.
const stepTokens = 1024

// step plans a step and runs it. It tells whether there was anything to do.
func (e *Engine) step() bool {
	e.propose()
	plan := e.planner.Next(scheduler.Budget{Tokens: e.budget()})
	if plan.Empty() && e.makeRoom() {
		plan = e.planner.Next(scheduler.Budget{Tokens: e.budget()})
	}
	if plan.Empty() {
		return false
	}
	for _, id := range plan.Preempted {
		if r := e.requests[id]; r != nil {
			e.preempt(r)
		}
	}
	for _, f := range plan.Failed {
		if r := e.requests[f.ID]; r != nil {
			e.drop(r, f.Err())
		}
	}
	e.reclaim(plan.Reclaim)
	for _, j := range plan.Joins {
		if r := e.requests[j.ID]; r != nil {
			e.join(r)
		}
	}
	e.pass(plan.Passes)
	var fills []*filling
	for _, c := range plan.Chunks {
		if r := e.requests[c.ID]; r != nil && r.cache.Offset() == c.From {
			fills = append(fills, r.filling(c.N))
		}
	}
	for _, mates := range byModel(fills, func(f *filling) *Model { return f.request.model }) {
		e.fill(mates)
	}
	for _, r := range e.order {
		e.planner.idle(r)
	}
	return true
}

// makeRoom lets the memory go of requests whose readers take nothing, where
// others that are waited for cannot go on without it. It tells whether there
// are such.
func (e *Engine) makeRoom() bool {
	waited := slices.ContainsFunc(e.order, func(r *Request) bool { return r.credit > 0 || r.waitsForMemory() })
	found := false
	for _, r := range e.order {
		if waited && r.credit == 0 && r.idle <= idleSteps {
			r.idle = idleSteps
			e.planner.idle(r)
			found = true
		}
	}
	return found
}

// waitsForMemory tells whether a request is to process its prompt alone and
// cannot.
func (r *Request) waitsForMemory() bool {
	return r.options.MaxTokens == 0 && r.cache != nil && r.position() < r.total
}

// budget is how many tokens the next step may take.
func (e *Engine) budget() int {
	tokens, decoding := 0, 0
	for _, r := range e.order {
		switch {
		case r.credit == 0 && r.options.MaxTokens != 0:
		case r.decodes():
			decoding++
		default:
			tokens = max(tokens, r.options.PrefillStepSize)
		}
	}
	if decoding > 0 {
		tokens = min(tokens, stepTokens)
	}
	return min(tokens, scheduler.MaxTokens) + decoding*scheduler.MaxWidth
}

// decodes tells whether all but the last token of the text is in the cache.
func (r *Request) decodes() bool {
	return r.options.MaxTokens != 0 && r.cache != nil && r.cache.Offset() >= r.tokens()-1
}

// join gives a request that has memory now what is kept of its text's beginning.
func (e *Engine) join(r *Request) {
	held := 0
	err := guarded(func() (err error) {
		held, err = e.reuse(r)
		return err
	})
	if err != nil {
		e.drop(r, fmt.Errorf("going on from a kept prefix: %w", err))
		return
	}
	e.planner.tell(scheduler.Event{Kind: scheduler.Reused, ID: r.id, N: max(0, min(held, r.tokens()-1))})
}

// preempt takes the memory of the request's cache: it will be made again.
func (e *Engine) preempt(r *Request) {
	if r.cache == nil || !r.rebuildable() {
		return
	}
	if r.ahead != nil {
		r.giveUpAhead()
	}
	fresh := r.model.newCache(r.options.MaxKVSize)
	r.cache.Free()
	r.cache, r.mark, r.keptTo = fresh, 0, 0
	if r.borrowed != nil {
		r.borrowed.state = fresh
	}
}

// pass runs the passes of a plan: those of a model that can be shared as one.
func (e *Engine) pass(passes []scheduler.Pass) {
	var shared []*turn
	for i := range passes {
		p := &passes[i]
		for _, row := range p.Rows {
			r := e.requests[row.ID]
			if r == nil || !r.decodes() {
				continue
			}
			t := &turn{request: r, drafts: row.Drafts, lookahead: p.Lookahead}
			switch {
			case r.shares():
				shared = append(shared, t)
			case r.options.ReaderChooses:
				if err := guarded(func() error { return e.offer(r) }); err != nil {
					e.drop(r, fmt.Errorf("decode: %w", err))
				}
				e.landedAt = time.Time{}
			default:
				e.decode([]*turn{t})
			}
		}
	}
	for _, mates := range byModel(shared, func(t *turn) *Model { return t.request.model }) {
		e.decode(mates)
	}
}

// shares tells whether the request can decode in one pass with others.
func (r *Request) shares() bool { return !r.options.ReaderChooses && r.drafter == nil }

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

// turn is a request's part in one step of decoding.
type turn struct {
	request   *Request
	drafts    int  // of those proposed, the first ones
	lookahead bool // the next pass may be queued
	pass      *pass
	ahead     bool // the pass was launched a step ago
	err       error
}

// decode makes at least one token for each of some requests of one model: a
// pass each, launched now or one step ago, is read and verified. Those that are
// launched now share a forward, and so do those that are queued for the next
// step. This is the only place where tokens become final.
func (e *Engine) decode(turns []*turn) {
	entered := time.Now()
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
	e.bookCost(turns, entered)
	for _, t := range turns {
		t.pass.free()
		if t.err == nil {
			t.err = err
		}
		if t.err != nil {
			e.drop(t.request, fmt.Errorf("decode: %w", t.err))
		}
	}
	e.served = 0
	if len(turns) == 1 {
		e.served = turns[0].request.id
	}
}

// bookCost tells the scheduler what a pass took that requests shared.
func (e *Engine) bookCost(turns []*turn, entered time.Time) {
	now := time.Now()
	var f *flight
	for _, t := range turns {
		if t.err != nil || t.pass == nil || f != nil && t.pass.flight != f {
			e.landedAt = time.Time{}
			return
		}
		f = t.pass.flight
	}
	started := entered
	if turns[0].ahead {
		started = e.landedAt
	}
	// One that was queued while something else ran tells nothing.
	if f.shared && !started.IsZero() {
		if n, err := e.planner.number(classOf(turns[0].request)); err == nil {
			e.planner.tell(scheduler.Event{
				Kind: scheduler.Cost, Class: n, N: len(turns), Tokens: f.rows, Nanos: max(1, now.Sub(started).Nanoseconds()),
			})
		}
	}
	e.landedAt = now
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
			p.decision = r.decideAhead()
			p.timing.paused, p.timing.shared = entered.Sub(r.delivered), e.served != r.id
			continue
		}
		b := &boarding{request: r}
		t.err = guarded(func() error {
			b.in = r.decide(t.drafts)
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
		if t.err == nil && t.lookahead && t.pass.decision.Lookahead && t.request.remaining() > 1 {
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
	e.planner.committed(r, len(tokens), accepted)
	r.deliver(tokens, ended)
	if ended && !r.cache.Whole() {
		_ = e.keep(r) // the text is there; that its state is not kept is no error
	}
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
