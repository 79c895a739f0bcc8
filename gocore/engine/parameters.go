package engine

import (
	"fmt"
	"maps"
	"slices"

	"axlm/gocore/errs"
	"axlm/gocore/models"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

var errCast = errs.Value("the model's weights were given another dtype")

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
// run end with an error, because their states have the old type.
func (m *Model) SetDType(to mlxc.DType, from []mlxc.DType) error {
	if _, ok := fileTypes[to]; !ok || !to.IsFloat() {
		return errs.Value("weights can be of type float16, bfloat16 or float32, not %v", to)
	}
	return m.engine.do(func() error {
		if m.model == nil {
			return errModelClosed
		}
		built, store, err := m.cast(to, from)
		if err != nil {
			return fmt.Errorf("casting weights to %v: %w", to, err)
		}
		for _, r := range m.live {
			m.engine.drop(r, errCast)
		}
		m.store.Free()
		m.model, m.store = built, store
		m.bytes.Store(bytesOf(store.Arrays()))
		if m.engine.warm {
			return m.warmUp()
		}
		return nil
	})
}

// cast builds the model anew from its weights in memory, some of them cast.
func (m *Model) cast(to mlxc.DType, from []mlxc.DType) (models.Model, *nn.Store, error) {
	s := m.engine.scope
	s.Reset()
	defer s.Close()
	recast := func(all map[string]mlxc.Array) map[string]mlxc.Array {
		out := make(map[string]mlxc.Array, len(all))
		for name, a := range all {
			if slices.Contains(from, a.DType()) {
				a = s.AsType(a, to)
			}
			out[name] = s.Keep(a)
		}
		return out
	}
	arrays, table := recast(m.store.Named()), map[string]weights.Tensor{}
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
	if adapter, beside := m.store.Adapter(); adapter != nil {
		err = store.Adapt(adapter, recast(beside))
	}
	var built models.Model
	if err == nil {
		built, err = models.Build(folder, store)
	}
	if err == nil {
		err = store.Finish()
	}
	if err == nil {
		err = mlxc.Eval(store.Arrays()...)
	}
	if err != nil {
		store.Free()
		return nil, nil, err
	}
	return built, store, nil
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
