package mlxc

import (
	"fmt"
	"unsafe"
)

// DeviceType is the kind of a device.
type DeviceType int32

// The kinds of devices.
const (
	CPU DeviceType = iota
	GPU
)

// String returns "cpu" or "gpu".
func (t DeviceType) String() string {
	if t == GPU {
		return "gpu"
	}
	return "cpu"
}

// Device names a device.
type Device struct {
	Type  DeviceType
	Index int
}

// String returns the kind and number, as in "gpu:0".
func (d Device) String() string { return fmt.Sprintf("%s:%d", d.Type, d.Index) }

// with makes a C device for the length of a call.
func (d Device) with(lib *library, use func(device uintptr) error) error {
	if d.Type != CPU && d.Type != GPU { // mlx-c does not check
		return fmt.Errorf("there is no device of type %d", d.Type)
	}
	device, err := lib.create(&lib.c.mlx_device_new_type, uintptr(d.Type), uintptr(d.Index))
	if err != nil {
		return fmt.Errorf("device %s: %w", d, err)
	}
	defer lib.call(&lib.c.mlx_device_free, device)
	if err := use(device); err != nil {
		return fmt.Errorf("device %s: %w", d, err)
	}
	return nil
}

// goDevice reads a C device and frees it.
func goDevice(lib *library, device uintptr) (Device, error) {
	defer lib.call(&lib.c.mlx_device_free, device)
	var kind, index int32
	if err := lib.check(&lib.c.mlx_device_get_type, uintptr(unsafe.Pointer(&kind)), device); err != nil {
		return Device{}, err
	}
	if err := lib.check(&lib.c.mlx_device_get_index, uintptr(unsafe.Pointer(&index)), device); err != nil {
		return Device{}, err
	}
	return Device{DeviceType(kind), int(index)}, nil
}

// DefaultDevice returns the device MLX uses when none is named: the GPU if there is one.
func DefaultDevice() (Device, error) {
	lib, err := loaded()
	if err != nil {
		return Device{}, err
	}
	var device uintptr
	if err := lib.check(&lib.c.mlx_get_default_device, uintptr(unsafe.Pointer(&device))); err != nil {
		return Device{}, err
	}
	return goDevice(lib, device)
}

// SetDefaultDevice sets the device MLX uses when none is named.
func SetDefaultDevice(d Device) error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	return d.with(lib, func(device uintptr) error { return lib.check(&lib.c.mlx_set_default_device, device) })
}

// Available tells whether the device exists.
func (d Device) Available() bool {
	lib, err := loaded()
	if err != nil {
		return false
	}
	var available bool
	err = d.with(lib, func(device uintptr) error {
		return lib.check(&lib.c.mlx_device_is_available, uintptr(unsafe.Pointer(&available)), device)
	})
	return err == nil && available
}

// GPUAvailable tells whether MLX has a GPU to work on.
func GPUAvailable() bool { return Device{Type: GPU}.Available() }

// MetalAvailable tells whether this MLX has a working Metal backend.
func MetalAvailable() bool {
	return available(func(s *symbols) *function { return &s.mlx_metal_is_available })
}

// CUDAAvailable tells whether this MLX has a working CUDA backend.
func CUDAAvailable() bool {
	return available(func(s *symbols) *function { return &s.mlx_cuda_is_available })
}

func available(f func(*symbols) *function) bool {
	lib, err := loaded()
	if err != nil {
		return false
	}
	var yes bool
	err = lib.check(f(&lib.c), uintptr(unsafe.Pointer(&yes)))
	return err == nil && yes
}

// DeviceInfo returns what the backend knows of a device, such as "device_name" (string) and "memory_size" (int,
// bytes). The keys differ between backends.
func DeviceInfo(d Device) (map[string]any, error) {
	lib, err := loaded()
	if err != nil {
		return nil, err
	}
	var info uintptr
	err = d.with(lib, func(device uintptr) error {
		return lib.check(&lib.c.mlx_device_info_get, uintptr(unsafe.Pointer(&info)), device)
	})
	if err != nil {
		return nil, err
	}
	defer lib.call(&lib.c.mlx_device_info_free, info)
	var keys uintptr
	if err := lib.check(&lib.c.mlx_device_info_get_keys, uintptr(unsafe.Pointer(&keys)), info); err != nil {
		return nil, err
	}
	defer lib.call(&lib.c.mlx_vector_string_free, keys)
	values := map[string]any{}
	for i := range lib.call(&lib.c.mlx_vector_string_size, keys) {
		var key, text, number uintptr
		if err := lib.check(&lib.c.mlx_vector_string_get, uintptr(unsafe.Pointer(&key)), keys, i); err != nil {
			return nil, err
		}
		// A lookup of the other type than the value's is neither a value nor an error.
		if lib.call(&lib.c.mlx_device_info_get_string, uintptr(unsafe.Pointer(&text)), info, key) == 0 {
			values[goString(key)] = goString(text)
		} else if lib.call(&lib.c.mlx_device_info_get_size, uintptr(unsafe.Pointer(&number)), info, key) == 0 {
			values[goString(key)] = int(number)
		}
	}
	return values, nil
}

// Stream is an order of execution on a device. It belongs to the OS thread that made it.
type Stream struct {
	ctx uintptr
}

// Valid tells whether s is a stream.
func (st Stream) Valid() bool { return st.ctx != 0 }

// NewStream makes a stream for the calling thread.
func NewStream(d Device) (Stream, error) {
	lib, err := loaded()
	if err != nil {
		return Stream{}, err
	}
	var stream Stream
	err = d.with(lib, func(device uintptr) (err error) {
		stream.ctx, err = lib.create(&lib.c.mlx_stream_new_device, device)
		return err
	})
	return stream, err
}

// DefaultStream returns the calling thread's own stream of a device.
func DefaultStream(d Device) (Stream, error) {
	lib, err := loaded()
	if err != nil {
		return Stream{}, err
	}
	var stream Stream
	err = d.with(lib, func(device uintptr) error {
		return lib.check(&lib.c.mlx_get_default_stream, uintptr(unsafe.Pointer(&stream)), device)
	})
	return stream, err
}

// SetDefaultStream makes a stream the calling thread's default on its device.
func SetDefaultStream(st Stream) error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	return lib.check(&lib.c.mlx_set_default_stream, st.ctx)
}

// Device returns the device of the stream.
func (st Stream) Device() (Device, error) {
	lib, err := loaded()
	if err != nil {
		return Device{}, err
	}
	var device uintptr
	if err := lib.check(&lib.c.mlx_stream_get_device, uintptr(unsafe.Pointer(&device)), st.ctx); err != nil {
		return Device{}, err
	}
	return goDevice(lib, device)
}

// Synchronize waits until the stream has done all its work.
func (st Stream) Synchronize() error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	return lib.check(&lib.c.mlx_synchronize, st.ctx)
}

// Free releases the handle; MLX keeps the stream itself until its thread ends.
func (st Stream) Free() {
	if lib := current.lib.Load(); lib != nil && st.ctx != 0 {
		lib.call(&lib.c.mlx_stream_free, st.ctx)
	}
}
