package scheduler

import (
	"fmt"
	"slices"
)

// Config is what does not change while a scheduler runs.
type Config struct {
	Slots       int // the most requests that run at a time
	PrefillStep int // the most tokens of one chunk, where Admit does not say
	MinKeys     int // the smallest capacity of a slot
	Headroom    int // tokens to come that a joining request's slot has room for, if it may have so many
}

// DefaultConfig suits a machine that serves some tens of requests.
func DefaultConfig() Config {
	return Config{Slots: 64, PrefillStep: 2048, MinKeys: 256, Headroom: 128}
}

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

	bank  *bank
	slot  int
	again bool
}

func (q *sequence) place() Slot {
	if q.bank == nil {
		return Slot{}
	}
	return q.bank.at(q.slot)
}

// wanted tells whether somebody waits for the request.
func (q *sequence) wanted() bool {
	return !q.parked && (q.credit > 0 || q.remaining == 0 && q.committed == 0)
}

// left is how many tokens are to be prefilled.
func (q *sequence) left() int {
	if q.remaining == 0 && q.committed == 0 {
		return q.total - q.cached
	}
	return q.total - 1 - q.cached
}

func (q *sequence) decodes() bool { return q.state == Decoding && q.wanted() && q.remaining != 0 }

// drafts is how many drafts it may have in one pass, memory aside.
func (q *sequence) drafts() int {
	n := min(len(q.odds), q.credit-1, q.class.width-1)
	if q.remaining != Unlimited {
		n = min(n, q.remaining-1)
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
	queue   []*sequence // without a slot, by order
	running []*sequence // with a slot, by order
	memory  memory
	left    []Place
	plan    Plan
	ready   []*sequence
	stats   Stats
	reached func(from, to State) // for tests
}

// New returns a scheduler without requests, classes or memory: Define and Memory
// come before Admit.
func New(cfg Config) (*Scheduler, error) {
	err := firstError(within("Slots", cfg.Slots, 1, 1<<10), within("PrefillStep", cfg.PrefillStep, 1, MaxTokens),
		within("MinKeys", cfg.MinKeys, 1, MaxTokens), within("Headroom", cfg.Headroom, 0, MaxTokens))
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
	return slices.BinarySearchFunc(list, order, func(q *sequence, order uint64) int {
		switch {
		case q.order < order:
			return -1
		case q.order > order:
			return 1
		}
		return 0
	})
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

// end takes a request out; the next plan tells of the slot that is free.
func (s *Scheduler) end(q *sequence, state State) {
	s.become(q, state)
	if state != Failed || q.bank != nil {
		s.left = append(s.left, Place{ID: q.id, Slot: q.place(), Had: q.bank != nil})
	}
	s.running, s.queue = without(s.running, q), without(s.queue, q)
	q.bank.release(q)
	q.class.users--
	delete(s.byID, q.id)
	s.stats.Ended++
}

// Next plans one step. The plan is valid until the next call.
func (s *Scheduler) Next(b Budget) *Plan {
	s.step++
	p := &s.plan
	p.reset(s.step)
	b.Tokens = max(1, b.Tokens)
	p.Left = append(p.Left, s.left...)
	s.left = s.left[:0]
	s.shrinkToBudget()
	s.grow()
	s.join()
	s.tidy()
	rest := b.Tokens
	share := rest
	if s.fills() {
		share = max(1, rest-max(1, rest/4)) // of a budget of 1, prompts and rows get 1 each
	}
	rest -= s.passes(share)
	s.chunks(max(rest, 1))
	return p
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
		s.plan.Chunks = append(s.plan.Chunks, Chunk{ID: q.id, Slot: q.place(), From: q.cached, N: n})
		rest -= n
		s.stats.Chunks++
	}
}

// passes plans one pass for each class with rows that are ready, and returns how
// many tokens they take, at most share of them.
func (s *Scheduler) passes(share int) int {
	ready := s.ready[:0]
	for _, q := range s.running {
		if q.decodes() {
			ready = append(ready, q)
		}
	}
	s.ready = ready[:0]
	if len(ready) > share {
		// Those that waited longest; among equals the oldest.
		slices.SortStableFunc(ready, func(a, b *sequence) int {
			switch {
			case a.served < b.served:
				return -1
			case a.served > b.served:
				return 1
			}
			return 0
		})
		ready = ready[:share]
	}
	for _, q := range ready {
		q.served, q.chosen = s.step, s.step
	}
	taken := 0
	for _, bank := range s.memory.banks { // by class and owner: a pass's banks lie together
		var pass *Pass
		if n := len(s.plan.Passes); n > 0 && !bank.class.solo && s.plan.Passes[n-1].Class == bank.class.id {
			pass = &s.plan.Passes[n-1]
		}
		from := 0
		if pass != nil {
			from = len(pass.Rows)
		}
		for i, q := range bank.slots {
			if q == nil || q.chosen != s.step {
				continue
			}
			if pass == nil {
				pass = s.plan.pass()
				pass.Class = bank.class.id
			}
			pass.Rows = append(pass.Rows, Row{ID: q.id, Slot: bank.at(i), Length: q.cached})
		}
		if pass != nil && len(pass.Rows) > from {
			slot := bank.at(0)
			pass.Groups = append(pass.Groups, Group{Slot: slot, Slots: len(bank.slots), From: from, To: len(pass.Rows)})
		}
	}
	for i := range s.plan.Passes {
		p := &s.plan.Passes[i]
		s.widen(p, share/len(ready))
		taken += p.Width * len(p.Rows)
		s.stats.Passes++
		s.stats.Rows += uint64(len(p.Rows))
	}
	return taken
}

// class returns a class by its id, nil if there is none.
func (s *Scheduler) class(id uint32) *class {
	i, ok := slices.BinarySearchFunc(s.classes, id, func(c *class, id uint32) int { return int(int64(c.id) - int64(id)) })
	if !ok {
		return nil
	}
	return s.classes[i]
}
