package engine

import (
	"errors"
	"log"
	"maps"
	"math"

	"axlm/gocore/kvcache"
	"axlm/gocore/models"
	"axlm/gocore/ngram"
	"axlm/gocore/scheduler"
	"axlm/mlxc"
)

// planner tells the scheduler what happens to the engine's requests.
type planner struct {
	*scheduler.Scheduler
	classes map[class]uint32
	numbers uint32 // of classes, given so far
	sizes   map[*Model]cacheSize
}

// class is what the scheduler knows requests by: those of one class have caches
// that take equal memory. Passes are shared across the classes of a model, but
// by those that go alone.
type class struct {
	model     *Model
	solo      bool
	bounded   int         // rows of a cache of bounded size, 0 for none
	quantised QuantisedKV // how the cache is quantised
	uncounted bool        // a cache that the caller brought, of whose text not all is known
}

// cacheSize is what a model's cache takes in memory.
type cacheSize struct {
	token, windowToken, largest int64 // bytes of a token, in layers that keep all and those that do not; of the largest layer
	state                       int64 // bytes whatever the length
	window                      int   // tokens
}

// running is the most requests that have a cache at a time.
const running = 1 << 10

// headroom is for how many tokens to come a request that joins has room.
const headroom = 128

// credit is how many tokens a request may run ahead of its reader: one pass.
const credit = ngram.MaxWidth

func newPlanner() (*planner, error) {
	s, err := scheduler.New(scheduler.Config{Running: running, PrefillStep: scheduler.MaxTokens, Headroom: headroom})
	if err != nil {
		return nil, err
	}
	return &planner{Scheduler: s, classes: map[class]uint32{}, sizes: map[*Model]cacheSize{}}, nil
}

// tell applies an event. One about a request that has ended comes too late, and
// changes nothing; any other that is refused is a fault of ours.
func (p *planner) tell(e scheduler.Event) {
	if err := p.Apply(e); err != nil && !errors.Is(err, scheduler.ErrUnknown) {
		log.Printf("axlm: %v", err)
	}
}

// classOf is the request's class. It runs when its cache is known.
func classOf(r *Request) class {
	c := class{model: r.model, solo: !r.shares(), bounded: r.options.MaxKVSize, uncounted: !r.rebuildable()}
	if q := r.options.QuantisedKV; q != nil {
		c.quantised = *q
	}
	return c
}

// number is the class's number, which is made when it is first asked for.
func (p *planner) number(c class) (uint32, error) {
	if n, ok := p.classes[c]; ok {
		return n, nil
	}
	n := p.numbers + 1
	if err := p.Apply(p.definition(n, c)); err != nil {
		return 0, err
	}
	p.classes[c], p.numbers = n, n
	return n, nil
}

// definition is the event that tells what caches of the class take.
func (p *planner) definition(n uint32, c class) scheduler.Event {
	e := scheduler.Event{Kind: scheduler.Define, Class: n, Solo: c.solo, Width: scheduler.MaxWidth}
	if c.uncounted {
		return e
	}
	size := p.sizes[c.model]
	e.Bytes, e.WindowBytes, e.GrowBytes, e.StateBytes, e.Window = size.token, size.windowToken, size.largest, size.state, size.window
	if q := c.quantised; q.Form.Bits > 0 {
		// Until it is quantised it takes what it takes; scales and biases are two
		// numbers of 16 bits a group.
		e.StateBytes += int64(q.Start) * e.Bytes
		e.Bytes = e.Bytes * int64(q.Form.Bits*q.Form.GroupSize+32) / int64(16*q.Form.GroupSize)
	}
	if c.bounded > 0 {
		e.WindowBytes += e.Bytes
		e.Bytes, e.Window = 0, max(e.Window, c.bounded)
	}
	return e
}

// measure learns what the model's caches take, and what they take now where
// that has changed.
func (p *planner) measure(m *Model, size cacheSize) {
	p.sizes[m] = size
	for c, n := range p.classes {
		if c.model == m {
			p.tell(p.definition(n, c))
		}
	}
}

// forget drops a closed model, which has no requests any more.
func (p *planner) forget(m *Model) {
	delete(p.sizes, m)
	maps.DeleteFunc(p.classes, func(c class, _ uint32) bool { return c.model == m })
}

// budget sets how many bytes caches may take in all; 0 for any number.
func (p *planner) budget(bytes int64) {
	if bytes <= 0 {
		bytes = scheduler.MaxBudget
	}
	p.tell(scheduler.Event{Kind: scheduler.Memory, Bytes: min(bytes, scheduler.MaxBudget)})
}

// admit enters a request with the cache that it has.
func (p *planner) admit(r *Request) error {
	n, err := p.number(classOf(r))
	if err != nil {
		return err
	}
	e := scheduler.Event{Kind: scheduler.Admit, ID: r.id, Class: n, N: r.tokens(), Max: scheduler.Unlimited, Step: r.options.PrefillStepSize}
	if r.options.MaxTokens != Unlimited {
		e.Max = max(0, r.options.MaxTokens-r.generated)
	}
	e.Step = min(e.Step, scheduler.MaxTokens)
	e.Reused = max(0, min(r.cache.Offset(), e.N-1))
	r.credit = 0
	return p.Apply(e)
}

