package pybridge

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"axlm/gocore/errs"
	"axlm/mlxc"
)

// job is a call that waits for the engine's thread, made on a goroutine of its
// own. Python's thread looks in on it, so that it hears Ctrl-C in between.
type job struct {
	done   chan struct{}
	cancel context.CancelFunc
	outcome
	err error
}

// outcome is what a job leaves to whoever takes it.
type outcome struct {
	text   string
	arrays []mlxc.Array // for as many addresses; none where there is nothing to assign
	drop   func()       // undoes what nobody takes
}

func (o *outcome) free() {
	for _, a := range o.arrays {
		a.Free()
	}
	if o.drop != nil {
		o.drop()
	}
}

// begin runs f on a goroutine and returns the job's handle. A context that ends
// tells f that it was given up.
func begin(f func(ctx context.Context) (outcome, error)) int {
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(j.done)
		defer func() {
			if p := recover(); p != nil {
				j.err = errs.Internal("internal error: %v\n%s", p, debug.Stack())
			}
		}()
		j.outcome, j.err = f(ctx)
	}()
	return put(bridge.jobs, j)
}

// JobWait waits up to waitMs for a job and tells with 1 that it is done.
func JobWait(handle int, waitMs int) (int, error) {
	return call(func() (int, error) {
		j, err := get(bridge.jobs, "job", handle)
		if err != nil {
			return 0, err
		}
		limit := time.NewTimer(milliseconds(waitMs))
		defer limit.Stop()
		select {
		case <-j.done:
			return 1, nil
		case <-limit.C:
			return 0, nil
		}
	})
}

// JobTake ends a job that is done: it returns its result, and assigns its
// arrays to the mx.arrays whose C++ objects lie at addresses, little-endian
// uint64. An error is what the job failed with.
func JobTake(handle int, addresses []byte) (string, error) {
	return call(func() (string, error) {
		j, err := get(bridge.jobs, "job", handle)
		if err != nil {
			return "", err
		}
		select {
		case <-j.done:
		default:
			return "", errs.Value("the job is not done")
		}
		if _, mine := pop(bridge.jobs, handle); !mine {
			return "", errs.Value("the job is closed")
		}
		defer j.cancel()
		if j.err != nil {
			return "", j.err
		}
		if err := j.assign(addresses); err != nil {
			j.free()
			return "", err
		}
		for _, a := range j.arrays {
			a.Free()
		}
		return j.text, nil
	})
}

func (j *job) assign(addresses []byte) error {
	if len(addresses) != 8*len(j.arrays) {
		return errs.Value("%d arrays, but %d bytes of addresses", len(j.arrays), len(addresses))
	}
	places := int64s(addresses)
	for i, a := range j.arrays {
		if !a.Valid() {
			continue
		}
		if err := mlxc.SetArrayAt(uintptr(places[i]), a); err != nil {
			return fmt.Errorf("handing over an array: %w", err)
		}
	}
	return nil
}

// JobDrop gives a job up: it ends as soon as it can, and leaves nothing behind.
// A handle that is closed already is left alone.
func JobDrop(handle int) (int, error) {
	return call(func() (int, error) {
		if j, ok := pop(bridge.jobs, handle); ok {
			j.cancel()
			go func() {
				<-j.done
				if j.err == nil {
					j.free()
				}
			}()
		}
		return 0, nil
	})
}
