package weights

import (
	"strconv"
	"strings"
)

// Parts finds a folder's modules by role, as its manifest has them.
type Parts struct {
	paths  map[place]string // in the folder's table
	family string
}

// Parts looks up m's roles for the table as it now is.
func (f *Folder) Parts(m *Manifest) *Parts {
	p := &Parts{paths: map[place]string{}, family: Family(f.ModelType)}
	places := make(map[string]place, len(m.Tensors))
	for i := range m.Tensors {
		t := &m.Tensors[i]
		path, _ := SplitName(t.Name)
		places[t.Name] = place{t.Role, t.Layer, placeOf(path).expert}
	}
	for name, t := range f.Tensors {
		path, _ := SplitName(name)
		at, known := places[t.Source]
		// Of several paths in one place the first by name is kept, so that the
		// answer does not depend on map order; the others stay unused, and the
		// claims tell.
		if have, taken := p.paths[at]; known && at.role != RoleOther && (!taken || path < have) {
			p.paths[at] = path
		}
	}
	return p
}

// Has reports whether the folder has the module.
func (p *Parts) Has(layer int, role Role) bool {
	_, ok := p.paths[place{role, layer, noExpert}]
	return ok
}

// HasExpert is Has for one expert's module, stored by itself.
func (p *Parts) HasExpert(layer int, role Role, expert int) bool {
	_, ok := p.paths[place{role, layer, expert}]
	return ok
}

// Path is the module's path in the table; where the folder has none, the one
// that mlx_lm would give it, for the error that names it. layer is NoLayer for
// what belongs to the whole model.
func (p *Parts) Path(layer int, role Role) string {
	if path, ok := p.paths[place{role, layer, noExpert}]; ok {
		return path
	}
	prefix := families[p.family].prefix
	if layer == NoLayer {
		return prefix + modelNames[role]
	}
	name := layerNames[role]
	if other, ok := gemma4Names[role]; ok && strings.HasPrefix(p.family, "gemma4") {
		name = other
	}
	return prefix + "model.layers." + strconv.Itoa(layer) + "." + name
}

// ExpertPath is Path for one expert's module, stored by itself.
func (p *Parts) ExpertPath(layer int, role Role, expert int) string {
	if path, ok := p.paths[place{role, layer, expert}]; ok {
		return path
	}
	name := ""
	for module, of := range expertRoles {
		if of == role {
			name = module
		}
	}
	at := families[p.family].prefix + "model.layers." + strconv.Itoa(layer) + ".mlp.experts."
	return at + strconv.Itoa(expert) + "." + name
}
