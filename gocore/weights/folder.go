// Package weights reads an MLX model folder: config.json, the headers of its
// safetensors files, and what follows from them: quantisation, roles, end
// tokens, and the manifest that describes it all. It reads no weights and
// needs no MLX.
package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"axlm/gocore/errs"
)

const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
	indexFile      = "model.safetensors.index.json"
	// The files that mlx_lm loads: model*.safetensors.
	weightsPrefix = "model"
	weightsSuffix = ".safetensors"
)

// Folder is a model folder whose files have been checked. Tensors may be
// renamed; everything else stays as read. It is not safe for concurrent use
// while Rename runs.
type Folder struct {
	Dir       string
	Config    *Config // config.json, with what generation_config.json overrides
	ModelType string
	Files     []string          // the weight files' names; of tensors with one name the last file's is the one
	Tensors   map[string]Tensor // by name

	source     map[string]Tensor // the table before any Rename
	files      map[string]fileInfo
	quant      *quantization
	configSum  string // SHA-256 of config.json and generation_config.json, hex
	overridden bool   // the caller changed the config
}

// Open reads the folder at dir. A missing folder, config.json or weight file
// is a NotFound error; a broken one is a ValueError; each names the file.
func Open(dir string) (*Folder, error) { return OpenWith(dir, nil) }

// OpenWith is Open with top-level keys of config.json replaced, as mlx_lm's
// load does with model_config.
func OpenWith(dir string, overrides map[string]any) (*Folder, error) {
	stat, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errs.NotFound("model folder %s does not exist", dir)
	case err != nil:
		return nil, errs.OS("model folder: %w", err)
	case !stat.IsDir():
		return nil, errs.OS("%s is a file, not a model folder", dir)
	}
	f := &Folder{Dir: dir, overridden: len(overrides) > 0}
	if err := f.readConfig(overrides); err != nil {
		return nil, err
	}
	if err := f.readWeights(); err != nil {
		return nil, err
	}
	if err := f.checkLayers(); err != nil {
		return nil, err
	}
	if f.quant, err = readQuantization(f.Config, dir); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Folder) readConfig(overrides map[string]any) error {
	data, err := readFile(f.Dir, configFile)
	if err != nil {
		return err
	}
	values, err := decodeObject(filepath.Join(f.Dir, configFile), data)
	if err != nil {
		return err
	}
	f.Config = &Config{file: configFile, values: values}
	sum := sha256.New()
	sum.Write(data)
	generation, err := readFile(f.Dir, generationFile)
	switch {
	case err == nil:
		sum.Write(generation)
		f.applyGeneration(generation)
	case errs.Kind(err) != errs.KindNotFound:
		return err
	}
	f.configSum = hex.EncodeToString(sum.Sum(nil))
	for key, value := range overrides {
		values[key] = plain(value)
	}
	if f.Config.Has("model_file") {
		return errs.NotImplemented("config.json: model_file: this model brings its own Python code, which axlm does not run")
	}
	f.ModelType, err = f.Config.String("model_type")
	return err
}

// readWeights reads the headers of the weight files and merges their tables.
// The rule is mlx_lm's: every model*.safetensors counts, in the order in which
// the file system lists them, and where two hold a name the last one does. The
// index decides nothing; it may be left over from other files.
func (f *Folder) readWeights() error {
	names, err := weightFiles(f.Dir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errs.NotFound("no model*.safetensors in %s", f.Dir)
	}
	f.Files = names
	f.files = make(map[string]fileInfo, len(names))
	f.Tensors = map[string]Tensor{}
	for _, name := range names {
		tensors, info, err := readHeader(f.Dir, name)
		if err != nil {
			return err
		}
		f.files[name] = info
		for _, t := range tensors {
			f.Tensors[t.Name] = t
		}
	}
	f.source = f.Tensors
	return nil
}

// weightFiles lists model*.safetensors in dir, unsorted as the file system does.
func weightFiles(dir string) ([]string, error) {
	list, err := os.Open(dir)
	if err != nil {
		return nil, errs.OS("listing %s: %w", dir, err)
	}
	defer list.Close()
	entries, err := list.Readdirnames(-1)
	if err != nil {
		return nil, errs.OS("listing %s: %w", dir, err)
	}
	var names []string
	for _, name := range entries {
		if strings.HasPrefix(name, weightsPrefix) && strings.HasSuffix(name, weightsSuffix) {
			names = append(names, name)
		}
	}
	return names, nil
}

// WithTensors is the folder with another table, that of weights which were
// changed in memory. They have mlx_lm's names and are in no file.
func (f *Folder) WithTensors(table map[string]Tensor) *Folder {
	changed := *f
	changed.Tensors, changed.source = table, table
	changed.Files, changed.files = nil, nil
	return &changed
}

// Has reports whether the table holds a tensor of that name.
func (f *Folder) Has(name string) bool {
	_, ok := f.Tensors[name]
	return ok
}

// Names are the table's names in order.
func (f *Folder) Names() []string {
	names := make([]string, 0, len(f.Tensors))
	for name := range f.Tensors {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Bytes is the size of all tensors in the table.
func (f *Folder) Bytes() int64 {
	var total int64
	for _, t := range f.Tensors {
		total += t.Length
	}
	return total
}

// Path is the place of a weight file of the folder.
func (f *Folder) Path(file string) string { return filepath.Join(f.Dir, file) }

// Rename replaces each name in the table by what rename returns for it, and
// drops the tensors for which it returns false. A tensor's Source keeps the
// name in its file. Two tensors that come to share a name are an error.
func (f *Folder) Rename(rename func(name string) (string, bool)) error {
	renamed := make(map[string]Tensor, len(f.Tensors))
	for _, old := range f.Names() {
		name, keep := rename(old)
		if !keep {
			continue
		}
		if other, taken := renamed[name]; taken {
			return errs.Value("tensors %s and %s both stand for %s", other.Source, f.Tensors[old].Source, name)
		}
		t := f.Tensors[old]
		t.Name = name
		renamed[name] = t
	}
	f.Tensors = renamed
	return nil
}

// checkLayers looks at the number of layers wherever config.json gives one.
func (f *Folder) checkLayers() error {
	text, err := f.Config.Map("text_config")
	if err != nil {
		return err
	}
	for _, c := range []*Config{f.Config, text} {
		if c.Has("num_hidden_layers") {
			if _, err := f.Layers(c, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// Layers reads num_hidden_layers from c, the top level or a sub-object, or
// takes fallback. More layers than there are tensors cannot be; finding that
// here keeps a wrong number from being allocated for.
func (f *Folder) Layers(c *Config, fallback int) (int, error) {
	const key = "num_hidden_layers"
	n, err := c.CountDefault(key, fallback)
	if err != nil {
		return 0, err
	}
	if n > len(f.source) {
		return 0, errs.Value("%s: %d layers, but the folder holds only %d tensors", c.where(key), n, len(f.source))
	}
	return n, nil
}
