package mlxc

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// officialNames are the functions that the headers of mlx-c 0.6.0 declare.
func officialNames(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("testdata/mlx-c-0.6.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name := strings.TrimSpace(line); name != "" && !strings.HasPrefix(name, "#") {
			names[name] = true
		}
	}
	return names
}

func TestOnlyOfficialFunctionsAreRequired(t *testing.T) {
	official := officialNames(t)
	var table symbols
	seen := map[string]bool{}
	table.each(func(name string, _ reflect.StructTag, _ *function) {
		if !official[name] {
			t.Errorf("%s is no function of mlx-c 0.6.0", name)
		}
		if seen[name] {
			t.Errorf("%s is listed twice", name)
		}
		seen[name] = true
	})
	if n := int(unsafe.Sizeof(table) / unsafe.Sizeof(function{})); len(seen) != n {
		t.Errorf("visited %d of %d functions", len(seen), n)
	}
}

func TestMissingFunctionsAreNamed(t *testing.T) {
	var table symbols
	lacking := func(names ...string) error {
		return table.resolve(func(name string) uintptr {
			if slices.Contains(names, name) {
				return 0
			}
			return 1
		})
	}
	if err := lacking("mlx_add", "mlx_array_set", "mlx_eval"); err == nil || err.Error() != "the library lacks mlx_array_set, mlx_eval" {
		t.Errorf("got %v", err)
	}
	table = symbols{}
	if err := lacking("mlx_add", "mlx_addmm", "mlx_fast_cuda_kernel_apply"); err != nil {
		t.Errorf("a library without what is not always called: %v", err)
	}
	if table.mlx_multiply.addr != 1 || table.mlx_multiply.name != "multiply" || table.mlx_multiply.mixed != nil ||
		table.mlx_fast_rope.mixed == nil || table._mlx_array_is_row_contiguous.name != "array_is_row_contiguous" {
		t.Errorf("got %+v", table.mlx_multiply)
	}
	if table.mlx_addmm.mixed != nil || table.mlx_addmm.addr != 0 {
		t.Errorf("a missing function has an address: %+v", table.mlx_addmm)
	}
}

// A function that the library lacks is an error of the call that needs it, and the next call works.
func TestMissingFunctionsFailWhenCalled(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		c := &s.lib.c
		saved := *c
		defer func() { *c = saved }()
		for _, f := range []*function{&c.mlx_add, &c.mlx_addmm, &c.mlx_version, &c.mlx_get_active_memory, &c.mlx_load_safetensors,
			&c.mlx_closure_new_func_payload, &c.mlx_split, &c.mlx_fast_rope, &c.mlx_vector_string_new_data} {
			f.addr, f.mixed = 0, nil
		}
		a := s.Keep(s.FromFloat32s([]float32{1, 2}))
		defer a.Free()
		for symbol, call := range map[string]func() error{
			"mlx_add":   func() error { s.Add(a, a); return s.Err() },
			"mlx_addmm": func() error { s.AddMM(a, a, a, 1, 1); return s.Err() },
			"mlx_split": func() error { s.Split(a, 2, 0); return s.Err() },
			"mlx_load_safetensors": func() error {
				_, _, err := LoadSafetensors("x", s.Stream())
				return err
			},
			"mlx_closure_new_func_payload": func() error { _, err := Compile(swiglu, false); return err },
			"mlx_vector_string_new_data":   func() error { _, err := NewMetalKernel(KernelSource{Inputs: []string{"x"}}); return err },
		} {
			err := call()
			if err == nil || !strings.Contains(err.Error(), " has no "+symbol) || !strings.Contains(err.Error(), LibraryPath()) {
				t.Errorf("%s: got %v", symbol, err)
			}
			s.Reset()
		}
		if Version() != "" || ActiveMemory() != 0 {
			t.Error("what the library does not tell is known")
		}
		sameValues(t, values(t, s, s.Multiply(a, a)), float64s(1, 4))
	})
}
