package mlxc

import "unsafe"

// ActiveMemory returns the bytes held by living arrays.
func ActiveMemory() int {
	return counter(func(s *symbols) *function { return &s.mlx_get_active_memory })
}

// PeakMemory returns the most bytes held since the start or ResetPeakMemory.
func PeakMemory() int { return counter(func(s *symbols) *function { return &s.mlx_get_peak_memory }) }

// CacheMemory returns the bytes of freed buffers that MLX keeps for reuse.
func CacheMemory() int { return counter(func(s *symbols) *function { return &s.mlx_get_cache_memory }) }

func counter(f func(*symbols) *function) int {
	lib, err := loaded()
	if err != nil {
		return 0
	}
	var bytes uintptr
	if lib.check(f(&lib.c), uintptr(unsafe.Pointer(&bytes))) != nil {
		return 0
	}
	return int(bytes)
}

// ResetPeakMemory starts the peak anew.
func ResetPeakMemory() error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	return lib.check(&lib.c.mlx_reset_peak_memory)
}

// ClearCache returns the buffers kept for reuse to the system.
func ClearCache() error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	return lib.check(&lib.c.mlx_clear_cache)
}

// SetWiredLimit sets the bytes that Metal keeps resident and returns the previous limit. Other backends ignore it.
func SetWiredLimit(bytes int) (previous int, err error) {
	return setLimit(func(s *symbols) *function { return &s.mlx_set_wired_limit }, bytes)
}

func setLimit(f func(*symbols) *function, bytes int) (int, error) {
	lib, err := loaded()
	if err != nil {
		return 0, err
	}
	var previous uintptr
	if err := lib.check(f(&lib.c), uintptr(unsafe.Pointer(&previous)), uintptr(bytes)); err != nil {
		return 0, err
	}
	return int(previous), nil
}
