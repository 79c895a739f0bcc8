package weights

import (
	"path/filepath"
	"sort"
	"strings"

	"axlm/gocore/errs"
)

// placement is the index's weight_map: tensor name → file name. It is empty
// where a folder has no index.
type placement map[string]string

// readIndex reads model.safetensors.index.json if there is one.
func readIndex(dir string) (placement, error) {
	data, err := readFile(dir, indexFile)
	if errs.Kind(err) == errs.KindNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, indexFile)
	values, err := decodeObject(path, data)
	if err != nil {
		return nil, err
	}
	weightMap, err := (&Config{file: path, values: values}).Map("weight_map")
	if err != nil {
		return nil, err
	}
	placed := placement{}
	for _, name := range weightMap.Keys() {
		file, err := weightMap.String(name)
		if err != nil {
			return nil, err
		}
		if !plainName(file) {
			return nil, weightMap.Wrong(name, "the name of a file in the folder")
		}
		placed[name] = file
	}
	return placed, nil
}

// files are the names of the files that the index mentions, sorted.
func (p placement) files() []string {
	seen := map[string]bool{}
	var files []string
	for _, file := range p {
		if !seen[file] {
			seen[file] = true
			files = append(files, file)
		}
	}
	sort.Strings(files)
	return files
}

// check refuses an index that names a tensor which no file holds: then a file
// of the set was cut or exchanged.
func (p placement) check(dir string, tensors map[string]Tensor) error {
	var lost []string
	for name := range p {
		if _, ok := tensors[name]; !ok {
			lost = append(lost, name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	sort.Strings(lost)
	return errs.Value("%s names tensors that no file holds (%d): %s; the first should be in %s",
		filepath.Join(dir, indexFile), len(lost), some(lost, len(lost)), p[lost[0]])
}

// plainName reports whether name is a bare file name: no separator of any
// system, nothing that points elsewhere.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}
