package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"axlm/gocore/errs"
	"axlm/gocore/models"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

var (
	errCast    = errs.Value("the model's weights were given another dtype")
	errAdapted = errs.Value("the model was given another adapter")
)

// Parameters are the weights of the given names, which are those of mlx_lm's
// modules, evaluated; none for a name that the model does not have. The handles
// are the caller's.
func (m *Model) Parameters(names []string) ([]mlxc.Array, error) {
	var found []mlxc.Array
	err := m.engine.do(func() error {
		if m.model == nil {
			return errModelClosed
		}
		named := m.store.Named()
		_, beside := m.store.Adapter()
		maps.Copy(named, beside)
		present := make([]mlxc.Array, 0, len(names))
		for _, name := range names {
			if a, ok := named[name]; ok {
				present = append(present, a)
			}
		}
		if err := mlxc.Eval(present...); err != nil {
			return fmt.Errorf("reading weights: %w", err)
		}
		for _, name := range names {
			found = append(found, named[name].Clone())
		}
		return nil
	})
	return found, err
}

// SetDType casts the weights that have one of the types from. Requests that
// run end with an error, because their states have the old type. A context that
// ends before that leaves the model as it is.
func (m *Model) SetDType(ctx context.Context, to mlxc.DType, from []mlxc.DType) error {
	if _, ok := fileTypes[to]; !ok || !to.IsFloat() {
		return errs.Value("weights can be of type float16, bfloat16 or float32, not %v", to)
	}
	cast := func(s *mlxc.Scope, a mlxc.Array) mlxc.Array {
		if slices.Contains(from, a.DType()) {
			return s.AsType(a, to)
		}
		return a
	}
	err := m.rebuild(ctx, errCast, nil, func() (*nn.Store, models.Model, error) {
		adapter, beside := m.store.Adapter()
		return m.again(cast, adapter, beside)
	})
	if err != nil {
		return fmt.Errorf("casting weights to %v: %w", to, err)
	}
	return nil
}

// Adapt gives the model the adapter in dir in place of the one that it has.
// Requests that run end with an error, because their states are of the weights
// before. Where the adapter does not fit, or the context ends before that, the
// model stays as it is.
func (m *Model) Adapt(ctx context.Context, dir string) error {
	adapter, err := weights.OpenAdapter(dir)
	if err != nil {
		return err
	}
	err = m.rebuild(ctx, errAdapted, &dir, func() (*nn.Store, models.Model, error) {
		beside, _, err := mlxc.LoadSafetensors(adapter.Path(), m.engine.reader)
		if err != nil {
			return nil, nil, fmt.Errorf("opening %s: %w", adapter.Path(), err)
		}
		defer freeAll(beside)
		same := func(_ *mlxc.Scope, a mlxc.Array) mlxc.Array { return a }
		return m.again(same, adapter, beside)
	})
	if err != nil {
		return fmt.Errorf("applying an adapter: %w", err)
	}
	return nil
}

// rebuild puts another model in this one's place, of what again makes on the
// engine's thread. Requests that run end with the error gone, as the last step:
// the weights are computed and the passes are run before it, a part at a time,
// so that other requests go on meanwhile.
func (m *Model) rebuild(ctx context.Context, gone error, adapter *string, again func() (*nn.Store, models.Model, error)) error {
	m.rebuilding.Lock()
	defer m.rebuilding.Unlock()
	e := m.engine
	var store *nn.Store
	var built models.Model
	step := func(f func() error) error {
		return e.do(func() error {
			switch {
			case ctx.Err() != nil:
				return errs.Value("it was given up")
			case m.model == nil:
				return errModelClosed
			}
			return f()
		})
	}
	var cost [len(passWidths)][]float64
	err := step(func() (err error) {
		store, built, err = again()
		return err
	})
	if err != nil {
		return err
	}
	arrays := store.Arrays()
	for len(arrays) > 0 && err == nil {
		n := batchOf(arrays)
		err = step(func() error { return mlxc.Eval(arrays[:n]...) })
		arrays = arrays[n:]
	}
	if e.warm && err == nil {
		err = e.warmUp(built, step, func(width int, seconds float64) {
			cost[slices.Index(passWidths[:], width)] = append(cost[slices.Index(passWidths[:], width)], seconds)
		})
	}
	if err == nil {
		err = step(func() error {
			for _, r := range m.live {
				e.drop(r, gone)
			}
			m.store.Free()
			m.model, m.store = built, store
			if m.kept != nil { // of other weights
				budget := m.kept.index.Budget()
				m.forgetPrefixes()
				m.kept = newPrefixes(budget)
				e.countKept()
			}
			m.bytes.Store(bytesOf(store.Arrays()))
			m.parameters.Store(int64(store.Parameters()))
			if err := e.measure(m); err != nil {
				return err
			}
			if adapter != nil {
				m.adapter.Store(adapter)
			}
			for i, measured := range cost {
				for _, seconds := range measured {
					m.shared.Cost().Record(passWidths[i], seconds)
				}
			}
			return nil
		})
	}
	if err != nil {
		// A closed engine has given all memory back.
		_ = e.do(func() error {
			store.Free()
			return mlxc.ClearCache()
		})
	}
	return err
}

// batchOf is how many of the arrays are evaluated between two looks at other
// work.
func batchOf(arrays []mlxc.Array) int {
	n, size := 0, 0
	for n < len(arrays) && (n == 0 || size < loadBatch) {
		size += arrays[n].NBytes()
		n++
	}
	return n
}

// again builds the model anew from its weights in memory, changed, and of an
// adapter with its arrays, which stay the caller's. Nothing is evaluated.
func (m *Model) again(change func(*mlxc.Scope, mlxc.Array) mlxc.Array, adapter *weights.Adapter, beside map[string]mlxc.Array) (*nn.Store, models.Model, error) {
	s := m.engine.scope
	s.Reset()
	defer s.Close()
	changed := func(all map[string]mlxc.Array) map[string]mlxc.Array {
		out := make(map[string]mlxc.Array, len(all))
		for name, a := range all {
			out[name] = s.Keep(change(s, a))
		}
		return out
	}
	arrays, table := changed(m.store.Named()), map[string]weights.Tensor{}
	for name, a := range arrays {
		table[name] = weights.Tensor{Name: name, Source: name, DType: fileTypes[a.DType()], Shape: a.Shape()}
	}
	folder := m.Folder.WithTensors(table)
	manifest, err := weights.BuildManifest(folder)
	if err != nil {
		freeAll(arrays)
		return nil, nil, err
	}
	store := nn.NewStore(folder, manifest, arrays, s)
	if adapter != nil {
		err = store.Adapt(adapter, changed(beside))
	}
	var built models.Model
	if err == nil {
		built, err = models.Build(folder, store)
	}
	if err == nil {
		err = store.Finish()
	}
	if err != nil {
		store.Free()
		return nil, nil, err
	}
	return store, built, nil
}

func freeAll(arrays map[string]mlxc.Array) {
	for _, a := range arrays {
		a.Free()
	}
}

// fileTypes are the types of weights, as safetensors files name them.
var fileTypes = map[mlxc.DType]string{
	mlxc.Float16: "F16", mlxc.BFloat16: "BF16", mlxc.Float32: "F32", mlxc.Uint32: "U32", mlxc.Uint8: "U8",
}

// bytesOf counts what arrays take in memory.
func bytesOf(arrays []mlxc.Array) int64 {
	total := 0
	for _, a := range arrays {
		total += a.NBytes()
	}
	return int64(total)
}
