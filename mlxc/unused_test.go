package mlxc

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unused are exported functions that nothing but tests calls, and why they stay.
var unused = map[string]string{
	// What a batched cache and kept prompts are made of.
	"Maximum":         "bounds of rows' positions",
	"Remainder":       "a bounded row's slot: its position modulo the size",
	"SaveSafetensors": "kept prompts on disk",
	"SliceStrided":    "every nth position of a row",
	"View":            "bit patterns of kept elements, as tests compare them",
	// What tests make and read arrays with.
	"AsFloat32s":  "reading",
	"Bools":       "reading",
	"Int32s":      "reading",
	"Int64s":      "reading",
	"Uint8s":      "reading",
	"Ones":        "making",
	"FromUint32s": "making",
	"Log1p":       "a reference for activations",
	"Sin":         "a reference for rotations",
	// What asks for the state of the library.
	"AsError":          "MLX's own failures, told from others by those who embed the package",
	"DefaultDevice":    "what SetDefaultDevice changes",
	"DefaultStream":    "what SetDefaultStream changes",
	"Loaded":           "whether Load has succeeded",
	"SetDefaultDevice": "what chooses the device of a process that embeds the package",
	"Ptr":              "the address that ArrayAt and SetArrayAt take",
}

// TestEveryBindingHasACaller: a function that nothing calls is a promise that nothing keeps. Names alone are compared,
// so one that equals the name of something else passes.
func TestEveryBindingHasACaller(t *testing.T) {
	declared := map[string]string{}
	used := map[string]bool{}
	fields := map[string]bool{}
	files := 0
	visit := func(path string) {
		own := filepath.Dir(path) == "."
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files++
		for _, d := range file.Decls {
			name := ""
			if f, ok := d.(*ast.FuncDecl); ok {
				name = f.Name.Name
				if own && f.Name.IsExported() && name != "String" && name != "Error" { // called through interfaces
					declared[name] = path
				}
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					used[n.Sel.Name] = true
				case *ast.CallExpr:
					if id, ok := n.Fun.(*ast.Ident); ok && own && id.Name != name {
						used[id.Name] = true
					}
				case *ast.StructType:
					for _, f := range n.Fields.List {
						if id, ok := f.Type.(*ast.Ident); ok && own && id.Name == "function" {
							for _, x := range f.Names {
								fields[x.Name] = true
							}
						}
					}
				}
				return true
			})
		}
	}
	for _, root := range []string{".", "../gocore", "../pybridge"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") &&
				!strings.HasPrefix(path, "mlxctest") {
				visit(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 || len(declared) < 50 || len(fields) < 100 {
		t.Fatalf("found %d files, %d functions, %d of C", files, len(declared), len(fields))
	}
	var idle []string
	for name, path := range declared {
		if !used[name] && unused[name] == "" {
			idle = append(idle, path+": "+name)
		}
	}
	for name := range fields {
		if !used[name] {
			idle = append(idle, "symbols.go: "+name)
		}
	}
	slices.Sort(idle)
	for _, x := range idle {
		t.Errorf("%s has no caller", x)
	}
	for name := range unused {
		if declared[name] == "" || used[name] {
			t.Errorf("%s is used, or not there: it needs no exception", name)
		}
	}
}
