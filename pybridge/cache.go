package pybridge

import (
	"bytes"
	"context"
	"strconv"

	"axlm/gocore/engine"
	"axlm/gocore/errs"
	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// layerState is one layer of a prompt cache, as JSON has it.
type layerState struct {
	Kind   kvcache.Kind `json:"kind"`
	Arrays []int        `json:"arrays"` // handles of arrays
	Offset int          `json:"offset"`

	Keep      int `json:"keep"`
	MaxSize   int `json:"max_size"`
	Next      int `json:"next"`
	GroupSize int `json:"group_size"`
	Bits      int `json:"bits"`
}

// ArrayIn takes a second hold of the mx.array whose C++ object lies at address,
// and returns its handle.
func ArrayIn(address int) (int, error) {
	return call(func() (int, error) {
		a := mlxc.ArrayAt(uintptr(address))
		if !a.Valid() {
			return 0, errs.Internal("no array at the address")
		}
		return put(bridge.arrays, a), nil
	})
}

// ArrayCopy begins to make an array of data, of the dtype and the shape in form,
// as JSON, and returns the job's handle. Its result is the array's.
func ArrayCopy(data []byte, form string) (int, error) {
	return call(func() (int, error) {
		e, err := running()
		if err != nil {
			return 0, err
		}
		var f struct {
			DType string `json:"dtype"`
			Shape []int  `json:"shape"`
		}
		if err := decode(form, &f); err != nil {
			return 0, err
		}
		dt, err := mlxc.ParseDType(f.DType)
		if err != nil {
			return 0, err
		}
		own := bytes.Clone(data) // gopy's slice lives no longer than this call
		return begin(func(context.Context) (outcome, error) {
			a, err := e.NewArray(own, dt, f.Shape)
			if err != nil {
				return outcome{}, err
			}
			handle := put(bridge.arrays, a)
			return outcome{text: strconv.Itoa(handle), drop: func() { freeArray(handle) }}, nil
		}), nil
	})
}

// freeArray gives up an array's handle, if it is not free already.
func freeArray(handle int) {
	if a, ok := pop(bridge.arrays, handle); ok {
		a.Free()
	}
}

// ArrayOut assigns an array to the mx.array whose C++ object lies at address,
// and gives up its handle.
func ArrayOut(array int, address int) (int, error) {
	return call(func() (int, error) {
		a, ok := pop(bridge.arrays, array)
		if !ok {
			return 0, errs.Value("the array is closed")
		}
		defer a.Free()
		return 0, mlxc.SetArrayAt(uintptr(address), a)
	})
}

// ArrayFree gives up an array's handle. One that is free already is left alone.
func ArrayFree(array int) (int, error) {
	return call(func() (int, error) {
		freeArray(array)
		return 0, nil
	})
}

// CacheNew begins to make a prompt cache of the states of a model's layers, as
// JSON, and returns the job's handle. Its result is the cache's. The arrays'
// handles are given up, whatever the outcome.
func CacheNew(model int, states string) (int, error) {
	return call(func() (int, error) {
		taken, err := statesOf(states)
		free := func() {
			for i := range taken {
				taken[i].Free()
			}
		}
		if err != nil {
			free()
			return 0, err
		}
		m, err := get(bridge.models, "model", model)
		if err != nil {
			free()
			return 0, err
		}
		return begin(func(context.Context) (outcome, error) {
			defer free()
			c, err := m.NewCache(taken)
			if err != nil {
				return outcome{}, err
			}
			handle := put(bridge.caches, c)
			return outcome{text: strconv.Itoa(handle), drop: func() { freeCache(handle) }}, nil
		}), nil
	})
}

// statesOf reads states of layers and takes their arrays out of the table.
func statesOf(text string) ([]kvcache.State, error) {
	var layers []layerState
	if err := decode(text, &layers); err != nil {
		return nil, err
	}
	states := make([]kvcache.State, len(layers))
	var missing error
	for i, l := range layers {
		st := kvcache.State{
			Kind: l.Kind, Offset: l.Offset, Keep: l.Keep, MaxSize: l.MaxSize, Next: l.Next,
			Form: kvcache.QuantForm{GroupSize: l.GroupSize, Bits: l.Bits},
		}
		for _, handle := range l.Arrays {
			a, err := arrayOf(handle)
			if err != nil {
				missing = err
			}
			st.Arrays = append(st.Arrays, a)
		}
		states[i] = st
	}
	return states, missing
}

// CacheTake begins to end a prompt cache, and returns the job's handle. Its
// result is the states of the cache's layers, as JSON. The arrays in it are
// evaluated; their handles are the caller's to give up.
func CacheTake(cache int) (int, error) {
	return call(func() (int, error) {
		c, ok := pop(bridge.caches, cache)
		if !ok {
			return 0, errs.Value("the prompt cache is closed")
		}
		return begin(func(context.Context) (outcome, error) {
			states, err := c.Take()
			if err != nil {
				return outcome{}, err
			}
			layers := make([]layerState, len(states))
			var handles []int
			for i, st := range states {
				layers[i] = layerState{
					Kind: st.Kind, Arrays: []int{}, Offset: st.Offset, Keep: st.Keep, MaxSize: st.MaxSize, Next: st.Next,
					GroupSize: st.Form.GroupSize, Bits: st.Form.Bits,
				}
				for _, a := range st.Arrays {
					handle := put(bridge.arrays, a)
					layers[i].Arrays, handles = append(layers[i].Arrays, handle), append(handles, handle)
				}
			}
			out, err := described(layers, nil)
			out.drop = func() {
				for _, handle := range handles {
					freeArray(handle)
				}
			}
			return out, err
		}), nil
	})
}

// freeCache gives up a prompt cache's handle, if it is not free already.
func freeCache(handle int) {
	if c, ok := pop(bridge.caches, handle); ok {
		c.Close()
	}
}

// CacheFree frees a prompt cache. One that is free already is left alone.
func CacheFree(cache int) (int, error) {
	return call(func() (int, error) {
		freeCache(cache)
		return 0, nil
	})
}

// Resume continues a request whose prompt cache was taken with another.
func Resume(request int, cache int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		c, err := get(bridge.caches, "prompt cache", cache)
		if err != nil {
			return 0, err
		}
		return 0, r.Request.Resume(c)
	})
}

// ResumeDraft gives a request's draft model a prompt cache in place of the one
// that was taken.
func ResumeDraft(request int, cache int) (int, error) {
	return call(func() (int, error) {
		r, err := get(bridge.requests, "request", request)
		if err != nil {
			return 0, err
		}
		c, err := get(bridge.caches, "prompt cache", cache)
		if err != nil {
			return 0, err
		}
		return 0, r.Request.ResumeDraft(c)
	})
}

// cacheOf is the prompt cache of a handle, none of 0.
func cacheOf(handle int) (*engine.Cache, error) {
	if handle == 0 {
		return nil, nil
	}
	return get(bridge.caches, "prompt cache", handle)
}

// arrayOf takes the array of a handle, none of 0; it is the caller's.
func arrayOf(handle int) (mlxc.Array, error) {
	if handle == 0 {
		return mlxc.Array{}, nil
	}
	a, ok := pop(bridge.arrays, handle)
	if !ok {
		return mlxc.Array{}, errs.Value("the array is closed")
	}
	return a, nil
}
