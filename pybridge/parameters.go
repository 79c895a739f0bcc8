package pybridge

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"axlm/gocore/errs"
	"axlm/mlxc"
)

// Parameters assigns the weights that names lists, as JSON and under the names
// of mlx_lm's modules, to the mx.arrays whose C++ objects lie at addresses,
// little-endian uint64, in the same order. It returns the names that the model
// does not have, as JSON; their arrays stay as they are.
func Parameters(model int, names string, addresses []byte) (string, error) {
	return call(func() (string, error) {
		m, err := get(bridge.models, "model", model)
		if err != nil {
			return "", err
		}
		var wanted []string
		if err := json.Unmarshal([]byte(names), &wanted); err != nil {
			return "", errs.Value("names of parameters: %v", err)
		}
		if len(addresses) != 8*len(wanted) {
			return "", errs.Value("parameters: %d names, but %d bytes of addresses", len(wanted), len(addresses))
		}
		found, err := m.Parameters(wanted)
		if err != nil {
			return "", err
		}
		defer func() {
			for _, a := range found {
				a.Free()
			}
		}()
		missing := []string{}
		for i, a := range found {
			if !a.Valid() {
				missing = append(missing, wanted[i])
				continue
			}
			if err := mlxc.SetArrayAt(uintptr(binary.LittleEndian.Uint64(addresses[8*i:])), a); err != nil {
				return "", fmt.Errorf("handing over %s: %w", wanted[i], err)
			}
		}
		return toJSON(missing)
	})
}

// CastWeights casts the weights that have one of the types that from lists, as
// JSON, to another type. Names of types are MLX's.
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
		return 0, m.SetDType(target, types)
	})
}

// Adapt gives a model the adapter in a folder in place of the one that it has.
func Adapt(model int, path string) (int, error) {
	return call(func() (int, error) {
		m, err := get(bridge.models, "model", model)
		if err != nil {
			return 0, err
		}
		return 0, m.Adapt(path)
	})
}
