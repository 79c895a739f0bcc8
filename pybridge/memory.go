package pybridge

import (
	"fmt"

	"axlm/mlxc"
)

// Memory tells what MLX's allocator holds, as JSON: {"active", "peak",
// "cache"} in bytes.
func Memory() (string, error) {
	return call(func() (string, error) {
		return toJSON(map[string]int{"active": mlxc.ActiveMemory(), "peak": mlxc.PeakMemory(), "cache": mlxc.CacheMemory()})
	})
}

// PeakMemory is the most bytes that were in use at a time.
func PeakMemory() int { return mlxc.PeakMemory() }

// ResetPeak makes the present use the peak.
func ResetPeak() (int, error) {
	return call(func() (int, error) { return 0, mlxc.ResetPeakMemory() })
}

// ClearCache gives freed buffers back to the system.
func ClearCache() (int, error) {
	return call(func() (int, error) { return 0, mlxc.ClearCache() })
}

// SetWiredLimit sets how many bytes may stay wired and returns what it was.
func SetWiredLimit(bytes int) (int, error) {
	return call(func() (int, error) { return mlxc.SetWiredLimit(bytes) })
}

// ArrayProbe describes, as JSON, the array whose C++ object lies at address:
// {"shape", "dtype", "data"}, data being its address. The face checks with it,
// once, that it reads the layout of Python's arrays rightly.
func ArrayProbe(address int) (string, error) {
	return call(func() (string, error) {
		a := mlxc.ArrayAt(uintptr(address))
		if !a.Valid() {
			return "", fmt.Errorf("reading the array at an address: none there")
		}
		defer a.Free()
		return toJSON(map[string]any{"shape": a.Shape(), "dtype": a.DType().String(), "data": uint64(uintptr(a.DataPtr()))})
	})
}

// ArrayForget assigns a zero to the C++ array at address: the array that the
// face has copied from there need not stay in memory.
func ArrayForget(address int) (int, error) {
	return call(func() (int, error) { return 0, mlxc.ForgetArrayAt(uintptr(address)) })
}

// SetKvBytes bounds what the requests' caches take together; 0 leaves that to
// the core.
func SetKvBytes(bytes int) (int, error) {
	return call(func() (int, error) {
		e, err := running()
		if err != nil {
			return 0, err
		}
		return 0, e.SetKVBytes(bytes)
	})
}
