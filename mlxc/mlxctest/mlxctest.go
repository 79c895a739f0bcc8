// Package mlxctest is what tests that compute with MLX share.
package mlxctest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"axlm/mlxc"
)

// Main loads the library under test and runs the tests. Without a library there
// is nothing to test, which must not look like success.
func Main(m *testing.M) {
	libmlxc := os.Getenv("AXLM_MLXC")
	if libmlxc == "" {
		fmt.Fprintln(os.Stderr, "set AXLM_MLXC (and AXLM_LIBMLX) to the libraries, as `make test` does")
		os.Exit(1)
	}
	if err := mlxc.Load(os.Getenv("AXLM_LIBMLX"), libmlxc); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// NewScope makes a scope on a stream of the test's own thread, which ends with
// the test: streams belong to threads. AXLM_TEST_DEVICE=gpu puts it on the GPU.
func NewScope(t *testing.T) *mlxc.Scope {
	t.Helper()
	runtime.LockOSThread()
	device := mlxc.Device{Type: mlxc.CPU}
	if os.Getenv("AXLM_TEST_DEVICE") == "gpu" {
		device.Type = mlxc.GPU
	}
	stream, err := mlxc.NewStream(device)
	if err != nil {
		t.Fatal(err)
	}
	s := mlxc.NewScope(stream)
	t.Cleanup(func() { s.Close(); stream.Free() })
	return s
}
