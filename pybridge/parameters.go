package pybridge

import (
	"context"
	"encoding/json"

	"axlm/gocore/engine"
	"axlm/gocore/errs"
	"axlm/mlxc"
)

// Parameters begins to fetch the weights that names lists, as JSON and under the
// names of mlx_lm's modules, and returns the job's handle. JobTake assigns them
// in that order; its result is the names that the model does not have, as JSON,
// whose arrays stay as they are.
func Parameters(model int, names string) (int, error) {
	return call(func() (int, error) {
		m, err := get(bridge.models, "model", model)
		if err != nil {
			return 0, err
		}
		var wanted []string
		if err := json.Unmarshal([]byte(names), &wanted); err != nil {
			return 0, errs.Value("names of parameters: %v", err)
		}
		return begin(func(context.Context) (outcome, error) {
			found, err := m.Parameters(wanted)
			if err != nil {
				return outcome{}, err
			}
			missing := []string{}
			for i, a := range found {
				if !a.Valid() {
					missing = append(missing, wanted[i])
				}
			}
			out, err := described(missing, nil)
			out.arrays = found
			return out, err
		}), nil
	})
}

// CastWeights begins to cast the weights that have one of the types that from
// lists, as JSON, to another type, and returns the job's handle. Names of types
// are MLX's.
func CastWeights(model int, to string, from string) (int, error) {
	return call(func() (int, error) {
		m, err := get(bridge.models, "model", model)
		if err != nil {
			return 0, err
		}
		var names []string
		if err := json.Unmarshal([]byte(from), &names); err != nil {
			return 0, errs.Value("dtypes to cast: %v", err)
		}
		types := make([]mlxc.DType, len(names))
		for i, name := range names {
			if types[i], err = mlxc.ParseDType(name); err != nil {
				return 0, errs.Value("dtypes to cast: %v", err)
			}
		}
		target, err := mlxc.ParseDType(to)
		if err != nil {
			return 0, errs.Value("the dtype to cast to: %v", err)
		}
		return change(m, func(ctx context.Context) error { return m.SetDType(ctx, target, types) }), nil
	})
}

// Adapt begins to give a model the adapter in a folder in place of the one that
// it has, and returns the job's handle.
func Adapt(model int, path string) (int, error) {
	return call(func() (int, error) {
		m, err := get(bridge.models, "model", model)
		if err != nil {
			return 0, err
		}
		return change(m, func(ctx context.Context) error { return m.Adapt(ctx, path) }), nil
	})
}

// change begins a change of a model. The job's result describes the model after
// it, as ModelInfo does.
func change(m *engine.Model, f func(context.Context) error) int {
	return begin(func(ctx context.Context) (outcome, error) {
		if err := f(ctx); err != nil {
			return outcome{}, err
		}
		return described(m.Info())
	})
}
