// Package nn has the layers that families share.
package nn

import (
	"maps"
	"slices"
	"sort"
	"strings"

	"axlm/gocore/errs"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// Store hands out a model folder's arrays as layers. Which tensors a family
// takes, and whether they have the shapes it asks for, is weights.Claims'
// business. Errors stick: a family builds its layers and asks once.
type Store struct {
	claims  *weights.Claims
	folder  *weights.Folder
	parts   *weights.Parts
	arrays  map[string]mlxc.Array // by the names in the files
	scope   *mlxc.Scope
	derived []mlxc.Array          // made from the folder's arrays, ours to free
	made    map[string]mlxc.Array // of the derived, those that mlx_lm's conversion stores, by its names
	views   []mlxc.Array          // of arrays above, in their memory
	frees   []func()              // release what else layers made
	fixed   int                   // see FixedLength
	err     error

	adapter       *weights.Adapter      // nil for none
	adapterArrays map[string]mlxc.Array // by the names in its file
	replaced      map[string]bool       // tensors whose arrays are the adapter's
}

// NewStore takes over the arrays, keyed by the names that they have in the
// folder's files, of which m is the manifest. Layers that need ops at load build
// them in s.
func NewStore(f *weights.Folder, m *weights.Manifest, arrays map[string]mlxc.Array, s *mlxc.Scope) *Store {
	err := f.Sanitize()
	return &Store{
		claims: f.Claims(), folder: f, parts: f.Parts(m), arrays: arrays, scope: s,
		made: map[string]mlxc.Array{}, replaced: map[string]bool{}, err: err,
	}
}

// Scope is where layers build what they need at load.
func (st *Store) Scope() *mlxc.Scope { return st.scope }

// Fail records the first error.
func (st *Store) Fail(err error) {
	if st.err == nil {
		st.err = err
	}
}

// Adopt makes the store own what a layer made, and returns it.
func (st *Store) Adopt(a mlxc.Array) mlxc.Array {
	if a.Valid() {
		st.derived = append(st.derived, a)
	}
	return a
}

// onFree makes Free call release.
func (st *Store) onFree(release func()) { st.frees = append(st.frees, release) }

// Tensor claims a floating-point array of a given shape.
func (st *Store) Tensor(name string, shape ...int) mlxc.Array {
	return st.array(st.claims.Tensor(name, shape...))
}

// array finds a claimed tensor's array; what is not there stays none, and the
// claims tell.
func (st *Store) array(t weights.Tensor) mlxc.Array {
	if t.Name == "" {
		return mlxc.Array{}
	}
	if other, ok := st.adapter.Replacement(t); ok {
		st.replaced[t.Name] = true
		return st.adapterArray(other)
	}
	a, ok := st.arrays[t.Source]
	if !ok {
		st.Fail(errs.Internal("%s: MLX did not find tensor %s", t.File, t.Source))
	}
	return a
}

// Matrix is a weight as the folder holds it, plain or quantised.
type Matrix struct {
	Weight, Scales, Biases, Bias mlxc.Array
	Quant                        *weights.Quant // nil: plain
}

// Matrix claims the module at path of logical shape dims, its last one being
// the inputs.
func (st *Store) Matrix(path string, bias bool, dims ...int) Matrix {
	m := st.claims.Module(path, bias, dims...)
	return Matrix{
		Weight: st.array(m.Weight), Scales: st.array(m.Scales), Biases: st.array(m.Biases), Bias: st.array(m.Bias), Quant: m.Quant,
	}
}

// Linear makes the layer at path, with in inputs and out outputs.
func (st *Store) Linear(path string, in, out int, bias bool) *Linear {
	l := &Linear{Matrix: st.Matrix(path, bias, out, in), In: in, Out: out}
	if l.Quant == nil {
		l.Weight = st.transposed(l.Weight)
	}
	st.adaptLinear(l, path)
	return l
}

// transposed is a view of a [out, in] weight as matmul takes it.
func (st *Store) transposed(a mlxc.Array) mlxc.Array {
	if !a.Valid() || st.Err() != nil {
		return a
	}
	return st.view(st.scope.Transpose(a, 1, 0))
}

// view makes the store own another look at an array that it has.
func (st *Store) view(a mlxc.Array) mlxc.Array {
	a = st.scope.Keep(a)
	if a.Valid() {
		st.views = append(st.views, a)
	}
	return a
}

// Embedding makes the table at path.
func (st *Store) Embedding(path string, vocab, dim int) *Embedding {
	e := &Embedding{Matrix: st.Matrix(path, false, vocab, dim), Vocab: vocab, Dim: dim}
	if e.Quant == nil {
		e.transposed = st.transposed(e.Weight)
	}
	st.adaptEmbedding(e, path)
	return e
}

// RMSNormFromOne makes the norm at path of a family that stores the weight as
// its difference from 1.
func (st *Store) RMSNormFromOne(path string, dim int, eps float64) *RMSNorm {
	stored := st.Tensor(path+".weight", dim)
	weight := st.derive(func(s *mlxc.Scope) mlxc.Array { return s.Add(stored, s.ScalarLike(stored, 1)) })
	return &RMSNorm{Weight: weight, Eps: float32(eps)}
}

// RMSNorm makes the norm at path.
func (st *Store) RMSNorm(path string, dim int, eps float64) *RMSNorm {
	return &RMSNorm{Weight: st.Tensor(path+".weight", dim), Eps: float32(eps)}
}

// RoPE makes a rotary embedding.
func (st *Store) RoPE(c RoPEConfig) *RoPE {
	if st.Err() != nil {
		return nil
	}
	r, err := NewRoPE(st.scope, c)
	if err != nil {
		st.Fail(err)
		return nil
	}
	st.Adopt(r.freqs)
	if n := r.Fixed(); n > 0 && (st.fixed == 0 || n < st.fixed) {
		st.fixed = n
	}
	return r
}

// FixedLength is the length of text up to which no rope of the model looks at
// how many tokens a forward has; 0 for any length. Beyond it, verifying drafts
// would not give plain decoding's tokens.
func (st *Store) FixedLength() int { return st.fixed }

// ignore marks the module at path as known and not needed.
func (st *Store) ignore(path string) {
	for name := range st.folder.Tensors {
		if of, _ := weights.SplitName(name); of == path {
			st.claims.Ignore(name)
		}
	}
}

// Err is the first error so far, a missing tensor included.
func (st *Store) Err() error {
	if st.err != nil {
		return st.err
	}
	if err := st.claims.Err(); err != nil {
		return err
	}
	return st.scope.Err()
}

// Finish is Err, or names the tensors that nobody claimed.
func (st *Store) Finish() error {
	if st.err != nil {
		return st.err
	}
	if err := st.claims.Done(); err != nil {
		return err
	}
	if err := st.adapter.Done(); err != nil {
		return err
	}
	return st.scope.Err()
}

// Arrays are the handles that the store owns and that a model uses; their bytes
// are what the model takes in memory.
func (st *Store) Arrays() []mlxc.Array {
	names := make([]string, 0, len(st.folder.Tensors))
	for name := range st.folder.Tensors {
		names = append(names, name)
	}
	sort.Strings(names)
	all := make([]mlxc.Array, 0, len(names)+len(st.derived))
	for _, name := range names {
		if a := st.arrays[st.folder.Tensors[name].Source]; a.Valid() && st.claims.Uses(name) && !st.replaced[name] {
			all = append(all, a)
		}
	}
	if st.adapter != nil {
		for _, name := range st.adapter.Tensors() {
			all = append(all, st.adapterArrays[name])
		}
	}
	return append(all, st.derived...)
}

// Named are the model's weights under the names that they have in mlx_lm's
// module, where converters put them. The handles are the store's.
func (st *Store) Named() map[string]mlxc.Array {
	named := maps.Clone(st.made)
	for name, t := range st.folder.Tensors {
		a := st.arrays[t.Source]
		if st.replaced[name] {
			a = st.adapterArrays[name]
		}
		if !a.Valid() || !st.claims.Uses(name) {
			continue
		}
		named[name] = a
	}
	return named
}

// Parameters counts the numbers of the model that the family uses, each packed
// weight as the numbers that it stands for.
func (st *Store) Parameters() int {
	total := 0
	for name, t := range st.folder.Tensors {
		if !st.claims.Uses(name) {
			continue
		}
		path, packed := strings.CutSuffix(name, ".weight")
		if packed = packed && t.DType == "U32"; packed {
			if shape, err := st.folder.LogicalShape(path); err == nil {
				total += product(shape)
			}
			continue
		}
		for _, part := range []string{".scales", ".biases"} {
			if base, is := strings.CutSuffix(name, part); is && st.folder.Tensors[base+".weight"].DType == "U32" {
				packed = true
			}
		}
		if !packed {
			total += product(t.Shape)
		}
	}
	if st.adapter != nil && st.adapter.Type != weights.AdapterFull {
		total += st.adapter.Parameters()
	}
	return total
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Free releases the arrays; the layers made from them are dead after it.
func (st *Store) Free() {
	for _, arrays := range []map[string]mlxc.Array{st.arrays, st.adapterArrays} {
		for _, a := range arrays {
			a.Free()
		}
	}
	for _, a := range slices.Concat(st.derived, st.views) {
		a.Free()
	}
	for _, release := range st.frees {
		release()
	}
	st.arrays, st.adapterArrays, st.derived, st.views, st.frees = nil, nil, nil, nil, nil
}
