package scheduler

import (
	"fmt"
	"slices"
)

// Apply takes an event in. On an error nothing has changed.
func (s *Scheduler) Apply(e Event) error {
	if err := s.apply(e); err != nil {
		return fmt.Errorf("scheduler: event %d for request %d: %w", e.Kind, e.ID, err)
	}
	return nil
}

func (s *Scheduler) apply(e Event) error {
	switch e.Kind {
	case Define:
		return s.define(e)
	case Admit:
		return s.admit(e)
	case Cost:
		return s.cost(e)
	case Memory:
		if err := within("budget", e.Bytes, 0, MaxBudget); err != nil {
			return err
		}
		s.memory.budget = e.Bytes
		return nil
	case Kept:
		if err := within("kept bytes", e.Bytes, 0, MaxBudget); err != nil {
			return err
		}
		s.memory.kept = e.Bytes
		return nil
	}
	q := s.byID[e.ID]
	if q == nil {
		return ErrUnknown
	}
	return s.of(q, e)
}

// of applies an event of one request.
func (s *Scheduler) of(q *sequence, e Event) error {
	switch e.Kind {
	case Reused:
		return s.reuse(q, e.N)
	case Credit:
		if err := within("credit", e.N, 1, maxCredit-q.credit); err != nil {
			return err
		}
		if q.credit == 0 {
			q.served = s.step
		}
		q.credit += e.N
	case Rest:
		q.credit = 0
		q.clear()
	case Drafts:
		return propose(q, e)
	case Prefilled:
		return s.prefilled(q, e.N)
	case Committed:
		return s.commit(q, e)
	case Retract:
		return s.retract(q, e.N)
	case Park:
		q.parked = true
	case Resume:
		if q.parked {
			q.parked, q.served = false, s.step
		}
	case Cancel:
		s.end(q, Cancelled)
	case Fail:
		s.end(q, Failed)
	case Finish:
		if !Allowed(q.state, Finished) {
			return fmt.Errorf("%w: finished while %v", ErrTransition, q.state)
		}
		s.end(q, Finished)
	default:
		return fmt.Errorf("%w: kind %d", ErrValue, e.Kind)
	}
	return nil
}

func (s *Scheduler) define(e Event) error {
	err := firstError(within("bytes a token", e.Bytes, 0, MaxTokenBytes), within("bytes a token of a window", e.WindowBytes, 0, MaxTokenBytes),
		within("window", e.Window, 0, MaxTokens), within("bytes of a state", e.StateBytes, 0, MaxStateBytes),
		within("bytes a token of growth", e.GrowBytes, 0, MaxTokenBytes), within("width", e.Width, 0, MaxWidth))
	if err != nil {
		return err
	}
	c := s.class(e.Class)
	if c == nil {
		c = &class{id: e.Class}
		i, _ := s.classAt(e.Class)
		s.classes = slices.Insert(s.classes, i, c)
	} else if c.users > 0 {
		return fmt.Errorf("%w: class %d has requests", ErrTransition, e.Class)
	}
	c.tokenBytes, c.windowBytes, c.window, c.stateBytes, c.growBytes = e.Bytes, e.WindowBytes, e.Window, e.StateBytes, e.GrowBytes
	c.solo, c.width = e.Solo, max(1, e.Width)
	return nil
}

func (s *Scheduler) admit(e Event) error {
	c := s.class(e.Class)
	switch {
	case s.byID[e.ID] != nil:
		return fmt.Errorf("%w: admitted already", ErrTransition)
	case c == nil:
		return fmt.Errorf("%w: no class %d", ErrValue, e.Class)
	}
	err := firstError(within("prompt length", e.N, 1, MaxTokens), within("Max", e.Max, Unlimited, maxCredit),
		within("reused", e.Reused, 0, e.N-1), within("Step", e.Step, 0, MaxTokens))
	if err != nil {
		return err
	}
	step := e.Step
	if step == 0 {
		step = s.cfg.PrefillStep
	}
	s.admits++
	q := &sequence{id: e.ID, order: s.admits, class: c, total: e.N, reused: e.Reused, remaining: e.Max, step: step}
	s.byID[e.ID] = q
	s.queue = append(s.queue, q)
	c.users++
	return nil
}

