// Package pybridge is what gopy exports to Python: functions on integer
// handles, token ids as bytes, options as JSON. No panic and no stale handle
// may reach the other side: each function recovers, and each handle is looked
// up. A function without a result returns 0 beside its error: gopy leaks a
// string at each call of one that returns an error alone.
package pybridge

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"axlm/gocore/engine"
	"axlm/gocore/errs"
	"axlm/gocore/promptcache"
	"axlm/mlxc"
)

// state is the process's one engine and the objects that handles name.
type state struct {
	mu       sync.Mutex
	engine   *engine.Engine
	next     int
	loads    map[int]*engine.Load
	models   map[int]*engine.Model
	requests map[int]*open
	caches   map[int]*engine.Cache
	arrays   map[int]mlxc.Array
	jobs     map[int]*job
	packings map[int]*promptcache.Job
}

// open is a request with the token that its reader got last.
type open struct {
	*engine.Request
	mu     sync.Mutex
	last   engine.Token
	closed bool
}

// keep makes t the last token, and frees the one before.
func (o *open) keep(t engine.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last.Free()
	o.last = t
	if o.closed {
		o.last.Free()
		o.last = engine.Token{}
	}
}

func (o *open) close() {
	o.Request.Close()
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.keep(engine.Token{})
}

var bridge = &state{
	loads:    map[int]*engine.Load{},
	models:   map[int]*engine.Model{},
	requests: map[int]*open{},
	caches:   map[int]*engine.Cache{},
	arrays:   map[int]mlxc.Array{},
	jobs:     map[int]*job{},
	packings: map[int]*promptcache.Job{},
}

// call runs f and gives its error, or its panic, the form that Python reads.
func call[T any](f func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errs.Internal("internal error: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			var none T
			result, err = none, errors.New(errs.Text(err)) // gopy raises RuntimeError for every error
		}
	}()
	return f()
}

// put files an object under a new handle.
func put[T any](table map[int]T, object T) int {
	bridge.mu.Lock()
	defer bridge.mu.Unlock()
	bridge.next++
	table[bridge.next] = object
	return bridge.next
}

// get finds the object of a handle.
func get[T any](table map[int]T, what string, handle int) (T, error) {
	bridge.mu.Lock()
	defer bridge.mu.Unlock()
	object, ok := table[handle]
	if !ok {
		return object, errs.Value("the %s is closed", what)
	}
	return object, nil
}

// pop takes the object of a handle out.
func pop[T any](table map[int]T, handle int) (T, bool) {
	bridge.mu.Lock()
	defer bridge.mu.Unlock()
	object, ok := table[handle]
	delete(table, handle)
	return object, ok
}

func running() (*engine.Engine, error) {
	bridge.mu.Lock()
	defer bridge.mu.Unlock()
	if bridge.engine == nil {
		return nil, errs.Internal("the engine was not started")
	}
	return bridge.engine, nil
}

func toJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// tokens reads little-endian int32 token ids.
func tokens(ids []byte) ([]int32, error) {
	if len(ids)%4 != 0 {
		return nil, errs.Value("tokens: %d bytes are not a whole number of int32", len(ids))
	}
	out := make([]int32, len(ids)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(ids[4*i:]))
	}
	return out, nil
}

// modelAndTokens are those that a handle and little-endian int32 ids stand for.
func modelAndTokens(model int, ids []byte) (*engine.Model, []int32, error) {
	m, err := get(bridge.models, "model", model)
	if err != nil {
		return nil, nil, err
	}
	t, err := tokens(ids)
	return m, t, err
}

// Init loads the libraries and starts the engine, once a process. libmlx may
// be empty when libmlxc finds it by itself. It returns a description as JSON.
func Init(libmlx string, libmlxc string) (string, error) {
	return call(func() (string, error) {
		bridge.mu.Lock()
		defer bridge.mu.Unlock()
		if err := mlxc.Load(libmlx, libmlxc); err != nil {
			return "", err
		}
		if bridge.engine == nil {
			e, err := engine.New(engine.Config{})
			if err != nil {
				return "", err
			}
			bridge.engine = e
		}
		d := bridge.engine.Device()
		return toJSON(map[string]any{
			"mlx_version": mlxc.Version(), "library": mlxc.LibraryPath(), "device": d.Kind,
			"device_name": d.Name, "memory_size": d.Memory, "working_set": d.WorkingSet,
		})
	})
}

