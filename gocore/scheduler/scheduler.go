package scheduler

import (
	"cmp"
	"fmt"
	"slices"
)

// Config is what does not change while a scheduler runs.
type Config struct {
	Running     int // the most requests that run at a time
	PrefillStep int // the most tokens of one chunk, where Admit does not say
	Headroom    int // tokens to come that a joining request's cache has room for, if it may have so many
}

// DefaultConfig suits a machine that serves some tens of requests.
func DefaultConfig() Config { return Config{Running: 64, PrefillStep: 2048, Headroom: 128} }

// sequence is a request as the scheduler sees it.
type sequence struct {
	id     uint64
	order  uint64 // of admission
	class  *class
	state  State
	parked bool

	total     int // prompt and committed tokens
	committed int
	cached    int
	fresh     bool // nothing entered the cache since it joined
	reused    int  // hoped for, before it joins
	remaining int  // Unlimited or tokens to come
	step      int
	credit    int
	served    uint64 // step of its last pass, or of when it could first have been in one
	chosen    uint64 // step of its last pass

	odds        []uint32
	goal, width int
	force       bool

	capacity int   // tokens that its cache may hold; 0 without a cache
	moment   int64 // bytes that growing to it takes until it is carried out
	again    bool  // it was preempted once
}

// runs tells whether the request has a cache.
func (q *sequence) runs() bool { return q.capacity > 0 }

// wanted tells whether the request has something to do that somebody waits for.
func (q *sequence) wanted() bool {
	if q.remaining == 0 {
		return !q.parked && q.committed == 0
	}
	return !q.parked && q.credit > 0
}

// left is how many tokens are to be prefilled.
func (q *sequence) left() int {
	if q.remaining == 0 && q.committed == 0 {
		return q.total - q.cached
	}
	return q.total - 1 - q.cached
}

func (q *sequence) decodes() bool { return q.state == Decoding && q.wanted() && q.remaining != 0 }

// room is how many drafts its cache has room for beside its last token.
func (q *sequence) room() int { return q.capacity - q.cached - 1 }

// reach is for how many tokens beside its last one its next pass may need room.
func (q *sequence) reach() int {
	n := q.drafts()
	if n > 0 {
		n = max(n, min(q.width, q.class.width)-1)
	}
	return n
}

// drafts is how many drafts it may have in one pass, memory aside.
func (q *sequence) drafts() int {
	n := min(len(q.odds), q.credit-1, q.class.width-1)
	if q.remaining != Unlimited {
		n = min(n, q.remaining) // the last token may be a draft, too
	}
	return max(0, n)
}

// Scheduler plans steps. It is not safe for concurrent use.
type Scheduler struct {
	cfg     Config
	step    uint64
	admits  uint64
	classes []*class // by id
	byID    map[uint64]*sequence
	queue   []*sequence // without a cache, by order
	running []*sequence // with a cache, by order
	memory  memory
	plan    Plan
	ready   []*sequence
	offers  []offer
	stats   Stats
	reached func(from, to State) // for tests
}

// New returns a scheduler without requests, classes or memory: Define and Memory
// come before Admit.
func New(cfg Config) (*Scheduler, error) {
	err := firstError(within("Running", cfg.Running, 1, maxRows), within("PrefillStep", cfg.PrefillStep, 1, MaxTokens),
		within("Headroom", cfg.Headroom, 0, MaxTokens))
	if err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	return &Scheduler{cfg: cfg, byID: map[uint64]*sequence{}}, nil
}

// become changes a state. The list of transitions is checked by those who call
// it, where an event from outside asks; a plan never asks for another.
func (s *Scheduler) become(q *sequence, to State) {
	if q.state == to {
		return
	}
	if !Allowed(q.state, to) {
		panic(fmt.Sprintf("scheduler: request %d from %v to %v", q.id, q.state, to))
	}
	if s.reached != nil {
		s.reached(q.state, to)
	}
	q.state = to
}

// settle makes a running request's state what its tokens say.
func (s *Scheduler) settle(q *sequence) {
	if q.left() > 0 {
		s.become(q, Prefilling)
	} else if q.state != Decoding {
		s.become(q, Decoding)
		q.served = s.step
	}
}

