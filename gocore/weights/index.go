package weights

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"axlm/gocore/errs"
)

// placement is the index's weight_map: tensor name → file name. It decides
// nothing, see readWeights; where tensors are missing it tells where they were.
type placement map[string]string

// placement reads model.safetensors.index.json. One that is not there or cannot
// be read has nothing to tell.
func (f *Folder) placement() placement {
	data, err := readFile(f.Dir, indexFile)
	if err != nil {
		return nil
	}
	path := filepath.Join(f.Dir, indexFile)
	values, err := decodeObject(path, data)
	if err != nil {
		return nil
	}
	weightMap, err := (&Config{file: path, values: values}).Map("weight_map")
	if err != nil {
		return nil
	}
	placed := placement{}
	for _, name := range weightMap.Keys() {
		if file, err := weightMap.String(name); err == nil && plainName(file) {
			placed[name] = file
		}
	}
	return placed
}

// missing makes the error of tensors that no file holds, with what the folder
// tells of the reason: files of its set that are not there (a FileNotFoundError
// if the index names them), or a file that lacks what the index places in it.
// An index none of whose files is there is left over and says nothing.
func (f *Folder) missing(format string, args ...any) error {
	there := map[string]bool{}
	for _, file := range f.Files {
		there[file] = true
	}
	placed := f.placement()
	gone, lost, current := map[string]bool{}, []string{}, false
	for name, file := range placed {
		current = current || there[file]
		if !there[file] {
			gone[file] = true
		}
		if _, held := f.source[name]; !held {
			lost = append(lost, name)
		}
	}
	text := fmt.Sprintf(format, args...)
	switch {
	case current && len(gone) > 0:
		absent := slices.Sorted(maps.Keys(gone))
		return errs.NotFound("%s; of its files, these are not there: %s", text, some(absent, len(absent)))
	case current && len(lost) > 0:
		sort.Strings(lost)
		return errs.Value("%s; %s places tensors that no file holds (%d): %s; the first should be in %s",
			text, indexFile, len(lost), some(lost, len(lost)), placed[lost[0]])
	}
	return errs.Value("%s%s", text, f.absentShards())
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
	for _, file := range slices.Sorted(slices.Values(f.Files)) {
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
