package weights

import (
	"fmt"
	"slices"

	"axlm/gocore/errs"
)

// Quant says how a matrix is packed.
type Quant struct {
	GroupSize int    `json:"group_size"` // weights that share a scale
	Bits      int    `json:"bits"`       // per weight
	Mode      string `json:"mode"`       // affine, mxfp4, mxfp8 or nvfp4
}

// String is for messages: "4 bits, group 64, affine".
func (q Quant) String() string {
	return fmt.Sprintf("%d bits, group %d, %s", q.Bits, q.GroupSize, q.Mode)
}

// HasBiases reports whether the mode stores biases beside the scales.
func (q Quant) HasBiases() bool { return q.Mode == "affine" }

// floatQuants holds the one packing of each mode whose scales are 8-bit.
var floatQuants = map[string]Quant{
	"mxfp4": {GroupSize: 32, Bits: 4, Mode: "mxfp4"},
	"mxfp8": {GroupSize: 32, Bits: 8, Mode: "mxfp8"},
	"nvfp4": {GroupSize: 16, Bits: 4, Mode: "nvfp4"},
}

// affineGroups and affineBits are what MLX's affine kernels are built for.
var (
	affineGroups = []int{32, 64, 128}
	affineBits   = []int{1, 2, 3, 4, 5, 6, 8}
)

// problem is what is wrong with q's numbers, "" if nothing: the key of the
// dictionary and what it should be.
func (q Quant) problem() (key, want string) {
	if fixed, ok := floatQuants[q.Mode]; ok {
		switch {
		case q.Bits != fixed.Bits:
			return "bits", fmt.Sprintf("%d for mode %s", fixed.Bits, q.Mode)
		case q.GroupSize != fixed.GroupSize:
			return "group_size", fmt.Sprintf("%d for mode %s", fixed.GroupSize, q.Mode)
		}
		return "", ""
	}
	switch {
	case q.Mode != "affine":
		return "mode", "affine, mxfp4, mxfp8 or nvfp4"
	case !slices.Contains(affineBits, q.Bits):
		return "bits", "1, 2, 3, 4, 5, 6 or 8"
	case !slices.Contains(affineGroups, q.GroupSize):
		return "group_size", "32, 64 or 128"
	}
	return "", ""
}

// quantization is config.json's: the default and the entries by path.
type quantization struct {
	top   *Quant  // nil: nothing is quantised
	paths *Config // the object that holds the entries
}

// readQuantization resolves the top level. mlx_lm's own key is quantization;
// the formats of others under quantization_config are mapped as it maps them.
func readQuantization(c *Config, dir string) (*quantization, error) {
	if on, err := c.BoolDefault("quantize_activations", false); err != nil {
		return nil, err
	} else if on {
		return nil, errs.NotImplemented("config.json: quantize_activations: quantised activations are not supported")
	}
	if !c.Has("quantization") {
		top, err := foreignQuantization(c, dir)
		return &quantization{top: top}, err
	}
	section, err := c.Map("quantization")
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"group_size", "bits"} {
		if !section.Has(key) {
			return nil, section.Missing(key)
		}
	}
	top, err := readQuant(section)
	if err != nil {
		return nil, err
	}
	return &quantization{top: &top, paths: section}, nil
}

// readQuant reads one dictionary. A missing mode is affine; a missing size is
// the mode's default.
func readQuant(c *Config) (Quant, error) {
	r := c.Reader()
	q := Quant{GroupSize: 64, Bits: 4, Mode: r.StringOr("mode", "affine")}
	if fixed, ok := floatQuants[q.Mode]; ok {
		q = fixed
	}
	q.GroupSize, q.Bits = r.IntOr("group_size", q.GroupSize), r.IntOr("bits", q.Bits)
	for _, key := range []string{"global_scale", "quantize_input"} {
		if r.BoolOr(key, false) {
			r.Fail(errs.NotImplemented("%s: not supported", c.where(key)))
		}
	}
	if key, want := q.problem(); key != "" {
		r.Fail(c.Wrong(key, want))
	}
	return q, r.Err()
}

// Quantization says how the module at path (as the table names it, without
// .weight) is packed; false if it is not. An entry of config.json decides;
// without one a module is quantised if it has scales, and the packing follows
// from the shapes. Where they leave a choice, the config's default decides it:
// a caller that knows the module's width asks QuantizationOf.
func (f *Folder) Quantization(path string) (Quant, bool, error) {
	return f.resolve(f.Tensors, path, 0)
}

// QuantizationOf is Quantization for a module with a known input width.
func (f *Folder) QuantizationOf(path string, in int) (Quant, bool, error) {
	return f.resolve(f.Tensors, path, in)
}

func (f *Folder) resolve(table map[string]Tensor, path string, in int) (Quant, bool, error) {
	if f.quant.top == nil {
		return Quant{}, false, nil
	}
	if c := f.quant.paths; c.Has(path) {
		switch on, isBool := c.values[path].(bool); {
		case on:
			return *f.quant.top, true, nil
		case isBool:
			return Quant{}, false, nil
		}
		entry, err := c.Map(path)
		if err != nil {
			return Quant{}, false, c.Wrong(path, "an object or false")
		}
		q, err := readQuant(entry)
		return q, err == nil, err
	} else if c.IsNull(path) {
		return Quant{}, false, nil
	}
	scales, ok := table[path+".scales"]
	if !ok {
		return Quant{}, false, nil
	}
	weight, ok := table[path+".weight"]
	if !ok {
		return Quant{}, false, errs.Value("%s.scales is there, but %s.weight is missing", path, path)
	}
	q, err := infer(path, weight, scales, in, *f.quant.top)
	return q, err == nil, err
}

// infer finds the packing of a module that config.json does not name. A row of
// `in` weights takes in·bits/32 words and in/group scales.
func infer(path string, weight, scales Tensor, in int, top Quant) (Quant, error) {
	fail := func() (Quant, error) {
		width := ""
		if in > 0 {
			width = fmt.Sprintf(" and width %d", in)
		}
		return Quant{}, errs.Value("%s: no packing fits weight %s, scales %s %s%s",
			path, shapeText(weight.Shape), scales.DType, shapeText(scales.Shape), width)
	}
	if len(weight.Shape) == 0 || len(scales.Shape) == 0 {
		return fail()
	}
	words, groups := weight.Shape[len(weight.Shape)-1], scales.Shape[len(scales.Shape)-1]
	if words == 0 || groups == 0 {
		return fail()
	}
	fits := func(q Quant) bool {
		return words*32 == groups*q.GroupSize*q.Bits && (in == 0 || in == groups*q.GroupSize)
	}
	if scales.DType == "U8" {
		for _, q := range floatQuants { // at most one fits
			if fits(q) {
				return q, nil
			}
		}
		return fail()
	}
	var fitting []Quant
	for _, group := range affineGroups {
		for _, bits := range affineBits {
			q := Quant{GroupSize: group, Bits: bits, Mode: "affine"}
			if !fits(q) {
				continue
			}
			if q == top {
				return q, nil
			}
			fitting = append(fitting, q)
		}
	}
	for _, q := range fitting {
		if len(fitting) == 1 || q.GroupSize == top.GroupSize {
			return q, nil
		}
	}
	if len(fitting) > 1 {
		return Quant{}, errs.Value("%s: weight %s and scales %s fit several packings (%s; %s); name one in config.json",
			path, shapeText(weight.Shape), shapeText(scales.Shape), fitting[0], fitting[1])
	}
	return fail()
}
