package weights

import (
	"fmt"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
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

// absentShards says for a message which files of a numbered set, such as
// model-00002-of-00003.safetensors, are not there; "" where none is numbered.
func (f *Folder) absentShards() string {
	there := map[string]bool{}
	for _, file := range f.Files {
		there[file] = true
	}
	for _, file := range f.Files {
		m := shardName.FindStringSubmatch(file)
		if m == nil {
			continue
		}
		total, err := strconv.Atoi(m[3])
		if err != nil || total > len(f.source)+len(f.Files) {
			continue // no model has more files than tensors
		}
		var absent []string
		for i := 1; i <= total; i++ {
			name := fmt.Sprintf("%s%0*d-of-%s%s", m[1], len(m[2]), i, m[3], weightsSuffix)
			if !there[name] {
				absent = append(absent, name)
			}
		}
		if len(absent) > 0 {
			return "; of its files, these are not there: " + some(absent, len(absent))
		}
	}
	return ""
}

// shardName is a file of a set: prefix, number, how many there are.
var shardName = regexp.MustCompile(`^(.*-)(\d+)-of-(\d+)\.safetensors$`)
