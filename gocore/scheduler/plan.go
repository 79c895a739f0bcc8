package scheduler

import (
	"encoding/binary"

	"axlm/gocore/errs"
)

// Budget bounds one step.
type Budget struct {
	Tokens int // of all passes and all chunks together; at least 1
}

// Join is a request that gets a cache.
type Join struct {
	ID       uint64
	Capacity int // tokens that it may hold
	Tokens   int // prompt and committed tokens, which the cache is to hold
	Reused   int // of them hoped to be kept
	Again    bool
}

// Chunk is a part of a prompt to put into the cache.
type Chunk struct {
	ID       uint64
	Capacity int // tokens that the cache may hold: it grows to this first
	From     int // tokens in the cache before it
	N        int
}

// Route is how a row goes through a pass.
type Route uint8

// The routes.
const (
	RouteDecode Route = iota // its last token alone
	RouteVerify              // its last token and drafts
)

// Row is one request's part in a pass: its last token and Drafts more.
type Row struct {
	ID       uint64
	Capacity int // tokens that the cache may hold: it grows to this first
	Length   int // tokens in the cache
	Drafts   int // how many of those proposed, the first ones
	Route    Route
}

// Pass is one forward for rows of one class, in order of admission, whose tokens
// lie one row after another.
type Pass struct {
	Class     uint32
	Tokens    int // of all rows
	Width     int // what the only row is padded to, at least Tokens; 0 with more rows
	Rows      []Row
	Lookahead bool // the same rows may be queued once more, plainly, before it is read
	Probe     bool // its number of tokens is tried to learn its cost
}

// size is the tokens of a pass, padding included.
func (p *Pass) size() int { return max(p.Tokens, p.Width) }

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
	Step      uint64
	Preempted []uint64 // give up their caches
	Failed    []Failure
	Reclaim   int64 // bytes of kept prefixes to evict
	Joins     []Join
	Chunks    []Chunk
	Passes    []Pass
}

// Empty tells whether there is nothing to do.
func (p *Plan) Empty() bool {
	return len(p.Preempted)+len(p.Failed)+len(p.Joins)+len(p.Chunks)+len(p.Passes) == 0 && p.Reclaim == 0
}

func (p *Plan) reset(step uint64) {
	*p = Plan{
		Step: step, Preempted: p.Preempted[:0], Failed: p.Failed[:0], Joins: p.Joins[:0], Chunks: p.Chunks[:0],
		Passes: p.Passes[:0],
	}
}

// pass adds a pass, with the buffer of one of an earlier plan.
func (p *Plan) pass(class uint32) *Pass {
	if n := len(p.Passes); n < cap(p.Passes) {
		p.Passes = p.Passes[:n+1]
		p.Passes[n] = Pass{Class: class, Rows: p.Passes[n].Rows[:0]}
	} else {
		p.Passes = append(p.Passes, Pass{Class: class})
	}
	return &p.Passes[len(p.Passes)-1]
}

// AppendBinary appends the plan's canonical form: equal plans, equal bytes.
func (p *Plan) AppendBinary(to []byte) []byte {
	w := writer{to}
	w.uint(p.Step, uint64(len(p.Preempted)))
	w.uint(p.Preempted...)
	w.uint(uint64(len(p.Failed)))
	for _, f := range p.Failed {
		w.uint(f.ID)
		w.int(f.Need, f.Budget, int64(f.Tokens))
	}
	w.int(p.Reclaim)
	w.uint(uint64(len(p.Joins)))
	for _, j := range p.Joins {
		w.uint(j.ID, bit(j.Again))
		w.int(int64(j.Capacity), int64(j.Tokens), int64(j.Reused))
	}
	w.uint(uint64(len(p.Chunks)))
	for _, c := range p.Chunks {
		w.uint(c.ID)
		w.int(int64(c.Capacity), int64(c.From), int64(c.N))
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

func (w *writer) pass(p *Pass) {
	w.uint(uint64(p.Class), bit(p.Lookahead), bit(p.Probe), uint64(len(p.Rows)))
	w.int(int64(p.Tokens), int64(p.Width))
	for _, r := range p.Rows {
		w.uint(r.ID, uint64(r.Route))
		w.int(int64(r.Capacity), int64(r.Length), int64(r.Drafts))
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
