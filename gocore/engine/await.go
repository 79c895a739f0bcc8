package engine

import "time"

// Await asks for the next token without taking it, so that the engine works on
// the request, and waits up to wait until the cache holds count tokens of the
// prompt or the token is there. It tells how many of them the cache holds, and
// fails with what Next would fail with. While Choose is due it must not be
// called.
func (r *Request) Await(count int, wait time.Duration) (int, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		over, err := r.ask()
		if done, _ := r.Progress(); err != nil || over || done >= count {
			return done, err
		}
		select {
		case <-r.wake:
		case <-r.engine.finished:
			return 0, ErrClosed
		case <-deadline.C:
			done, _ := r.Progress()
			return done, nil
		}
	}
}

// ask makes the engine work on the next token; over says that there is nothing
// left to wait for.
func (r *Request) ask() (over bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.reseeding:
		return false, nil
	case len(r.out) > 0:
		return true, nil
	case r.err != nil:
		return true, r.err
	case r.ended:
		return true, nil
	case !r.wanted:
		r.wanted = true
		return false, r.engine.post(r.want)
	}
	return false, nil
}
