package weights

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"axlm/gocore/errs"
)

const (
	// ManifestFile is the manifest's name within a model folder.
	ManifestFile = "model-manifest.json"
	// ManifestVersion is the schema that this package writes and reads.
	ManifestVersion = 1
)

// Manifest describes a model folder: the model's shape, and each tensor's
// meaning and place. It follows from config.json, generation_config.json and
// the safetensors headers alone, and carries sums of them, by which a stale
// one is known.
type Manifest struct {
	Version int `json:"schema_version"`
	Description
	ConfigHash string           `json:"config_sha256"` // of config.json, then generation_config.json
	Files      []SourceFile     `json:"files"`
	Tensors    []ManifestTensor `json:"tensors"` // by file and place
}

// SourceFile is one weight file. Its header fixes where everything is, so
// size and header stand for the whole.
type SourceFile struct {
	Name       string `json:"name"`
	Size       int64  `json:"size"`
	HeaderHash string `json:"header_sha256"`
}

// ManifestTensor is one tensor, under the name that it has in its file.
type ManifestTensor struct {
	Name         string `json:"name"`
	Role         Role   `json:"role"`
	Part         string `json:"part,omitempty"` // weight, scales, biases, bias; none for an array that stands alone
	Layer        int    `json:"layer"`          // −1: of the whole model
	DType        string `json:"dtype"`
	Shape        []int  `json:"shape"`                  // as stored
	Quantization *Quant `json:"quantization,omitempty"` // of the module that it is part of
	File         string `json:"file"`
	Offset       int64  `json:"offset"` // bytes from the start of the file
	Length       int64  `json:"length"`
}

// BuildManifest makes the manifest of a folder, in memory. It describes the
// files: renaming tensors does not change it.
func BuildManifest(f *Folder) (*Manifest, error) {
	d, err := f.Describe()
	if err != nil {
		return nil, err
	}
	m := &Manifest{Version: ManifestVersion, Description: *d, ConfigHash: f.configSum}
	for _, name := range slices.Sorted(slices.Values(f.Files)) { // whatever order the folder lists them in
		info := f.files[name]
		m.Files = append(m.Files, SourceFile{Name: name, Size: info.size, HeaderHash: info.headerHash})
	}
	quants := map[string]*Quant{}
	m.Tensors = make([]ManifestTensor, 0, len(f.source))
	for _, t := range f.source {
		path, part := SplitName(t.Source)
		role, layer := RoleOf(path)
		entry := ManifestTensor{
			Name: t.Source, Role: role, Part: part, Layer: layer, DType: t.DType, Shape: t.Shape,
			File: t.File, Offset: t.Offset, Length: t.Length,
		}
		if part != "" && part != "bias" {
			if entry.Quantization, err = f.quantOnce(quants, path); err != nil {
				return nil, err
			}
		}
		m.Tensors = append(m.Tensors, entry)
	}
	slices.SortFunc(m.Tensors, func(a, b ManifestTensor) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Name, b.Name))
	})
	return m, nil
}

// quantOnce resolves and checks a module's packing the first time it is asked.
func (f *Folder) quantOnce(known map[string]*Quant, path string) (*Quant, error) {
	if q, ok := known[path]; ok {
		return q, nil
	}
	_, q, err := f.logical(f.source, path)
	if err != nil {
		return nil, err
	}
	known[path] = q
	return q, nil
}

// Write puts the manifest into the folder at dir, whole or not at all. A
// weight file that is a link out of the folder cannot be described.
func (m *Manifest) Write(dir string) error {
	for _, file := range m.Files {
		if err := checkInside(dir, file.Name); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return errs.Internal("manifest: %w", err)
	}
	temp, err := os.CreateTemp(dir, "."+ManifestFile+"-*")
	if err != nil {
		return errs.OS("writing the manifest: %w", err)
	}
	_, err = temp.Write(append(data, '\n'))
	// CreateTemp makes files for their owner alone; a model folder is shared.
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), filepath.Join(dir, ManifestFile))
	}
	if err != nil {
		return errs.OS("writing the manifest: %w", errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// ReadManifest reads the manifest of the folder at dir. Without one the error
// is NotFound; one of another version is a StaleError; one with unknown fields
// or wrong types is a ValueError.
func ReadManifest(dir string) (*Manifest, error) {
	data, err := readFile(dir, ManifestFile)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ManifestFile)
	// Another version may mean something else by every other key.
	value, err := decodeNumbers(path, data)
	if err != nil {
		return nil, err
	}
	if object, ok := value.(map[string]any); ok {
		version, isNumber := object["schema_version"].(json.Number)
		if n, err := strconv.Atoi(version.String()); isNumber && err == nil && n != ManifestVersion {
			return nil, otherVersion(n)
		}
	}
	m := &Manifest{}
	if err := decodeTyped(path, data, value, m); err != nil {
		return nil, err
	}
	if m.Version != ManifestVersion {
		return nil, otherVersion(m.Version) // there is none
	}
	return m, nil
}