func (s *Scheduler) reuse(q *sequence, n int) error {
	most := q.total - 1
	if q.runs() {
		most = min(most, q.capacity)
	}
	if err := within("reused", n, 0, most); err != nil {
		return err
	}
	if !q.runs() {
		q.reused = n
		return nil
	}
	if !q.fresh {
		return fmt.Errorf("%w: its cache has other tokens", ErrTransition)
	}
	q.cached = n
	s.stats.Reused += uint64(n)
	s.stats.Reused -= uint64(q.reused)
	q.reused = n
	s.settle(q)
	return nil
}

func (s *Scheduler) prefilled(q *sequence, n int) error {
	if !q.runs() || q.left() == 0 {
		return fmt.Errorf("%w: prefilled while %v", ErrTransition, q.state)
	}
	if err := within("prefilled", n, 1, min(q.left(), q.capacity-q.cached)); err != nil {
		return err
	}
	s.cache(q, n)
	s.stats.Prefilled += uint64(n)
	s.settle(q)
	return nil
}

// cache notes that n tokens entered a request's cache, which has grown by then.
func (s *Scheduler) cache(q *sequence, n int) {
	q.cached, q.fresh = q.cached+n, false
	s.memory.moment -= q.moment
	q.moment = 0
}

func propose(q *sequence, e Event) error {
	if err := firstError(within("drafts", len(e.Odds), 0, MaxWidth-1), within("drafts alone", e.N, 0, len(e.Odds)),
		within("width", e.Width, 0, MaxWidth)); err != nil {
		return err
	}
	for i, o := range e.Odds {
		if o > million || i > 0 && o > e.Odds[i-1] {
			return fmt.Errorf("%w: odds must fall from %d", ErrValue, million)
		}
	}
	q.odds = append(q.odds[:0], e.Odds...)
	q.goal, q.width, q.force = e.N, e.Width, e.Force
	return nil
}

// commit makes tokens final. A pass that was queued ahead may be read after its
// request was preempted: then they count, but are not cached.
func (s *Scheduler) commit(q *sequence, e Event) error {
	cached := q.runs() && q.left() == 0
	if !cached && !q.again {
		return fmt.Errorf("%w: committed while %v", ErrTransition, q.state)
	}
	most := min(q.credit, MaxTokens-q.total)
	if q.remaining != Unlimited {
		most = min(most, q.remaining)
	}
	if cached {
		most = min(most, q.capacity-q.cached)
	}
	if err := firstError(within("committed", e.N, 1, most), within("accepted", e.Accepted, 0, MaxWidth)); err != nil {
		return err
	}
	q.total += e.N
	q.committed += e.N
	q.credit -= e.N
	if q.remaining != Unlimited {
		q.remaining -= e.N
	}
	if cached {
		s.cache(q, e.N)
	}
	q.clear()
	s.stats.Committed += uint64(e.N)
	s.stats.Accepted += uint64(e.Accepted)
	return nil
}

func (q *sequence) clear() { q.odds, q.goal, q.width, q.force = q.odds[:0], 0, 0, false }

func (s *Scheduler) retract(q *sequence, n int) error {
	if err := within("retracted", n, 1, min(q.committed, maxCredit-q.credit)); err != nil {
		return err
	}
	q.total -= n
	q.committed -= n
	q.credit += n
	if q.remaining != Unlimited {
		q.remaining += n
	}
	q.reused = min(q.reused, q.total-1)
	q.cached = max(0, min(q.cached, q.total-1))
	q.clear()
	if q.runs() {
		s.settle(q)
	}
	return nil
}
