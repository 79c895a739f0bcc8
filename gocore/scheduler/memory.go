package scheduler

import (
	"math"
	"slices"
)

const (
	// BlockTokens is how many tokens a block has, the unit of what is kept and told.
	BlockTokens = 16
	// GrowTokens is the unit in which caches grow.
	GrowTokens = 256
)

// class is a loaded model: its requests share passes.
type class struct {
	id          uint32
	tokenBytes  int64
	windowBytes int64
	window      int
	stateBytes  int64
	growBytes   int64
	width       int
	solo        bool
	users       int
	costs       *costs
}

// capacity is what a cache for so many tokens is grown to.
func capacity(tokens int) int { return (tokens + GrowTokens - 1) / GrowTokens * GrowTokens }

// bytes is what a cache for so many tokens takes.
func (c *class) bytes(tokens int) int64 {
	n := capacity(tokens)
	return int64(n)*c.tokenBytes + int64(min(n, c.window))*c.windowBytes + c.stateBytes
}

// memory is the ledger of what caches take.
type memory struct {
	budget  int64
	kept    int64 // kept prefixes, as last told, less what was reclaimed since
	charged int64 // the caches of running requests
	moment  int64 // what growth that was granted takes until it is carried out
	peak    int64 // the most of both at any time
}

// over is how much the budget lacks for n bytes more.
func (m *memory) over(n int64) int64 { return m.charged + m.moment + m.kept + n - m.budget }

func (s *Scheduler) reclaim(n int64) {
	s.memory.kept -= n
	s.plan.Reclaim += n
	s.stats.Reclaimed += uint64(n)
}

// take lets q's cache hold so many tokens, if that fits what is free.
func (s *Scheduler) take(q *sequence, tokens int) bool {
	more, moment := q.price(tokens)
	m := &s.memory
	if m.over(more+moment-q.moment) > 0 {
		return false
	}
	if q.runs() {
		s.stats.Grown++
	}
	m.charged += more
	m.moment += moment - q.moment
	m.peak = max(m.peak, m.charged+m.moment)
	q.capacity, q.moment = capacity(tokens), moment
	return true
}

// price is what a cache for so many tokens takes more than the one q has, and
// what it takes for a moment, until old buffers are copied.
func (q *sequence) price(tokens int) (more, moment int64) {
	more = q.class.bytes(tokens)
	if q.runs() {
		more -= q.class.bytes(q.capacity)
		moment = q.class.growBytes * int64(capacity(tokens))
	}
	return more, moment
}

// holds is what comes free when a running request goes.
func (q *sequence) holds() int64 { return q.class.bytes(q.capacity) + q.moment }

// release gives a request's memory back.
func (s *Scheduler) release(q *sequence) {
	if q.runs() {
		s.memory.charged -= q.class.bytes(q.capacity)
		s.memory.moment -= q.moment
		q.capacity, q.moment = 0, 0
	}
}

// obtain is take that finds memory elsewhere: first in kept prefixes, then with
// parked requests and, where younger is set, with those younger than q. When all
// of that would not suffice, nothing is taken from anybody.
func (s *Scheduler) obtain(q *sequence, tokens int, younger bool) bool {
	if s.take(q, tokens) {
		return true
	}
	more, moment := q.price(tokens)
	over := s.memory.over(more + moment - q.moment)
	available := s.memory.kept
	for _, v := range s.running {
		if v.yields(q, younger) {
			available += v.holds()
		}
	}
	if over > available {
		return false
	}
	s.reclaim(min(over, s.memory.kept))
	for !s.take(q, tokens) {
		s.preempt(s.victim(q, younger))
	}
	return true
}

// yields tells whether a running request may be preempted for q.
func (v *sequence) yields(q *sequence, younger bool) bool {
	return v != q && (v.parked || younger && v.order > q.order)
}

// victim is whom to preempt for q: the youngest of the parked requests, else the
// youngest that yields; nil if there is none.
func (s *Scheduler) victim(q *sequence, younger bool) *sequence {
	var found *sequence
	for i := len(s.running) - 1; i >= 0; i-- {
		v := s.running[i]
		switch {
		case v.parked && v != q:
			return v
		case found == nil && v.yields(q, younger):
			found = v
		}
	}
	return found
}

// preempt takes a request's cache; it joins again in its turn.
func (s *Scheduler) preempt(q *sequence) {
	s.plan.Preempted = append(s.plan.Preempted, q.id)
	s.release(q)
	s.running = without(s.running, q)
	s.queue = inserted(s.queue, q)
	s.become(q, Preempted)
	s.stats.Preemptions++
	s.stats.Recomputed += uint64(q.cached)
	q.cached, q.reused, q.again = 0, 0, true
}

