package engine

import "time"

// Ask lets the engine work on the next token, which Next then takes. It does
// not wait. A cache that is taken back meanwhile may hold that token too; and
// while Choose is due, Ask must not be called.
func (r *Request) Ask() error {
	if !r.out.Ask() {
		return nil
	}
	return r.engine.postFor(r, r.want)
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
		r.engine.planner.Want(r.id, true)
	}
}

func (r *Request) rested() {
	if r.goal > 0 && int(r.filled.Load()) >= r.goal {
		r.goal = 0
		r.engine.planner.Want(r.id, false)
	}
	r.out.Signal() // to FillPrompt
}
