package weights

import (
	"sort"

	"axlm/gocore/errs"
)

// Claims records which tensors a model takes. Loading is strict: at the end
// every tensor of the folder must have been taken, and each one taken must
// have been there in the shape that was asked for. Errors are collected, so a
// family claims everything and asks once, with Done; Err tells earlier.
type Claims struct {
	folder  *Folder
	used    map[string]bool // true: taken; false: ignored
	missing []string        // the first few
	absent  int             // how many in all
	wrong   error           // the first tensor of a wrong shape, dtype or packing
}

// Module is a linear layer, an embedding or a stack of experts as the folder
// holds it. Scales and Biases are zero where Quant is nil, Biases also in
// modes without; Bias is zero where the module has none.
type Module struct {
	Path                         string
	Dims                         []int // logical: [out, in] or [experts, out, in]
	Weight, Scales, Biases, Bias Tensor
	Quant                        *Quant // nil: not quantised
}

// Claims starts a record of what is taken from the folder's table.
func (f *Folder) Claims() *Claims {
	return &Claims{folder: f, used: make(map[string]bool, len(f.Tensors))}
}

// Tensor takes a floating-point tensor of the given shape, in which −1 stands
// for any size; without dims any shape will do. It is zero if there is none.
func (c *Claims) Tensor(name string, dims ...int) Tensor {
	t, ok := c.take(name)
	if !ok {
		return Tensor{}
	}
	switch {
	case len(dims) > 0 && !equalShape(t.Shape, dims):
		c.fail(errs.Value("%s: want shape %s, got %s", name, shapeText(dims), shapeText(t.Shape)))
	case !isFloat(t.DType):
		c.fail(errs.Value("%s: want a floating-point dtype, got %s", name, t.DType))
	}
	return t
}

// Optional is Tensor for one that need not be there.
func (c *Claims) Optional(name string, dims ...int) (Tensor, bool) {
	if !c.folder.Has(name) {
		return Tensor{}, false
	}
	return c.Tensor(name, dims...), true
}

// Module takes the matrix at path of logical shape dims, plain or quantised as
// the folder says, and with bias its bias of shape dims without the last.
func (c *Claims) Module(path string, bias bool, dims ...int) Module {
	m := Module{Path: path, Dims: dims}
	q, packed, err := c.folder.QuantizationOf(path, dims[len(dims)-1])
	if err != nil {
		c.fail(err)
	}
	switch {
	case packed:
		m.Quant = &q
		m.Weight, _ = c.take(path + ".weight")
		m.Scales, _ = c.take(path + ".scales")
		if q.HasBiases() {
			m.Biases, _ = c.take(path + ".biases")
		}
		if m.complete() {
			c.fail(checkPacked(c.folder.Tensors, path, q, dims))
		}
	case c.folder.Tensors[path+".weight"].DType == "U32":
		c.take(path + ".weight")
		c.fail(c.packedError(path))
	default:
		m.Weight = c.Tensor(path+".weight", dims...)
	}
	if bias {
		m.Bias = c.Tensor(path+".bias", dims[:len(dims)-1]...)
	}
	return m
}

// complete reports whether every part of a quantised module was found.
func (m *Module) complete() bool {
	return m.Weight.Name != "" && m.Scales.Name != "" && (m.Biases.Name != "" || !m.Quant.HasBiases())
}

// packedError says why a packed weight cannot be read as one.
func (c *Claims) packedError(path string) error {
	switch {
	case c.folder.quant.top == nil:
		return errs.Value("%s.weight is packed (U32), but config.json has no quantization", path)
	case c.folder.quant.paths.Has(path):
		return errs.Value("%s.weight is packed (U32), but config.json says that it is not quantised", path)
	}
	return errs.Value("%s.weight is packed (U32), but %s.scales is missing", path, path)
}

// Ignore marks a tensor as known and not needed.
func (c *Claims) Ignore(name string) { c.used[name] = c.used[name] }

// Err is an error if anything taken so far is missing or wrong.
func (c *Claims) Err() error {
	if c.wrong != nil {
		return c.wrong
	}
	switch c.absent {
	case 0:
		return nil
	case 1:
		return c.folder.missing("tensor %s is missing in %s", c.missing[0], c.folder.Dir)
	}
	return c.folder.missing("%d tensors are missing in %s: %s", c.absent, c.folder.Dir, some(c.missing, c.absent))
}

// Done is Err, and an error as well if the folder holds tensors that were not
// taken.
func (c *Claims) Done() error {
	err := c.Err()
	if c.wrong != nil {
		return err
	}
	var unused []string
	for name := range c.folder.Tensors {
		if _, known := c.used[name]; !known {
			unused = append(unused, name)
		}
	}
	if len(unused) == 0 {
		return err
	}
	sort.Strings(unused)
	noun := "tensors"
	if len(unused) == 1 {
		noun = "tensor"
	}
	extra := errs.Value("%d %s that this model does not use: %s", len(unused), noun, some(unused, len(unused)))
	if err != nil {
		return errs.Value("%w; and %w", err, extra)
	}
	return extra
}

// take finds a tensor and marks it; an absent one is recorded.
func (c *Claims) take(name string) (Tensor, bool) {
	t, ok := c.folder.Tensors[name]
	if !ok {
		c.absent++
		if len(c.missing) < 8 {
			c.missing = append(c.missing, name)
		}
		return Tensor{}, false
	}
	c.used[name] = true
	return t, true
}

func (c *Claims) fail(err error) {
	if c.wrong == nil {
		c.wrong = err
	}
}

// Uses reports whether a tensor was taken, and not only ignored.
func (c *Claims) Uses(name string) bool { return c.used[name] }
