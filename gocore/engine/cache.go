package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"axlm/gocore/errs"
	"axlm/gocore/kvcache"
	"axlm/gocore/models"
	"axlm/mlxc"
)

// Cache is the state of a text that one request after another continues. It
// lives from NewCache until Take or Close.
type Cache struct {
	model  *Model
	offset atomic.Int64
	known  atomic.Pointer[[]int32] // text, for who is not on the engine's thread

	// What follows is touched by the engine's thread alone.
	state  *kvcache.Cache // nil once it was taken
	mark   int            // the state's offset at its checkpoint
	text   []int32        // the last of the tokens whose state it is, as far as they are known
	holder *Request       // which is using it
}

var (
	errCacheTaken   = errs.Value("the prompt cache was taken back")
	errCacheUsed    = errs.Value("the prompt cache is in use by another request")
	errCacheForeign = errs.Value("the prompt cache is another model's")
)

// NewCache makes a cache of states that mlx_lm's classes hold, one a layer, or
// an empty one of none. The arrays stay the caller's; it should free them at
// once, so that the first write need not copy.
func (m *Model) NewCache(states []kvcache.State) (*Cache, error) {
	c := &Cache{model: m}
	err := m.engine.do(func() error {
		state, err := m.stateOf(nil)
		if err != nil || states == nil {
			c.state = state
			return err
		}
		if err := m.engine.try(func(s *mlxc.Scope) error { return state.Adopt(s, states) }); err != nil {
			state.Free()
			return err
		}
		c.set(state)
		c.mark = c.Offset()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Offset counts the tokens whose state the cache holds.
func (c *Cache) Offset() int { return int(c.offset.Load()) }

func (c *Cache) set(state *kvcache.Cache) {
	c.state = state
	c.offset.Store(int64(state.Offset()))
}

// note makes text the last tokens whose state it is. What was noted before is
// not written to: append only writes behind it.
func (c *Cache) note(text []int32) {
	c.text = text
	c.known.Store(&text)
}

// lastKnown is the text as it was noted last, for any thread.
func (c *Cache) lastKnown() []int32 {
	if c == nil {
		return nil
	}
	if text := c.known.Load(); text != nil {
		return *text
	}
	return nil
}

// Take ends the cache and returns its states, evaluated; they are the caller's.
// A request that is using it is brought to where plain decoding has it, the
// prompt and the tokens that its reader took, and waits for Resume.
func (c *Cache) Take() ([]kvcache.State, error) {
	var states []kvcache.State
	err := c.model.engine.do(func() error {
		r := c.holder
		if r != nil && r.drafter.owns(c) {
			if err := r.drafter.park(); err != nil {
				return err
			}
		} else if r != nil {
			if err := c.model.engine.park(r); err != nil {
				return err
			}
		}
		if c.state == nil {
			return errCacheTaken
		}
		var arrays []mlxc.Array
		err := c.model.engine.build(func(s *mlxc.Scope) { states = c.state.Export(s) })
		for _, st := range states {
			arrays = append(arrays, st.Arrays...)
		}
		if err == nil {
			err = mlxc.Eval(arrays...)
		}
		c.close()
		if err != nil {
			for i := range states {
				states[i].Free()
			}
			states = nil
			if r != nil {
				c.model.engine.drop(r, fmt.Errorf("its prompt cache is lost: %w", err))
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("taking back a prompt cache: %w", err)
	}
	return states, nil
}

// Close frees the cache. A request that uses it ends with an error. It does not
// wait for that, and may be called more than once.
func (c *Cache) Close() {
	e := c.model.engine
	// A closed engine has freed what it held.
	_ = e.post(func() {
		if r := c.holder; r != nil {
			e.drop(r, errCacheTaken)
		}
		c.close()
	})
}

func (c *Cache) close() {
	if c.state != nil {
		c.state.Free()
	}
	c.state = nil
	c.note(nil)
}

// follow takes note of tokens that are appended outside a request.
func (c *Cache) follow(ids []int32, batch int) error {
	if c.holder != nil {
		return errs.Value("the prompt cache is in use by a request")
	}
	if batch > 1 || len(ids) == 0 {
		c.note(nil)
	} else {
		c.note(append(c.text, ids...))
	}
	return nil
}

// stateOf is c's state, or a new one without c. It runs on the engine's thread.
func (m *Model) stateOf(c *Cache) (*kvcache.Cache, error) {
	switch {
	case m.model == nil:
		return nil, errModelClosed
	case c == nil:
		return m.model.NewCache(models.CacheOptions{PadViews: m.engine.padViews}), nil
	case c.model != m:
		return nil, errCacheForeign
	case c.state == nil:
		return nil, errCacheTaken
	}
	return c.state, nil
}

// equip gives the request its cache, and shows its speculator the text. It
// runs on the engine's thread.
func (e *Engine) equip(r *Request) error {
	var before []int32
	if c := r.options.Cache; c != nil {
		if _, err := r.model.stateOf(c); err != nil {
			return err
		}
		if c.holder != nil {
			return errCacheUsed
		}
		r.borrow(c)
		before = c.text
	} else {
		r.cache = r.model.newCache(r.options.MaxKVSize)
	}
	r.before = r.cache.Offset()
	r.base = r.before + r.total - len(r.prompt)
	if err := r.show(before); err != nil {
		return err
	}
	if err := r.checkQuantised(); err != nil {
		return err
	}
	return r.drafter.equip()
}

// newCache is an empty cache, of at most so many rows; 0 for any number.
func (m *Model) newCache(size int) *kvcache.Cache {
	return m.model.NewCache(models.CacheOptions{PadViews: m.engine.padViews, MaxSize: size, Keep: keptRows})
}

// keptRows is how many rows of a bounded cache stay, as mlx_lm has it.
const keptRows = 4

func (r *Request) borrow(c *Cache) {
	c.holder, r.borrowed, r.cache = r, c, c.state
	r.mark = c.mark
}

// release frees what the request holds.
func (r *Request) release() {
	r.ahead.free()
	r.ahead = nil
	r.options.Embeddings.Free()
	r.options.Embeddings = mlxc.Array{}
	if c := r.borrowed; c != nil && c.holder == r {
		c.holder = nil
	} else if r.cache != nil {
		r.cache.Free()
	}
	r.cache, r.borrowed = nil, nil
	r.drafter.release()
}

// settle brings the cache to where plain decoding has it: it holds the prompt
// and every token that the reader took, and the next token is chosen already,
// unless there will be none. It runs on the engine's thread.
func (e *Engine) settle(r *Request, more bool) error {
	if r.generated == 0 && r.ahead == nil || r.options.ReaderChooses {
		return nil
	}
	waiting, dropped := r.unread()
	if err := e.takeBack(r, dropped); err != nil {
		return err
	}
	if waiting > 0 && r.ahead != nil {
		return e.withdraw(r, more)
	}
	switch held := r.base + len(r.text) - waiting; {
	case r.cache.Offset() >= held:
		return nil
	case r.out.State().Ended || !more:
		return e.catchUp(r, held)
	default:
		if err := e.catchUp(r, held-1); err != nil {
			return err
		}
	}
	b := &boarding{request: r, in: r.last()}
	e.launch([]*boarding{b})
	if b.err == nil {
		r.ahead = b.pass
	}
	return b.err
}

// withdraw gives up a pass after a token that nobody took yet, and takes that
// token out of the cache. A cache of bounded size may have written over the row
// that the token displaced: then it stays in, as it does where mlx_lm is
// interrupted in the middle of a step, and so does the pass after it, if there
// is more to come.
func (e *Engine) withdraw(r *Request, more bool) error {
	stays := r.cache.WrittenOver()
	if stays && more {
		return nil
	}
	r.giveUpAhead()
	if stays {
		return nil
	}
	return e.rollback(r.cache, r.base+len(r.text)-1-r.mark)
}

// giveUpAhead drops the pass that is queued, and its draw with it.
func (r *Request) giveUpAhead() {
	r.ahead.free()
	r.ahead = nil
	r.keys.retract(0, &r.state)
}

// leave settles the request, and quantises the cache if that is due.
func (e *Engine) leave(r *Request, more bool) error {
	if err := e.settle(r, more); err != nil {
		return err
	}
	return e.quantise(r)
}

// surrender leaves a borrowed cache behind as settle does. Where that fails, or
// the request did, some of its layers may lack tokens: it is gone.
func (e *Engine) surrender(r *Request, err error) {
	c := r.borrowed
	switch {
	case c == nil || r.cache == nil:
		return
	case err != nil:
		c.close()
		return
	}
	if err := guarded(func() error { return e.leave(r, false) }); err != nil {
		c.close()
		return
	}
	c.set(r.cache)
	c.mark = r.mark
	if held := c.Offset() - r.base; held >= 0 && held <= len(r.text) && r.parked == 0 && r.total == len(r.prompt) {
		c.note(append(c.text, r.text[:held]...))
	} else {
		c.note(nil)
	}
}

// park settles the request and takes its cache away until Resume.
func (e *Engine) park(r *Request) error {
	e.planner.remove(r)
	if err := e.leave(r, true); err != nil {
		e.drop(r, err)
		return err
	}
	c := r.borrowed
	c.set(r.cache)
	r.parked = c.Offset() + 1
	c.holder, r.borrowed, r.cache = nil, nil, nil
	return nil
}

// Resume continues a request whose cache was taken with another, which holds
// what is left of it. It does not wait for the engine: where the request cannot
// go on, Next tells.
func (r *Request) Resume(c *Cache) error {
	return r.continueWith(c, r.model, (*Request).resume)
}

// continueWith gives a request that waits for a cache of a model one. Giving it
// the same again is harmless.
func (r *Request) continueWith(c *Cache, m *Model, resume func(*Request, *Cache) error) error {
	if c.model != m {
		return errCacheForeign
	}
	return r.engine.postFor(r, func() {
		if r.engine.requests[r.id] == nil {
			return // it ended, which Next tells
		}
		if err := resume(r, c); err != nil {
			r.engine.drop(r, fmt.Errorf("resuming: %w", err))
		}
	})
}

func (r *Request) resume(c *Cache) error {
	if _, err := r.model.stateOf(c); err != nil {
		return err
	}
	switch {
	case c.holder == r:
		return nil
	case r.cache != nil:
		return errs.Value("the request has its cache")
	case c.holder != nil:
		return errCacheUsed
	}
	r.borrow(c)
	r.base += c.Offset() + 1 - r.parked
	r.before = -1 // what the reader did to it nobody knows
	if err := r.engine.planner.admit(r); err != nil {
		return err
	}
	if r.out.State().Wanted {
		r.engine.planner.want(r)
	}
	return nil
}

// checkQuantised makes sure that the cache can be quantised, if it is to be.
func (r *Request) checkQuantised() error {
	q := r.options.QuantisedKV
	if q == nil {
		return nil
	}
	if !slices.Contains([]int{2, 3, 4, 5, 6, 8}, q.Form.Bits) {
		return errs.Value("kv_bits: want 2, 3, 4, 5, 6 or 8, got %d", q.Form.Bits)
	}
	if !slices.Contains([]int{32, 64, 128}, q.Form.GroupSize) {
		return errs.Value("kv_group_size: want 32, 64 or 128, got %d", q.Form.GroupSize)
	}
	size := r.model.manifest.Description.Dimensions
	for _, head := range []int{size.HeadDim, size.GlobalHeadDim} {
		if head%q.Form.GroupSize != 0 {
			return errs.Value("kv_group_size: %d does not divide the head size %d", q.Form.GroupSize, head)
		}
	}
	var windowed []string
	for i, l := range r.cache.Layers {
		switch l.(type) {
		case *kvcache.Window, *kvcache.Rotating:
			windowed = append(windowed, strconv.Itoa(i))
		}
	}
	if len(windowed) > 0 {
		return errs.NotImplemented("kv_bits: rotating caches cannot be quantised; layers %s have one", strings.Join(windowed, ", "))
	}
	return nil
}

// quantise makes the request's cache quantised once it is long enough, though
// not before the request's first forward: mlx_lm does it after each. Every
// forward calls it first.
func (e *Engine) quantise(r *Request) error {
	q := r.options.QuantisedKV
	first := !r.forwarded
	r.forwarded = true
	if q == nil || r.cache.Offset() < q.Start || first {
		return nil
	}
	return e.quantiseTo(r.cache, q.Form)
}

func (e *Engine) quantiseTo(cache *kvcache.Cache, form kvcache.QuantForm) error {
	return e.try(func(s *mlxc.Scope) error { return cache.Quantise(s, form) })
}
