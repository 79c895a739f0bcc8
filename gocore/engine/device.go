package engine

import (
	"fmt"

	"axlm/mlxc"
)

// Device describes what MLX runs on.
type Device struct {
	Kind       string // "cpu", "metal" or "cuda"
	Name       string // as MLX reports it, may be empty
	Memory     int    // bytes, 0 when not reported
	WorkingSet int    // recommended bytes to keep wired, 0 when not reported
}

// openDevice picks the GPU where there is one and makes the engine's stream.
// The calling thread owns the stream, and has it for its default on that device;
// the process's default device is the user's.
func openDevice() (Device, mlxc.Stream, error) {
	kind, mlxDevice := "cpu", mlxc.Device{Type: mlxc.CPU}
	switch {
	case mlxc.MetalAvailable():
		kind, mlxDevice = "metal", mlxc.Device{Type: mlxc.GPU}
	case mlxc.CUDAAvailable():
		kind, mlxDevice = "cuda", mlxc.Device{Type: mlxc.GPU}
	}
	stream, err := mlxc.NewStream(mlxDevice)
	if err != nil {
		return Device{}, mlxc.Stream{}, fmt.Errorf("making a stream on the %s device: %w", kind, err)
	}
	if err := mlxc.SetDefaultStream(stream); err != nil {
		return Device{}, mlxc.Stream{}, fmt.Errorf("making the %s stream the default: %w", kind, err)
	}
	d := Device{Kind: kind}
	// Not every backend reports; what is missing stays zero.
	if info, err := mlxc.DeviceInfo(mlxDevice); err == nil {
		d.Name, _ = info["device_name"].(string)
		d.Memory, _ = info["memory_size"].(int)
		d.WorkingSet, _ = info["max_recommended_working_set_size"].(int)
	}
	return d, stream, nil
}