// State tells where a request stands; ok is false after it ended.
func (s *Scheduler) State(id uint64) (state State, ok bool) {
	q := s.byID[id]
	if q == nil {
		return 0, false
	}
	return q.state, true
}

// Len counts the requests that have not ended.
func (s *Scheduler) Len() int { return len(s.byID) }

func find(list []*sequence, order uint64) (int, bool) {
	return slices.BinarySearchFunc(list, order, func(q *sequence, order uint64) int { return cmp.Compare(q.order, order) })
}

func inserted(list []*sequence, q *sequence) []*sequence {
	i, _ := find(list, q.order)
	return slices.Insert(list, i, q)
}

func without(list []*sequence, q *sequence) []*sequence {
	if i, ok := find(list, q.order); ok {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// end takes a request out, with its memory.
func (s *Scheduler) end(q *sequence, state State) {
	s.become(q, state)
	s.running, s.queue = without(s.running, q), without(s.queue, q)
	s.release(q)
	q.class.users--
	delete(s.byID, q.id)
	s.stats.Ended++
}

// Next plans one step. The plan is valid until the next call.
func (s *Scheduler) Next(b Budget) *Plan {
	s.step++
	s.plan.reset(s.step)
	s.shrinkToBudget()
	s.grow()
	s.join()
	rest := max(1, b.Tokens)
	share := rest
	if s.fills() {
		share = max(1, rest-max(1, rest/4)) // of a budget of 1, prompts and rows get 1 each
	}
	rest -= s.passes(share)
	s.chunks(max(rest, 1))
	return &s.plan
}

// fills tells whether some prompt can go on.
func (s *Scheduler) fills() bool {
	return slices.ContainsFunc(s.running, func(q *sequence) bool { return q.state == Prefilling && q.wanted() })
}

// chunks gives the oldest prompts the tokens that passes left.
func (s *Scheduler) chunks(rest int) {
	for _, q := range s.running {
		if rest == 0 {
			return
		}
		if q.state != Prefilling || !q.wanted() {
			continue
		}
		n := min(q.left(), q.step, rest)
		s.plan.Chunks = append(s.plan.Chunks, Chunk{ID: q.id, Capacity: q.capacity, From: q.cached, N: n})
		rest -= n
		s.stats.Chunks++
	}
}

// passes plans one pass for each class with rows that are ready, and returns how
// many tokens they take, at most share of them.
func (s *Scheduler) passes(share int) (taken int) {
	ready := s.pick(share)
	for _, c := range s.classes {
		if c.users > 0 && ready > 0 {
			s.gather(c)
		}
	}
	for i := range s.plan.Passes {
		p := &s.plan.Passes[i]
		s.draft(p, (share-ready)*len(p.Rows)/ready)
		taken += p.size()
		s.stats.Passes++
		s.stats.Rows += uint64(len(p.Rows))
	}
	return taken
}

// pick chooses at most so many rows, those that waited longest; among equals the
// oldest.
func (s *Scheduler) pick(most int) int {
	ready := s.ready[:0]
	for _, q := range s.running {
		if q.decodes() {
			ready = append(ready, q)
		}
	}
	s.ready = ready[:0]
	if len(ready) > most {
		slices.SortStableFunc(ready, func(a, b *sequence) int { return cmp.Compare(a.served, b.served) })
		ready = ready[:most]
	}
	for _, q := range ready {
		q.served, q.chosen = s.step, s.step
	}
	return len(ready)
}

// gather plans the pass of a class, or those of its rows where it is solo.
func (s *Scheduler) gather(c *class) {
	var p *Pass
	for _, q := range s.running {
		if q.class != c || q.chosen != s.step {
			continue
		}
		if p == nil || c.solo {
			p = s.plan.pass(c.id)
		}
		p.Rows = append(p.Rows, Row{ID: q.id, Capacity: q.capacity, Length: q.cached})
	}
}

// class returns a class by its id, nil if there is none.
func (s *Scheduler) class(id uint32) *class {
	if i, ok := s.classAt(id); ok {
		return s.classes[i]
	}
	return nil
}

func (s *Scheduler) classAt(id uint32) (int, bool) {
	return slices.BinarySearchFunc(s.classes, id, func(c *class, id uint32) int { return cmp.Compare(c.id, id) })
}
