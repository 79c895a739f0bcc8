package weights

import (
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"axlm/gocore/errs"
)

// The files of an adapter, as mlx_lm's tuner names them.
const (
	adapterConfigFile  = "adapter_config.json"
	adapterWeightsFile = "adapters.safetensors"
)

// AdapterType says what an adapter does to the layers that it has tensors for.
type AdapterType string

// The types of adapter.
const (
	AdapterLoRA AdapterType = "lora" // adds a product of two low-rank matrices
	AdapterDoRA AdapterType = "dora" // the same, and sets the length of each row
	AdapterFull AdapterType = "full" // replaces tensors
)

// Adapter is a folder of fine-tuned layers. Its tensors have the names that
// mlx_lm's modules have. A model asks for what belongs to each of its layers
// and, in the end, whether that was all.
type Adapter struct {
	Dir   string
	Type  AdapterType
	Scale float64 // of the low-rank product

	rank    int
	last    int             // how many of the last layers may have it, 0 for all
	keys    map[string]bool // modules within a layer, or whole paths; nil for all of a layer
	layers  int             // of the model
	tensors map[string]Tensor
	used    map[string]bool
	wrong   []string // tensors that do not fit, and why
}

// LowRank are the tensors of a layer.
type LowRank struct {
	A, B      Tensor
	Magnitude Tensor // with AdapterDoRA alone
}

// LowRankShape is how large the parts of a layer's adapter are, by the rank.
type LowRankShape func(rank int) (a, b, magnitude []int)

// OpenAdapter reads the adapter in dir: its configuration, and what its file
// holds. A missing folder or file is a NotFound error; broken ones are
// ValueErrors, a configuration without a scale, rank or dropout a KeyError.
func OpenAdapter(dir string) (*Adapter, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, errs.NotFound("adapter folder %s does not exist", dir)
	}
	data, err := readFile(dir, adapterConfigFile)
	if err != nil {
		return nil, err
	}
	config, err := ParseConfig(filepath.Join(dir, adapterConfigFile), data)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Dir: dir, tensors: map[string]Tensor{}, used: map[string]bool{}}
	if err := a.read(config.Reader()); err != nil {
		return nil, err
	}
	tensors, _, err := readHeader(dir, adapterWeightsFile)
	if err != nil {
		return nil, err
	}
	for _, t := range tensors {
		a.tensors[t.Name] = t
	}
	return a, nil
}

// Path is the place of the adapter's weights.
func (a *Adapter) Path() string { return filepath.Join(a.Dir, adapterWeightsFile) }

func (a *Adapter) read(c Reader) error {
	a.Type = AdapterType(c.StringOr("fine_tune_type", string(AdapterLoRA)))
	switch a.Type {
	case AdapterFull:
		return c.Err()
	case AdapterLoRA, AdapterDoRA:
	default:
		c.Fail(c.Config().Wrong("fine_tune_type", "lora, dora or full"))
	}
	a.last = max(0, c.Int("num_layers"))
	if c.Err() == nil && !c.Has("lora_parameters") {
		c.Fail(c.Config().Missing("lora_parameters"))
	}
	p := c.Map("lora_parameters")
	for _, key := range []string{"scale", "rank", "dropout"} { // the last is for training, and wanted all the same
		if p.Err() == nil && !p.Has(key) {
			hint := ""
			if key == "scale" && p.Has("alpha") {
				hint = "; there is an alpha, which mlx_lm's adapters do not have"
			}
			p.Fail(errs.Key("%w%s", p.Config().Missing(key), hint))
		}
	}
	a.Scale, a.rank = p.Float("scale"), p.Count("rank")
	if p.Has("keys") {
		a.keys = map[string]bool{}
		for _, key := range p.Strings("keys") {
			a.keys[key] = true
		}
	}
	return c.Err()
}

// Again is the adapter with nothing taken from it.
func (a *Adapter) Again() *Adapter {
	again := *a
	again.used, again.wrong = map[string]bool{}, nil
	return &again
}

// ForLayers says how many layers the model has.
func (a *Adapter) ForLayers(n int) { a.layers = n }

