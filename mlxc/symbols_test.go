package mlxc

import (
	"os"
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
	table.each(func(name string, _ bool, _ *function) {
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
	err := table.resolve(func(name string) uintptr {
		if name == "mlx_add" || name == "mlx_fast_cuda_kernel_apply" {
			return 0
		}
		return 1
	})
	if err == nil || err.Error() != "the library lacks mlx_add, mlx_fast_cuda_kernel_apply" {
		t.Errorf("got %v", err)
	}
	if table.mlx_multiply.addr != 1 || table.mlx_multiply.name != "multiply" ||
		table.mlx_multiply.mixed != nil || table.mlx_addmm.mixed == nil || table._mlx_array_is_available.name != "array_is_available" {
		t.Errorf("got %+v", table.mlx_multiply)
	}
}
