package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	"axlm/gocore/errs"
)

// StaleError says that a manifest describes an earlier state of its folder. It
// is to be made again, where a manifest that contradicts the files it was made
// from is to be refused.
type StaleError struct{ What string }

// Error names what has changed.
func (e *StaleError) Error() string { return ManifestFile + " is out of date: " + e.What }

// IsStale reports whether err is or wraps a StaleError.
func IsStale(err error) bool {
	var stale *StaleError
	return errors.As(err, &stale)
}

// Check compares a manifest with its folder. File names must stay in the
// folder, config and headers must be those it was made from (else StaleError),
// and then every statement must be true. Errors are ValueErrors that name the
// file, tensor or key.
func Check(m *Manifest, f *Folder) error {
	if m.Version != ManifestVersion {
		return otherVersion(m.Version)
	}
	if err := checkNames(m, f); err != nil {
		return err
	}
	if err := checkCurrent(m, f); err != nil {
		return errs.With(errs.KindValue, err)
	}
	sizes := map[string]int64{}
	for _, file := range m.Files {
		sizes[file.Name] = file.Size
	}
	for i := range m.Tensors {
		if err := checkRange(&m.Tensors[i], sizes); err != nil {
			return err
		}
	}
	truth, err := BuildManifest(f)
	if err != nil {
		return err
	}
	if err := compareTensors(m, truth); err != nil {
		return err
	}
	return compareRest(m, truth)
}

// Current is the manifest to load a folder with: the one in the folder if it
// is there, current and true, else one made in memory, with note saying why.
// One that lies is an error. A folder opened with overrides is not what its
// manifest describes, so there it is always made.
func Current(f *Folder) (m *Manifest, note string, err error) {
	if f.overridden {
		note = "the configuration was changed at load"
	} else {
		if m, err = ReadManifest(f.Dir); err == nil {
			err = Check(m, f)
		}
		switch {
		case err == nil:
			return m, "", nil
		case IsStale(err):
			note = err.Error()
		case errs.Kind(err) == errs.KindNotFound:
			note = "there is no " + ManifestFile
		default:
			return nil, "", err
		}
	}
	m, err = BuildManifest(f)
	return m, note, err
}

func otherVersion(version int) error {
	what := fmt.Sprintf("schema_version is %d, this axlm uses %d", version, ManifestVersion)
	return errs.With(errs.KindValue, &StaleError{What: what})
}

func lie(format string, args ...any) error {
	return errs.Value("%s: %w", ManifestFile, fmt.Errorf(format, args...))
}

// checkNames keeps the manifest from reaching out of its folder.
func checkNames(m *Manifest, f *Folder) error {
	listed := map[string]bool{}
	for _, file := range m.Files {
		if !plainName(file.Name) {
			return lie("file %q is not a name within the folder", file.Name)
		}
		if listed[file.Name] {
			return lie("file %q is listed twice", file.Name)
		}
		listed[file.Name] = true
		if err := checkInside(f.Dir, file.Name); err != nil {
			return err
		}
	}
	for _, t := range m.Tensors {
		if !plainName(t.File) {
			return lie("tensor %s: file %q is not a name within the folder", t.Name, t.File)
		}
		if !listed[t.File] {
			return lie("tensor %s: file %q is not among the files", t.Name, t.File)
		}
	}
	return nil
}

// checkInside refuses a link that leads out of the folder. A hub cache's
// snapshot, whose files are links to ../../blobs, is whole with its blobs. A
// file that does not exist is left to the comparison with the folder.
func checkInside(dir, name string) error {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return errs.OS("%w", err)
	}
	if root, err = filepath.Abs(root); err != nil {
		return errs.OS("%w", err)
	}
	target, err := filepath.EvalSymlinks(filepath.Join(root, name))
	if err != nil {
		return nil
	}
	roots := []string{root}
	if snapshots := filepath.Dir(root); filepath.Base(snapshots) == "snapshots" {
		roots = append(roots, filepath.Join(filepath.Dir(snapshots), "blobs"))
	}
	for _, root := range roots {
		if strings.HasPrefix(target, root+string(filepath.Separator)) {
			return nil
		}
	}
	return lie("file %q is a link that leaves the folder, to %s", name, target)
}

func checkCurrent(m *Manifest, f *Folder) error {
	if m.ConfigHash != f.configSum {
		return &StaleError{What: configFile + " or " + generationFile + " has changed"}
	}
	listed := map[string]bool{}
	for _, file := range m.Files {
		listed[file.Name] = true
		have, ok := f.files[file.Name]
		switch {
		case !ok:
			return &StaleError{What: file.Name + " is gone"}
		case have.size != file.Size:
			return &StaleError{What: fmt.Sprintf("%s has %d bytes, not %d", file.Name, have.size, file.Size)}
		case have.headerHash != file.HeaderHash:
			return &StaleError{What: "the header of " + file.Name + " has changed"}
		}
	}
	for _, name := range f.Files {
		if !listed[name] {
			return &StaleError{What: name + " is new"}
		}
	}
	return nil
}

func checkRange(t *ManifestTensor, sizes map[string]int64) error {
	if size := sizes[t.File]; t.Offset < 0 || t.Length < 0 || t.Offset > size || t.Length > size-t.Offset {
		return lie("tensor %s: offset %d and length %d lie outside %s, which has %d bytes",
			t.Name, t.Offset, t.Length, t.File, size)
	}
	return nil
}

// compareTensors compares entry by entry, so that a difference names its tensor.
func compareTensors(m, truth *Manifest) error {
	real := map[string]*ManifestTensor{}
	for i := range truth.Tensors {
		real[truth.Tensors[i].Name] = &truth.Tensors[i]
	}
	for i := range m.Tensors {
		t := &m.Tensors[i]
		want, ok := real[t.Name]
		if !ok {
			return lie("tensor %s is listed twice, or no file holds it", t.Name)
		}
		delete(real, t.Name)
		if reflect.DeepEqual(t, want) {
			continue // spares most entries the way through JSON
		}
		if where, have, is := difference("", generic(t), generic(want)); where != "" {
			return lie("tensor %s: %s is %s, not %s", t.Name, where, show(is), show(have))
		}
	}
	for i := range truth.Tensors {
		if name := truth.Tensors[i].Name; real[name] != nil {
			return lie("tensor %s is not listed", name)
		}
	}
	return nil
}

func compareRest(m, truth *Manifest) error {
	mine, real := *m, *truth
	mine.Tensors, real.Tensors, mine.Files, real.Files = nil, nil, nil, nil
	if where, have, is := difference("", generic(mine), generic(real)); where != "" {
		return lie("%s is %s, not %s", where, show(is), show(have))
	}
	return nil
}

// generic is value as JSON sees it.
func generic(value any) any {
	var out any
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return err.Error()
	}
	return out
}

// difference finds the first place where two JSON values differ; "" if none.
func difference(path string, a, b any) (where string, left, right any) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		for _, key := range sortedKeys(x, y) {
			if where, l, r := difference(join(path, key), x[key], y[key]); where != "" {
				return where, l, r
			}
		}
		return "", nil, nil
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			if where, l, r := difference(fmt.Sprintf("%s[%d]", path, i), x[i], y[i]); where != "" {
				return where, l, r
			}
		}
		return "", nil, nil
	default:
		if _, isMap := b.(map[string]any); isMap {
			break
		}
		if _, isList := b.([]any); !isList && a == b {
			return "", nil, nil
		}
	}
	return path, a, b
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func sortedKeys(a, b map[string]any) []string {
	var keys []string
	for key := range a {
		keys = append(keys, key)
	}
	for key := range b {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return slices.Compact(keys)
}
