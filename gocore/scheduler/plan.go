package scheduler

import (
	"encoding/binary"

	"axlm/gocore/errs"
)

// Budget bounds one step.
type Budget struct {
	Tokens int // rows of all passes and tokens of all chunks together; at least 1
}

// Slot is a place for a request's cache: an index in the bank of its class with
// that capacity. Owner is the request where the class is solo, else 0.
type Slot struct {
	Class uint32
	Owner uint64
	Keys  int // tokens that fit; the class's Pad lies behind them
	Index int
}

// Op is what a change does.
type Op uint8

// The operations on banks.
const (
	Resize  Op = iota + 1 // bank of At (Index means nothing): From slots become To; 0 is no bank
	Move                  // request ID: from slot At to slot Into, its cache with it
	Preempt               // request ID gives up slot At
)

// Change is one operation on banks.
type Change struct {
	Op       Op
	ID       uint64
	At, Into Slot
	From, To int
}

// Place is a request and where it is.
type Place struct {
	ID   uint64
	Slot Slot
	Had  bool // it has a slot; always, except for a request that ends before it joined
}

// Join is a request that takes a slot.
type Join struct {
	ID     uint64
	Slot   Slot
	Tokens int // prompt and committed tokens, which the cache is to hold
	Reused int // of them hoped to be kept
	Again  bool
}

// Chunk is a part of a prompt to put into the cache.
type Chunk struct {
	ID   uint64
	Slot Slot
	From int // tokens in the cache before it
	N    int
}

// Route is how a row goes through a pass.
type Route uint8

// The routes.
const (
	RouteDecode Route = iota // its last token alone; the rest of the width is padding
	RouteVerify              // its last token and drafts
)

// Row is one request's part in a pass.
type Row struct {
	ID     uint64
	Slot   Slot
	Length int // tokens in the cache
	Drafts int // how many of those proposed, the first ones
	Route  Route
}

// Group is the rows of a pass that lie in one bank: Rows[From:To].
type Group struct {
	Slot     Slot // the bank; Index means nothing
	Slots    int  // slots of the bank
	Keys     int  // the rows attend to at most so many, a rounded number ≤ capacity + Pad
	From, To int
}

// Pass is one forward for rows of one class, sorted by bank and slot.
type Pass struct {
	Class     uint32
	Width     int // tokens a row, drafts and padding included
	Rows      []Row
	Groups    []Group
	Lookahead bool // the same rows may be queued once more, plainly, before it is read
	Probe     bool // its width is tried to learn its cost
}

// Failure is a request that ends because it cannot fit alone.
type Failure struct {
	ID           uint64
	Need, Budget int64 // bytes
	Tokens       int
}

// Err is the failure as a MemoryError.
func (f Failure) Err() error {
	return errs.Memory("a cache for %d tokens takes %d bytes, more than the %d that caches may take in all", f.Tokens, f.Need, f.Budget)
}

// Plan is one step. Its slices are valid until the next call of Next.
type Plan struct {
	Step    uint64
	Left    []Place // ended since the last plan
	Failed  []Failure
	Reclaim int64 // bytes of kept prefixes to evict
	Changes []Change
	Joins   []Join
	Chunks  []Chunk
	Passes  []Pass
}

// Empty tells whether there is nothing to do.
func (p *Plan) Empty() bool {
	return len(p.Left)+len(p.Failed)+len(p.Changes)+len(p.Joins)+len(p.Chunks)+len(p.Passes) == 0 && p.Reclaim == 0
}

func (p *Plan) reset(step uint64) {
	*p = Plan{
		Step: step, Left: p.Left[:0], Failed: p.Failed[:0], Changes: p.Changes[:0], Joins: p.Joins[:0],
		Chunks: p.Chunks[:0], Passes: p.Passes[:0],
	}
}

// pass adds a pass, with the buffers of one of an earlier plan.
func (p *Plan) pass() *Pass {
	if n := len(p.Passes); n < cap(p.Passes) {
		p.Passes = p.Passes[:n+1]
		old := &p.Passes[n]
		*old = Pass{Rows: old.Rows[:0], Groups: old.Groups[:0]}
		return old
	}
	p.Passes = append(p.Passes, Pass{})
	return &p.Passes[len(p.Passes)-1]
}

// AppendBinary appends the plan's canonical form: equal plans, equal bytes.
func (p *Plan) AppendBinary(to []byte) []byte {
	w := writer{to}
	w.uint(p.Step, uint64(len(p.Left)))
	for _, l := range p.Left {
		w.uint(l.ID, bit(l.Had))
		w.slot(l.Slot)
	}
	w.uint(uint64(len(p.Failed)))
	for _, f := range p.Failed {
		w.uint(f.ID)
		w.int(f.Need, f.Budget, int64(f.Tokens))
	}
	w.int(p.Reclaim)
	w.uint(uint64(len(p.Changes)))
	for _, c := range p.Changes {
		w.uint(uint64(c.Op), c.ID)
		w.slot(c.At)
		w.slot(c.Into)
		w.int(int64(c.From), int64(c.To))
	}
	w.uint(uint64(len(p.Joins)))
	for _, j := range p.Joins {
		w.uint(j.ID, bit(j.Again))
		w.slot(j.Slot)
		w.int(int64(j.Tokens), int64(j.Reused))
	}
	w.uint(uint64(len(p.Chunks)))
	for _, c := range p.Chunks {
		w.uint(c.ID)
		w.slot(c.Slot)
		w.int(int64(c.From), int64(c.N))
	}
	w.uint(uint64(len(p.Passes)))
	for i := range p.Passes {
		w.pass(&p.Passes[i])
	}
	return w.to
}

// writer appends numbers.
type writer struct{ to []byte }

func (w *writer) uint(all ...uint64) {
	for _, v := range all {
		w.to = binary.AppendUvarint(w.to, v)
	}
}

func (w *writer) int(all ...int64) {
	for _, v := range all {
		w.to = binary.AppendVarint(w.to, v)
	}
}

func (w *writer) slot(s Slot) {
	w.uint(uint64(s.Class), s.Owner)
	w.int(int64(s.Keys), int64(s.Index))
}

func (w *writer) pass(p *Pass) {
	w.uint(uint64(p.Class), bit(p.Lookahead), bit(p.Probe), uint64(len(p.Rows)), uint64(len(p.Groups)))
	w.int(int64(p.Width))
	for _, r := range p.Rows {
		w.uint(r.ID, uint64(r.Route))
		w.slot(r.Slot)
		w.int(int64(r.Length), int64(r.Drafts))
	}
	for _, g := range p.Groups {
		w.slot(g.Slot)
		w.int(int64(g.Slots), int64(g.Keys), int64(g.From), int64(g.To))
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