// want lets the request make what its reader waits for; rest ends that.
func (p *planner) want(r *Request) {
	if n := credit - r.credit; n > 0 {
		p.tell(scheduler.Event{Kind: scheduler.Credit, ID: r.id, N: n})
		r.credit = credit
	}
	p.wake(r)
}

func (p *planner) rest(r *Request) {
	p.tell(scheduler.Event{Kind: scheduler.Rest, ID: r.id})
	r.credit = 0
}

// idleSteps is after how many steps without a reader a request's memory goes to
// others first.
const idleSteps = 64

// idle parks the request if nobody has waited for it for long.
func (p *planner) idle(r *Request) {
	if r.credit > 0 || r.idle > idleSteps {
		return
	}
	if r.idle++; r.idle > idleSteps {
		p.tell(scheduler.Event{Kind: scheduler.Park, ID: r.id})
	}
}

func (p *planner) wake(r *Request) {
	if r.idle > idleSteps {
		p.tell(scheduler.Event{Kind: scheduler.Resume, ID: r.id})
	}
	r.idle = 0
}

func (p *planner) remove(r *Request) { p.tell(scheduler.Event{Kind: scheduler.Cancel, ID: r.id}) }

// committed tells that tokens became final, and lets the request rest.
func (p *planner) committed(r *Request, n, accepted int) {
	p.tell(scheduler.Event{Kind: scheduler.Committed, ID: r.id, N: n, Accepted: accepted})
	p.rest(r)
}

// chosen tells that a reader chose a token, which it may do before it asks for
// the next one.
func (p *planner) chosen(r *Request) {
	wanted := r.credit > 0
	p.want(r)
	p.committed(r, 1, 0)
	if wanted {
		p.want(r)
	}
}

// retract takes the last n tokens back. Those of before the request was entered
// the scheduler does not know: it is entered again.
func (p *planner) retract(r *Request, n int) error {
	wanted := r.credit > 0
	err := p.Apply(scheduler.Event{Kind: scheduler.Retract, ID: r.id, N: n})
	if errors.Is(err, scheduler.ErrUnknown) {
		return nil // its cache is being taken from it
	}
	if err != nil {
		p.remove(r)
		if err := p.admit(r); err != nil {
			return err
		}
	}
	p.rest(r)
	if wanted {
		p.want(r)
	}
	return nil
}

// drafts tells what the request can verify next.
func (p *planner) drafts(r *Request, e scheduler.Event) {
	e.Kind, e.ID = scheduler.Drafts, r.id
	p.tell(e)
}

// millionths brings odds, which fall, to the scheduler's form.
func millionths(odds []float64) []uint32 {
	all := make([]uint32, min(len(odds), scheduler.MaxWidth-1))
	most := uint32(1_000_000)
	for i := range all {
		most = min(most, uint32(math.Round(max(0, min(odds[i], 1))*1e6)))
		all[i] = most
	}
	return all
}

// sizeOf measures a cache to which one token was appended, evaluated or not.
func sizeOf(c *kvcache.Cache) cacheSize {
	var size cacheSize
	for _, l := range c.Layers {
		bytes := int64(0)
		rows := 0
		for _, a := range l.Arrays() {
			bytes += int64(a.NBytes())
			if a.NDim() == 4 {
				rows = a.Dim(2)
			}
		}
		switch l := l.(type) {
		case *kvcache.Recurrent:
			size.state += bytes
		case *kvcache.Window:
			each := bytes / int64(max(1, rows))
			size.windowToken += each
			size.window, size.largest = max(size.window, l.Size()), max(size.largest, each)
		default:
			each := bytes / int64(max(1, rows))
			size.token, size.largest = size.token+each, max(size.largest, each)
		}
	}
	return size
}

// measure learns what the model's caches take, from one to which a token is
// appended that nobody computes, and what is left for all caches.
func (e *Engine) measure(m *Model) error {
	cache := m.newCache(0)
	defer cache.Free()
	err := e.build(func(s *mlxc.Scope) { m.model.Forward(s, models.One(s.FromInt32s([]int32{0}, 1, 1), cache, 0)) })
	if err != nil {
		return err
	}
	e.planner.measure(m, sizeOf(cache))
	e.allot()
	return nil
}

// SetKVBytes changes Config.KVBytes. It does not wait for the engine.
func (e *Engine) SetKVBytes(bytes int) error {
	return e.post(func() {
		e.kvBytes = bytes
		e.allot()
	})
}

// leastShare is the part of the memory that caches may take in any case: where
// the weights fill the rest, generating is slow, but no error.
const leastShare = 8

// allot sets what caches may take in all: what was asked for, or what the device
// has room for beside the weights, three quarters of the memory where it does
// not say; any number of bytes where even that is not known.
func (e *Engine) allot() {
	bytes := int64(e.kvBytes)
	if bytes == 0 {
		if bytes = int64(e.device.WorkingSet); bytes == 0 {
			bytes = int64(e.device.Memory) / 4 * 3
		}
		for m := range e.planner.sizes {
			bytes -= m.bytes.Load()
		}
		bytes = max(bytes, int64(e.device.Memory)/leastShare)
	}
	e.planner.budget(bytes)
}

// tokens counts what the request's cache is to hold: what was there before, the
// prompt, and what was generated.
func (r *Request) tokens() int { return r.base + len(r.text) }

// rebuildable tells whether the cache could be made again from tokens: it was
// empty before the request.
func (r *Request) rebuildable() bool { return r.before == 0 }
