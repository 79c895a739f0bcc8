package engine

import "time"

// Ask lets the engine work on the next tokens of some of its requests, which
// Next then takes: all from the same step on, so that they share passes. It does
// not wait. A cache that is taken back meanwhile may hold such a token too; and
// while Choose is due, Ask must not be called.
func Ask(requests ...*Request) error {
	var asked []*Request
	for _, r := range requests {
		if r.out.Ask() {
			asked = append(asked, r)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	return asked[0].engine.post(func() {
		for _, r := range asked {
			r.engine.doFor(r, r.want)
		}
	})
}

// Fill lets the engine process the prompts of some of its requests, each until
// the cache holds so many of its tokens, without waiting for it: they share
// forwards. FillPrompt tells how far it is.
func Fill(requests []*Request, counts []int) error {
	if len(requests) == 0 {
		return nil
	}
	return requests[0].engine.post(func() {
		for i, r := range requests {
			if done, _ := r.Progress(); done < counts[i] && !r.out.State().Wanted {
				r.engine.doFor(r, func() { r.fillUpTo(counts[i]) })
			}
		}
	})
}

// FillPrompt lets the engine process the prompt until the cache holds count of
// its tokens, at most all but the last, and waits for that up to wait. It tells
// how many the cache holds, and fails with what Next would fail with.
func (r *Request) FillPrompt(count int, wait time.Duration) (int, error) {
	if done, _ := r.Progress(); done < count && !r.out.State().Wanted {
		if err := r.engine.postFor(r, func() { r.fillUpTo(count) }); err != nil {
			return 0, err
		}
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		now := r.out.State()
		if done, _ := r.Progress(); now.Err != nil || now.Ended || now.Waiting > 0 || done >= count {
			return done, now.Err
		}
		select {
		case <-r.out.Wake():
		case <-r.engine.finished:
			return 0, ErrClosed
		case <-deadline.C:
			done, _ := r.Progress()
			return done, nil
		}
	}
}

// fillUpTo and rested run on the engine's thread: the request rests once the
// cache holds count tokens of its prompt.
func (r *Request) fillUpTo(count int) {
	if r.goal = min(count, r.total-1); int(r.filled.Load()) < r.goal {
		r.engine.planner.want(r)
	}
}

func (r *Request) rested() {
	if r.goal > 0 && int(r.filled.Load()) >= r.goal {
		r.goal = 0
		r.engine.planner.rest(r)
	}
	r.out.Signal() // to FillPrompt
}