// block lets a request wait for memory.
func (s *Scheduler) block(q *sequence) {
	if q.state != Blocked {
		s.become(q, Blocked)
		s.stats.Blocked++
	}
}

// fail ends a request that cannot fit alone.
func (s *Scheduler) fail(q *sequence) {
	s.plan.Failed = append(s.plan.Failed, Failure{q.id, q.class.bytes(q.total), s.memory.budget, q.total})
	s.stats.Failed++
	s.end(q, Failed)
}

func (s *Scheduler) fitsAlone(q *sequence, tokens int) bool {
	return q.class.bytes(tokens) <= s.memory.budget
}

// shrinkToBudget makes what is charged fit a budget that became smaller.
func (s *Scheduler) shrinkToBudget() {
	if over := s.memory.over(0); over > 0 {
		s.reclaim(min(over, s.memory.kept))
	}
	for s.memory.over(0) > 0 {
		v := s.victim(nil, false)
		if v == nil {
			v = s.running[len(s.running)-1]
		}
		s.preempt(v)
	}
}

// grow makes room for the next token of every request that goes on, the oldest
// first, and then for drafts.
func (s *Scheduler) grow() {
	for i := 0; i < len(s.running); {
		q := s.running[i]
		if q.wanted() {
			s.grown(q)
		} else {
			s.settle(q)
		}
		i = after(s.running, q.order) // others may have left
	}
	for _, q := range s.running {
		if n := q.total + q.reach(); q.decodes() && n > q.capacity {
			s.take(q, n) // without it the drafts are cut to the room
		}
	}
}

// grown makes room for a request's next token, or lets it wait.
func (s *Scheduler) grown(q *sequence) {
	switch {
	case q.total <= q.capacity || s.obtain(q, q.total, true):
		s.settle(q)
	case !s.fitsAlone(q, q.total):
		s.fail(q)
	case s.oldest() == q:
		// Only old and new buffers together do not fit: recomputed it does.
		s.preempt(q)
		s.admitted(q, true)
	default:
		s.block(q)
	}
}

// oldest is the oldest running request that is not parked.
func (s *Scheduler) oldest() *sequence {
	if i := slices.IndexFunc(s.running, func(q *sequence) bool { return !q.parked }); i >= 0 {
		return s.running[i]
	}
	return nil
}

// after is the index of the first request younger than order.
func after(list []*sequence, order uint64) int {
	i, ok := find(list, order)
	if ok {
		i++
	}
	return i
}

// join lets the queue in, in order.
func (s *Scheduler) join() {
	waits := uint64(math.MaxUint64) // the oldest running request that waits for memory
	if i := slices.IndexFunc(s.running, func(q *sequence) bool { return q.state == Blocked }); i >= 0 {
		waits = s.running[i].order
	}
	for i := 0; i < len(s.queue) && (len(s.running) < s.cfg.Running || s.victim(nil, false) != nil); {
		q := s.queue[i]
		if !q.wanted() {
			i++
			continue
		}
		if !s.fitsAlone(q, q.total) {
			s.fail(q)
			continue
		}
		// What comes free is first for those that wait in the middle of their text.
		if waits < q.order || !s.admitted(q, false) {
			s.block(q)
			return
		}
	}
}

// admitted gives a request a cache; false if it has to wait. Room for some tokens
// to come belongs to it, so that it does not join only to be preempted.
func (s *Scheduler) admitted(q *sequence, younger bool) bool {
	tokens := q.total + s.headroom(q)
	if !s.fitsAlone(q, tokens) {
		tokens = q.total
	}
	if !s.obtain(q, tokens, younger) {
		return false
	}
	if len(s.running) >= s.cfg.Running {
		s.preempt(s.victim(q, younger))
	}
	s.queue = without(s.queue, q)
	s.running = inserted(s.running, q)
	q.cached, q.fresh, q.served = q.reused, true, s.step
	s.plan.Joins = append(s.plan.Joins, Join{q.id, q.capacity, q.total, q.reused, q.again})
	s.stats.Joins++
	s.stats.Reused += uint64(q.reused)
	s.settle(q)
	return true
}

// headroom is how many tokens to come a joining request gets room for.
func (s *Scheduler) headroom(q *sequence) int {
	if q.remaining == Unlimited {
		return s.cfg.Headroom
	}
	return min(s.cfg.Headroom, max(0, q.remaining-1)) // the last token is never cached
}
