// Package engine runs models. One goroutine, locked to its OS thread, makes
// every MLX call: streams belong to threads. Requests reach it by channel, and
// it runs the plans that the scheduler makes.
package engine

import (
	"fmt"
	"log"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"axlm/gocore/errs"
	"axlm/gocore/mailbox"
	"axlm/mlxc"
)

// ErrClosed is what calls on a closed engine return.
var ErrClosed = errs.Value("the engine is closed")

// Config says how the engine runs.
type Config struct {
	// PadViews overrides the backend's default for models.CacheOptions.
	PadViews *bool
	// WarmUp overrides the backend's default: on a GPU, verifying passes have
	// one of few widths, and loading a model runs each of them.
	WarmUp *bool
	// KVBytes bounds what the requests' caches take in all; 0 for what the device
	// has room for beside the weights.
	KVBytes int
}

// Engine owns the thread that makes MLX calls, and the requests on it.
type Engine struct {
	commands *mailbox.Box
	quit     chan struct{}
	finished chan struct{}
	closing  sync.Once
	nextID   atomic.Uint64
	device   Device

	// What follows is touched by the engine's thread alone.
	stream    mlxc.Stream
	reader    mlxc.Stream // reads files: a CPU stream on every device
	scope     *mlxc.Scope
	planner   *planner
	requests  map[uint64]*Request
	order     []*Request // the same, by their admission
	keptBytes int64      // that kept prefixes take, as the scheduler was told
	kvBytes   int        // what caches may take in all, 0 for what the device has room for
	landedAt  time.Time  // when the last pass was read, zero where another kind of step came after it
	padViews  bool
	warm      bool   // passes have the widths that were warmed up
	pace      pace   // of long forwards
	served    uint64 // the request of the last step
	wired     int    // limit to restore on exit, −1 for none
}

// New starts the engine's thread. The library must be loaded (mlxc.Load).
func New(c Config) (*Engine, error) {
	planner, err := newPlanner()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		planner:  planner,
		kvBytes:  c.KVBytes,
		commands: mailbox.NewBox(),
		quit:     make(chan struct{}),
		finished: make(chan struct{}),
		requests: map[uint64]*Request{},
		wired:    -1,
	}
	started := make(chan error)
	go e.run(c, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting the engine: %w", err)
	}
	return e, nil
}

// Device describes what the engine runs on.
func (e *Engine) Device() Device { return e.device }

// Close ends all requests and the thread, and restores the wired limit. Calls
// after it return ErrClosed.
func (e *Engine) Close() {
	e.closing.Do(func() { close(e.quit) })
	<-e.finished
}

func (e *Engine) run(c Config, started chan<- error) {
	// Never unlocked: the thread ends with the goroutine, and its streams too.
	runtime.LockOSThread()
	defer close(e.finished)
	if err := e.start(c); err != nil {
		started <- err
		return
	}
	started <- nil
	defer e.stop()
	for {
		e.obey(e.commands.Take())
		if e.leaving() {
			return
		}
		if !e.step() {
			select {
			case <-e.quit:
				return
			case <-e.commands.Ready():
			}
		}
	}
}

// obey runs commands. They turn panics into errors themselves; one that does
// not must not end the process either.
func (e *Engine) obey(commands []func()) {
	for _, f := range commands {
		if err := guarded(func() error { f(); return nil }); err != nil {
			log.Printf("axlm: a command of the engine failed: %v", err)
		}
	}
}

// leaving tells whether the engine is being closed.
func (e *Engine) leaving() bool {
	select {
	case <-e.quit:
		return true
	default:
		return false
	}
}

func (e *Engine) start(c Config) error {
	device, stream, err := openDevice()
	if err != nil {
		return err
	}
	if e.reader, err = mlxc.NewStream(mlxc.Device{Type: mlxc.CPU}); err != nil {
		return fmt.Errorf("making a stream to read files: %w", err)
	}
	if err := mlxc.EnableCompile(true); err != nil {
		return fmt.Errorf("enabling MLX's compile mode: %w", err)
	}
	e.device, e.stream = device, stream
	e.scope = mlxc.NewScope(stream)
	e.padViews = device.Kind == "cuda"
	if c.PadViews != nil {
		e.padViews = *c.PadViews
	}
	e.warm = device.Kind != "cpu"
	if c.WarmUp != nil {
		e.warm = *c.WarmUp
	}
	if limit := device.WorkingSet; limit > 0 {
		previous, err := mlxc.SetWiredLimit(limit)
		if err != nil {
			return fmt.Errorf("setting the wired limit to %d bytes: %w", limit, err)
		}
		e.wired = previous
	}
	return nil
}

func (e *Engine) stop() {
	// What waits in the queue must not wait for ever: do answers at once now.
	e.obey(e.commands.Close())
	for len(e.order) > 0 {
		e.drop(e.order[0], ErrClosed)
	}
	e.scope.Close()
	if err := e.stream.Synchronize(); err == nil && e.wired >= 0 {
		// Nobody is left who could act on a failure here.
		_, _ = mlxc.SetWiredLimit(e.wired)
	}
}

// do runs f on the engine's thread and waits for it. A panic in f becomes an
// error.
func (e *Engine) do(f func() error) error {
	done := make(chan error, 1)
	if err := e.post(func() {
		if e.leaving() {
			done <- ErrClosed
			return
		}
		done <- guarded(f)
	}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-e.finished:
		select {
		case err := <-done:
			return err
		default:
			return ErrClosed
		}
	}
}

// post queues f for the engine's thread, and never waits for it.
func (e *Engine) post(f func()) error {
	if !e.commands.Post(f) {
		return ErrClosed
	}
	return nil
}

// postFor queues f, which concerns r. Should it panic, r ends with that.
func (e *Engine) postFor(r *Request, f func()) error {
	return e.post(func() { e.doFor(r, f) })
}

// doFor runs f on the engine's thread. Should it panic, r ends with that.
func (e *Engine) doFor(r *Request, f func()) {
	if err := guarded(func() error { f(); return nil }); err != nil {
		e.planner.remove(r)
		e.leaveOut(r)
		r.out.Fail(err)
	}
}

// leaveOut takes the request out of the engine's.
func (e *Engine) leaveOut(r *Request) {
	delete(e.requests, r.id)
	delete(r.model.live, r.id)
	e.order = slices.DeleteFunc(e.order, func(o *Request) bool { return o == r })
}

// guarded runs f and turns a panic into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errs.Internal("internal error: %v\n%s", p, debug.Stack())
		}
	}()
	return classify(f())
}

// classify gives MLX's out-of-memory errors the class they have in Python.
func classify(err error) error {
	if err == nil || errs.Kind(err) != errs.KindRuntime {
		return err
	}
	for _, sign := range []string{"out of memory", "bad_alloc", "[malloc", "Unable to allocate", "Attempting to allocate"} {
		if strings.Contains(err.Error(), sign) {
			return errs.With(errs.KindMemory, err)
		}
	}
	return err
}

// try is build for what can also fail by itself.
func (e *Engine) try(f func(s *mlxc.Scope) error) error {
	var failed error
	err := e.build(func(s *mlxc.Scope) { failed = f(s) })
	if failed != nil {
		return failed
	}
	return err
}

// build runs f on the engine's scope and closes it: handles that stay alive
// would forbid MLX to reuse their buffers when it evaluates.
func (e *Engine) build(f func(s *mlxc.Scope)) error {
	e.scope.Reset()
	f(e.scope)
	err := e.scope.Err()
	e.scope.Close()
	return err
}
