package engine

import (
	"axlm/gocore/errs"
)

// What concerns the cache of a draft model: where it comes from, and how it is
// left behind.

// equip gives the drafter its cache. As in mlx_lm, one that the request names
// is taken to hold the same text as the model's own, which must not be full.
func (d *drafter) equip() error {
	if d == nil {
		return nil
	}
	if room, limited := d.request.cache.Room(); limited && room == 0 {
		return errs.Value("prompt_cache: it cannot be trimmed any more, as speculation with a draft model needs it")
	}
	c := d.request.options.DraftCache
	state, err := d.model.stateOf(c)
	switch {
	case err == errModelClosed:
		return errDraftClosed
	case err != nil:
		return err
	case c == nil:
		d.cache = state
		return nil
	case c.holder != nil:
		return errs.Value("the draft model's prompt cache is in use by another request")
	}
	d.borrow(c)
	d.base = state.Offset()
	return nil
}

func (d *drafter) borrow(c *Cache) {
	c.holder, d.borrowed, d.cache = d.request, c, c.state
	d.checkpoint()
}

func (d *drafter) checkpoint() {
	d.cache.Checkpoint()
	d.mark = d.cache.Offset()
}

// owns tells whether c is the drafter's.
func (d *drafter) owns(c *Cache) bool { return d != nil && d.borrowed == c }

// settle brings the cache to the prompt and the tokens that the reader took.
func (d *drafter) settle() error {
	r := d.request
	waiting := r.out.State().Waiting
	taken := r.text[:max(0, len(r.text)-waiting)]
	if r.generated == 0 {
		taken = taken[:min(len(taken), int(r.filled.Load()))]
	}
	// Rows that a cache of bounded size has written over cannot come back: then
	// it keeps the drafts after the text.
	if len(d.held) <= len(taken) || !d.cache.WrittenOver() {
		if err := d.follow(taken); err != nil {
			return err
		}
	}
	return d.quantise()
}

// surrender leaves a borrowed cache behind as settle does; it is gone where
// that fails, or where the request failed with err.
func (d *drafter) surrender(err error) {
	if d == nil || d.borrowed == nil {
		return
	}
	c := d.borrowed
	if err == nil {
		err = guarded(d.settle)
	}
	if err != nil {
		c.close()
		return
	}
	c.set(d.cache)
	c.note(nil)
}

// park settles a borrowed cache and gives it up. Until it is back, nothing is
// drafted.
func (d *drafter) park() error {
	c := d.borrowed
	err := d.settle()
	if err != nil {
		c.close()
	} else {
		c.set(d.cache)
		c.note(nil)
	}
	d.parked = c.Offset()
	d.release()
	return err
}

// ResumeDraft gives a request's draft model its cache back, which was taken. It
// does not wait for the engine, as Resume does not.
func (r *Request) ResumeDraft(c *Cache) error {
	if r.options.DraftModel == nil {
		return errs.Value("no draft model waits for a prompt cache")
	}
	return r.continueWith(c, r.options.DraftModel, func(r *Request, c *Cache) error { return r.drafter.resume(c) })
}

func (d *drafter) resume(c *Cache) error {
	switch {
	case d.borrowed == c:
		return nil
	case d.cache != nil:
		return errs.Value("the draft model has its prompt cache")
	}
	if _, err := d.model.stateOf(c); err != nil {
		return err
	}
	if c.holder != nil {
		return errs.Value("the draft model's prompt cache is in use by another request")
	}
	d.borrow(c)
	d.base += c.Offset() - d.parked
	return nil
}

// release gives the cache up.
func (d *drafter) release() {
	if d == nil || d.cache == nil {
		return
	}
	if c := d.borrowed; c == nil {
		d.cache.Free()
	} else if c.holder == d.request {
		c.holder = nil
	}
	d.cache, d.borrowed = nil, nil
}

// quantise makes the cache quantised where the request's is.
func (d *drafter) quantise() error {
	q := d.request.options.QuantisedKV
	if q == nil || d.cache.Offset() < q.Start {
		return nil
	}
	return d.request.engine.quantiseTo(d.cache, q.Form)
}

func (d *drafter) bytes() int {
	if d == nil || d.cache == nil {
		return 0
	}
	return d.cache.Bytes()
}