// Shutdown begins to end the engine and to restore what it changed in MLX, and
// returns the job's handle. Handles made before it are dead. What is being
// computed ends early.
func Shutdown() (int, error) {
	return call(func() (int, error) {
		bridge.mu.Lock()
		e := bridge.engine
		bridge.engine = nil
		clear(bridge.loads)
		clear(bridge.models)
		clear(bridge.requests)
		clear(bridge.caches)
		packings := slices.Collect(maps.Values(bridge.packings))
		clear(bridge.packings)
		bridge.mu.Unlock()
		for _, job := range packings {
			job.Cancel() // it removes what it had written
		}
		return begin(func(context.Context) (outcome, error) {
			if e != nil {
				e.Close()
			}
			return outcome{}, nil
		}), nil
	})
}

// LoadStart begins to load a model folder and returns the load's handle.
// options: {"lazy": bool, "config": keys that replace config.json's, "adapter":
// the folder of an adapter}.
func LoadStart(path string, options string) (int, error) {
	return call(func() (int, error) {
		e, err := running()
		if err != nil {
			return 0, err
		}
		var o struct {
			Lazy    bool           `json:"lazy"`
			Config  map[string]any `json:"config"`
			Adapter string         `json:"adapter"`
		}
		if err := decode(options, &o); err != nil {
			return 0, err
		}
		return put(bridge.loads, e.Load(path, engine.LoadOptions{Lazy: o.Lazy, Config: o.Config, Adapter: o.Adapter})), nil
	})
}

// LoadWait waits up to waitMs for the load and returns its progress as JSON:
// {"done", "total"} in bytes, "warming_up", and "model", the model's handle or
// 0. A load that ended is gone after it.
func LoadWait(load int, waitMs int) (string, error) {
	return call(func() (string, error) {
		l, err := get(bridge.loads, "load", load)
		if err != nil {
			return "", err
		}
		model, ended, err := l.Wait(milliseconds(waitMs))
		handle := 0
		if ended {
			pop(bridge.loads, load)
			if err != nil {
				return "", err
			}
			handle = put(bridge.models, model)
		}
		done, total := l.Progress()
		return toJSON(map[string]any{"done": done, "total": total, "warming_up": l.WarmingUp(), "model": handle})
	})
}

// LoadCancel gives a load up; one that has ended is left alone.
func LoadCancel(load int) (int, error) {
	return call(func() (int, error) {
		if l, ok := pop(bridge.loads, load); ok {
			l.Cancel()
			go func() {
				// It may have ended before it heard.
				if m, _, err := l.Wait(time.Hour); err == nil && m != nil {
					_ = m.Close()
				}
			}()
		}
		return 0, nil
	})
}

// ModelInfo describes a model as JSON.
func ModelInfo(model int) (string, error) {
	return call(func() (string, error) {
		m, err := get(bridge.models, "model", model)
		if err != nil {
			return "", err
		}
		info, err := m.Info()
		if err != nil {
			return "", err
		}
		return toJSON(info)
	})
}

// ModelFree begins to end a model's requests and to free its weights, and
// returns the job's handle; nobody needs to wait for it. 0: the model's handle is
// free already.
func ModelFree(model int) (int, error) {
	return call(func() (int, error) {
		m, ok := pop(bridge.models, model)
		if !ok {
			return 0, nil
		}
		return begin(func(context.Context) (outcome, error) { return outcome{}, m.Close() }), nil
	})
}

// KeepPrefixes lets a model keep the states of prompts and answers for requests
// that begin alike, in so many bytes; 0 for none. It does not wait.
func KeepPrefixes(model int, bytes int) (int, error) {
	return call(func() (int, error) {
		m, err := get(bridge.models, "model", model)
		if err != nil {
			return 0, err
		}
		return 0, m.KeepPrefixes(bytes)
	})
}

// Stats begins to count what a model's requests did, and returns the job's
// handle. Its result is JSON.
func Stats(model int) (int, error) {
	return call(func() (int, error) {
		m, err := get(bridge.models, "model", model)
		if err != nil {
			return 0, err
		}
		return begin(func(context.Context) (outcome, error) { return described(m.Stats()) }), nil
	})
}

// described is the outcome of a value, as JSON.
func described[T any](value T, err error) (outcome, error) {
	if err != nil {
		return outcome{}, err
	}
	text, err := toJSON(value)
	return outcome{text: text}, err
}

func decode(options string, into any) error {
	if options == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(options), into); err != nil {
		return errs.Value("options: %v", err)
	}
	return nil
}

func milliseconds(n int) time.Duration { return time.Duration(max(0, n)) * time.Millisecond }
