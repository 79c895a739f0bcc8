package engine

import (
	"fmt"
	"time"

	"axlm/gocore/kvcache"
	"axlm/gocore/models"
	"axlm/gocore/scheduler"
	"axlm/mlxc"
)

// filling is the next part of a request's prompt.
type filling struct {
	request *Request
	ids     []int32
	rows    rowRange // of the embeddings
	n       int
	err     error
}

// position is how many of the request's own tokens the cache holds.
func (r *Request) position() int { return r.cache.Offset() - r.base + r.total - len(r.prompt) }

// filling is what the cache lacks next, at most n tokens: of the prompt, or,
// where the cache is made again, of the text after it. A prompt's last token
// comes alone, as it does in decoding.
func (r *Request) filling(n int) *filling {
	from := r.position()
	f := &filling{request: r, n: n}
	switch {
	case from >= r.total:
		at := len(r.prompt) + from - r.total
		f.ids = r.text[at : at+n]
		return f
	case from < r.total-1:
		f.n = r.stop(from, from+min(n, r.total-1-from)) - from
	default:
		f.n = 1
	}
	f.rows = r.embeddings(from, f.n)
	if len(r.prompt) > 0 {
		f.ids = r.prompt[from : from+f.n]
	}
	return f
}

// fill appends parts of prompts, of requests of one model, to their caches. No
// logits: the last prompt token is left to decode.
func (e *Engine) fill(all []*filling) {
	e.landedAt = time.Time{}
	err := guarded(func() error {
		e.append(all)
		return mlxc.ClearCache()
	})
	if err != nil {
		for _, f := range all {
			f.err = err
		}
	}
	for _, f := range all {
		if f.err == nil {
			f.err = guarded(func() error { return e.filled(f) })
		}
		if f.err != nil {
			e.drop(f.request, fmt.Errorf("prefill: %w", f.err))
		}
	}
	e.served = 0
	if len(all) == 1 {
		e.served = all[0].request.id
	}
}

// filled takes note of a part that is in the cache.
func (e *Engine) filled(f *filling) error {
	r := f.request
	done := min(r.position(), r.total)
	r.filled.Store(max(r.filled.Load(), int64(done))) // less while a cache is made again
	if len(r.prompt) > 0 {
		if err := r.drafter.follow(r.prompt[:done]); err != nil {
			return err
		}
	}
	r.stats.PrefillSteps++
	if err := e.keep(r); err != nil {
		return err
	}
	e.planner.tell(scheduler.Event{Kind: scheduler.Prefilled, ID: r.id, N: f.n})
	if r.options.MaxTokens == 0 && done == r.total {
		e.planner.rest(r)
		r.deliver(nil, true)
		return nil
	}
	r.rested()
	return nil
}

// append runs the parts through one forward, or, where they cannot share one or
// it fails while it is built, through one each.
func (e *Engine) append(all []*filling) {
	ready := all[:0:0]
	shared := len(all) > 1
	for _, f := range all {
		if f.err = e.quantise(f.request); f.err != nil {
			continue
		}
		ready = append(ready, f)
		if f.rows.n > 0 {
			shared = false
		}
	}
	if shared && len(ready) > 1 {
		if e.appendTogether(ready) {
			return
		}
	}
	for _, f := range ready {
		if f.err == nil {
			f.err = e.appendTo(f.request, f.ids, f.rows)
		}
	}
}

// appendTogether tells whether the forward could be built.
func (e *Engine) appendTogether(all []*filling) bool {
	var ids []int32
	var in models.Input
	caches := make([]*kvcache.Cache, len(all))
	for i, f := range all {
		caches[i] = f.request.cache
		f.request.checkpoint()
		ids = append(ids, f.ids...)
		in.Spans = append(in.Spans, models.Span{Cache: caches[i], Tokens: f.n})
	}
	err := e.build(func(s *mlxc.Scope) {
		in.IDs = s.FromInt32s(ids, 1, len(ids))
		all[0].request.model.model.Forward(s, in)
	})
	if err != nil {
		for _, f := range all {
			f.err = e.rollback(f.request.cache, 0)
		}
		return false
	}
	err = e.evaluateAll(caches, len(ids), func() error { return wanted(all) })
	for _, f := range all {
		if f.err = err; err == nil {
			f.err = f.request.wanted()
		}
	}
	return true
}

// wanted tells with an error that nobody waits for any of the parts.
func wanted(all []*filling) error {
	var err error
	for _, f := range all {
		if err = f.request.wanted(); err == nil {
			return nil
		}
	}
	return err
}

// extend appends tokens, or embeddings in their place, to the cache and waits
// for it.
func (e *Engine) extend(r *Request, ids []int32, rows rowRange) error {
	if err := e.quantise(r); err != nil {
		return err
	}
	return e.appendTo(r, ids, rows)
}

// appendTo is extend for a cache that is in the right form.
func (e *Engine) appendTo(r *Request, ids []int32, rows rowRange) error {
	err := e.build(func(s *mlxc.Scope) {
		r.model.forward(s, ids, rows.of(s, r.options.Embeddings), r.cache, 0)
	})
	if err != nil {
		return err
	}
	return e.evaluate(r.cache, max(len(ids), rows.n), r.wanted)
}

// catchUp extends the cache to so many tokens, those before the request included.
func (e *Engine) catchUp(r *Request, held int) error {
	for held > r.cache.Offset() {
		f := r.filling(held - r.cache.Offset())
		if err := e.extend(r, f.ids, f.rows); err != nil {
			return err
		}
	}
	return nil
}