// LowRank takes the tensors of the layer at path, if the adapter has any.
func (a *Adapter) LowRank(path string, shape LowRankShape) (LowRank, bool) {
	if a == nil || a.Type == AdapterFull {
		return LowRank{}, false
	}
	wantA, wantB, wantM := shape(a.rank)
	if a.Type == AdapterLoRA {
		wantM = nil
	}
	var found LowRank
	parts := []struct {
		name string
		dims []int
		into *Tensor
	}{{"lora_a", wantA, &found.A}, {"lora_b", wantB, &found.B}, {"m", wantM, &found.Magnitude}}
	var missing []string
	some := false
	for _, part := range parts {
		if part.dims == nil {
			continue
		}
		name := path + "." + part.name
		t, ok := a.tensors[name]
		if !ok {
			missing = append(missing, name)
			continue
		}
		some = true
		a.used[name] = true
		*part.into = t
		switch {
		case !a.covers(path):
			a.reject(name, "the configuration's num_layers and keys leave this layer out")
		case !slices.Equal(t.Shape, part.dims):
			a.reject(name, "want shape "+shapeText(part.dims)+", got "+shapeText(t.Shape))
		case !isFloat(t.DType):
			a.reject(name, "want a floating-point dtype, got "+t.DType)
		}
	}
	if some {
		for _, name := range missing {
			a.reject(name, "it is missing")
		}
	}
	return found, some && len(a.wrong) == 0
}

// covers tells whether the configuration gives the layer at path an adapter.
func (a *Adapter) covers(path string) bool {
	if a.keys[path] {
		return true
	}
	layer, key, ok := splitLayer(path)
	return ok && (a.last == 0 || layer >= a.layers-a.last) && (a.keys == nil || a.keys[key])
}

// splitLayer takes …layers.N.KEY apart.
func splitLayer(path string) (layer int, key string, ok bool) {
	_, rest, ok := strings.Cut("."+path, ".layers.")
	if !ok {
		return 0, "", false
	}
	number, key, ok := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	return layer, key, ok && err == nil
}

// Has tells whether the adapter has a tensor of the layer at path.
func (a *Adapter) Has(path string) bool {
	if a == nil || a.Type == AdapterFull {
		return false
	}
	for _, part := range []string{".lora_a", ".lora_b", ".m"} {
		if _, ok := a.tensors[path+part]; ok {
			return true
		}
	}
	return false
}

// Unsupported notes that the adapter's layer at path is of a kind that cannot
// have one of its type.
func (a *Adapter) Unsupported(path, why string) { a.reject(path, why) }

// Replacement takes the tensor that replaces t, if there is one.
func (a *Adapter) Replacement(t Tensor) (Tensor, bool) {
	if a == nil || a.Type != AdapterFull {
		return Tensor{}, false
	}
	other, ok := a.tensors[t.Name]
	if !ok {
		return Tensor{}, false
	}
	a.used[t.Name] = true
	switch {
	case !slices.Equal(other.Shape, t.Shape):
		a.reject(t.Name, "want shape "+shapeText(t.Shape)+", got "+shapeText(other.Shape))
	case isFloat(t.DType) != isFloat(other.DType) || !isFloat(t.DType) && other.DType != t.DType:
		a.reject(t.Name, "want dtype "+t.DType+", got "+other.DType)
	}
	return other, true
}

// Uses tells whether the adapter's tensor was taken.
func (a *Adapter) Uses(name string) bool { return a.used[name] }

// Tensors are the names in the adapter's file, in order.
func (a *Adapter) Tensors() []string {
	names := make([]string, 0, len(a.tensors))
	for name := range a.tensors {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Parameters counts the adapter's numbers.
func (a *Adapter) Parameters() int {
	total := 0
	for _, t := range a.tensors {
		n := 1
		for _, d := range t.Shape {
			n *= d
		}
		total += n
	}
	return total
}

// Done is an error if a tensor did not fit, or belongs to no layer of the model.
func (a *Adapter) Done() error {
	if a == nil {
		return nil
	}
	kind := "adapter parameter"
	if a.Type == AdapterFull {
		kind = "parameter"
	}
	for _, name := range a.Tensors() {
		if !a.used[name] {
			a.reject(name, "the model has no such "+kind)
		}
	}
	if len(a.wrong) == 0 {
		return nil
	}
	return errs.Value("the adapter in %s does not fit the model: %s", a.Dir, strings.Join(listed(a.wrong), "; "))
}

func (a *Adapter) reject(name, why string) { a.wrong = append(a.wrong, name+": "+why) }

// listed is the first few of many.
func listed(lines []string) []string {
	const most = 4
	if len(lines) > most {
		return append(slices.Clone(lines[:most]), "and "+strconv.Itoa(len(lines)-most)+" more")
	}
	return lines
}
