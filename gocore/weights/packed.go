package weights

import "axlm/gocore/errs"

// LogicalShape is the shape of the module's matrix as the model sees it: that
// of .weight, with the last axis unpacked where it is quantised. It checks the
// shapes and dtypes of weight, scales and biases against each other.
func (f *Folder) LogicalShape(path string) ([]int, error) {
	dims, _, err := f.logical(f.Tensors, path)
	return dims, err
}

// logical finds the matrix at path in a table; the Quant is nil for a plain one.
func (f *Folder) logical(table map[string]Tensor, path string) ([]int, *Quant, error) {
	weight, ok := table[path+".weight"]
	if !ok {
		return nil, nil, errs.Value("%s.weight is missing", path)
	}
	q, packed, err := f.resolve(table, path, 0)
	if err != nil {
		return nil, nil, err
	}
	if !packed {
		return weight.Shape, nil, nil
	}
	dims, err := unpackedShape(path, weight, q)
	if err != nil {
		return nil, nil, err
	}
	return dims, &q, checkPacked(table, path, q, dims)
}

// LinearShape is LogicalShape of a matrix: outputs and inputs.
func (f *Folder) LinearShape(path string) (out, in int, err error) {
	dims, err := f.LogicalShape(path)
	if err != nil {
		return 0, 0, err
	}
	if len(dims) != 2 {
		return 0, 0, errs.Value("%s.weight: want a matrix, got shape %s", path, shapeText(dims))
	}
	return dims[0], dims[1], nil
}

// unpackedShape follows from the words of a row.
func unpackedShape(path string, weight Tensor, q Quant) ([]int, error) {
	n := len(weight.Shape)
	if n < 2 {
		return nil, errs.Value("%s.weight: want at least two axes, got shape %s", path, shapeText(weight.Shape))
	}
	bits := weight.Shape[n-1] * 32
	if bits%q.Bits != 0 || bits/q.Bits%q.GroupSize != 0 {
		return nil, errs.Value("%s.weight: rows of %d words hold no whole groups of %s", path, weight.Shape[n-1], q)
	}
	return withLast(weight.Shape, bits/q.Bits), nil
}

// checkPacked compares the parts of a quantised module of logical shape dims
// with what the packing asks for.
func checkPacked(table map[string]Tensor, path string, q Quant, dims []int) error {
	in := dims[len(dims)-1]
	if in%q.GroupSize != 0 || in*q.Bits%32 != 0 {
		return errs.Value("%s.weight: width %d is no multiple of the group size (%s)", path, in, q)
	}
	scalesShape := withLast(dims, in/q.GroupSize)
	scalesTypes := []string{"U8"}
	if q.HasBiases() {
		scalesTypes = []string{"BF16", "F16", "F32"}
	}
	err := checkPart(table, path+".weight", q, withLast(dims, in*q.Bits/32), "U32")
	if err == nil {
		err = checkPart(table, path+".scales", q, scalesShape, scalesTypes...)
	}
	biases, has := table[path+".biases"]
	switch {
	case err != nil:
		return err
	case q.HasBiases():
		return checkPart(table, path+".biases", q, scalesShape, table[path+".scales"].DType)
	case has:
		return errs.Value("%s: mode %s has no biases", biases.Name, q.Mode)
	}
	return nil
}

func checkPart(table map[string]Tensor, name string, q Quant, shape []int, dtypes ...string) error {
	t, ok := table[name]
	if !ok {
		return errs.Value("%s is missing (quantised: %s)", name, q)
	}
	if !equalShape(t.Shape, shape) {
		return errs.Value("%s: want shape %s (%s), got %s", name, shapeText(shape), q, shapeText(t.Shape))
	}
	for _, dtype := range dtypes {
		if t.DType == dtype {
			return nil
		}
	}
	return errs.Value("%s: want dtype %s (%s), got %s", name, dtypes[0], q, t.DType)
}

// equalShape compares; a negative dimension of want matches any.
func equalShape(have, want []int) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		if want[i] >= 0 && have[i] != want[i] {
			return false
		}
	}
	return true
}

// withLast is shape with another last dimension.
func withLast(shape []int, last int) []int {
	out := append([]int(nil), shape...)
	out[len(out)-1] = last
	return out
}
