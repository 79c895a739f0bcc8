package pybridge

import (
	"fmt"
	"time"

	"axlm/gocore/errs"
	"axlm/mlxc"
)

// forward is a model's run over whole sequences, under way or done.
type forward struct {
	done   chan struct{}
	logits mlxc.Array // [batch, L, vocab]
	err    error
}

// ForwardStart begins to run ids, batch rows of equal length, and returns the
// run's handle. options: {"cache": a prompt cache to continue, "embeddings": an
// array in place of the ids' own}.
func ForwardStart(model int, ids []byte, batch int, options string) (int, error) {
	return call(func() (int, error) {
		m, t, err := modelAndTokens(model, ids)
		if err != nil {
			return 0, err
		}
		var o struct {
			Cache      int `json:"cache"`
			Embeddings int `json:"embeddings"`
		}
		if err := decode(options, &o); err != nil {
			return 0, err
		}
		embeddings, err := arrayOf(o.Embeddings)
		if err != nil {
			return 0, err
		}
		cache, err := cacheOf(o.Cache)
		if err != nil {
			embeddings.Free()
			return 0, err
		}
		f := &forward{done: make(chan struct{})}
		go func() {
			defer close(f.done)
			defer embeddings.Free()
			// The engine turns its own panics into errors.
			f.logits, f.err = m.Logits(t, batch, embeddings, cache)
		}()
		return put(bridge.forwards, f), nil
	})
}

// ForwardWait waits up to waitMs and tells with 1 that the run is done.
func ForwardWait(run int, waitMs int) (int, error) {
	return call(func() (int, error) {
		f, err := get(bridge.forwards, "run", run)
		if err != nil {
			return 0, err
		}
		select {
		case <-f.done:
			return 1, nil
		case <-time.After(milliseconds(waitMs)):
			return 0, nil
		}
	})
}

// ForwardTake assigns the logits [batch, L, vocab] of a run that is done to the
// mx.array whose C++ object lies at address, and gives up the handle.
func ForwardTake(run int, address int) (int, error) {
	return call(func() (int, error) {
		f, ok := pop(bridge.forwards, run)
		if !ok {
			return 0, errs.Value("the run is closed")
		}
		<-f.done
		if f.err != nil {
			return 0, f.err
		}
		defer f.logits.Free()
		if err := mlxc.SetArrayAt(uintptr(address), f.logits); err != nil {
			return 0, fmt.Errorf("handing over logits: %w", err)
		}
		return 0, nil
	})
}

// ForwardDrop gives a run up; it ends in its own time. A handle that is closed
// already is left alone.
func ForwardDrop(run int) (int, error) {
	return call(func() (int, error) {
		if f, ok := pop(bridge.forwards, run); ok {
			go func() {
				<-f.done
				f.logits.Free()
			}()
		}
		return 0, nil
	})
}
