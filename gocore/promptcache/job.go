package promptcache

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	"axlm/gocore/errs"
)

// Job is packing or unpacking that goes on beside its caller.
type Job struct {
	cancel context.CancelFunc
	ended  chan struct{}
	done   atomic.Int64
	total  atomic.Int64
	sizes  Sizes
	err    error
}

// StartPack starts Pack.
func StartPack(from, to string) *Job {
	return start(func(ctx context.Context, j *Job) (Sizes, error) {
		f, size, err := open(from)
		if err != nil {
			return Sizes{}, err
		}
		_ = f.Close() // it was only looked at
		j.total.Store(size)
		return Pack(ctx, from, to, j.advance)
	})
}

// StartUnpack starts Unpack.
func StartUnpack(from, to string, limit int64) *Job {
	return start(func(ctx context.Context, j *Job) (Sizes, error) {
		sizes, err := Measure(from)
		if err != nil {
			return Sizes{}, err
		}
		j.total.Store(sizes.Content)
		return Unpack(ctx, from, to, limit, j.advance)
	})
}

func start(f func(context.Context, *Job) (Sizes, error)) *Job {
	ctx, cancel := context.WithCancel(context.Background())
	j := &Job{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(j.ended)
		defer cancel()
		j.err = guarded(func() (err error) {
			j.sizes, err = f(ctx, j)
			return err
		})
		if errors.Is(j.err, context.Canceled) {
			j.err = errs.Internal("given up: %w", j.err)
		}
	}()
	return j
}

// Wait waits for the end, at most d. The sizes and the error come with it.
func (j *Job) Wait(d time.Duration) (sizes Sizes, ended bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-j.ended:
	case <-timer.C:
		select {
		case <-j.ended: // both came
		default:
			return Sizes{}, false, nil
		}
	}
	return j.sizes, true, j.err
}

// Progress tells how many bytes of the content are done, and of how many; the
// latter is 0 until it is known.
func (j *Job) Progress() (done, total int64) { return j.done.Load(), j.total.Load() }

// Cancel gives the job up and waits until it has removed what it had written.
func (j *Job) Cancel() {
	j.cancel()
	<-j.ended
}

func (j *Job) advance(n int64) { j.done.Add(n) }

// guarded makes a panic an error: one in a goroutine would end the process.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errs.Internal("internal error: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
