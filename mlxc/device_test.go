package mlxc

import (
	"runtime"
	"testing"
)

func TestDevicesAndStreams(t *testing.T) {
	runtime.LockOSThread()
	cpu := Device{Type: CPU}
	if !cpu.Available() || cpu.String() != "cpu:0" || (Device{GPU, 1}).String() != "gpu:1" {
		t.Error("there is no CPU")
	}
	before, err := DefaultDevice()
	if err != nil {
		t.Fatal(err)
	}
	if (before.Type == GPU) != GPUAvailable() {
		t.Errorf("the default device is %v, GPU available: %v", before, GPUAvailable())
	}
	if err := SetDefaultDevice(cpu); err != nil {
		t.Fatal(err)
	}
	if now, err := DefaultDevice(); err != nil || now != cpu {
		t.Errorf("set %v, got %v, %v", cpu, now, err)
	}
	if err := SetDefaultDevice(before); err != nil {
		t.Fatal(err)
	}
	own, err := NewStream(cpu)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Free()
	if d, err := own.Device(); err != nil || d != cpu {
		t.Errorf("the stream is on %v, %v", d, err)
	}
	if err := SetDefaultStream(own); err != nil {
		t.Error(err)
	}
	s := NewScope(own)
	defer s.Close()
	a := s.Exp(s.Zeros(Float32, 4))
	if err := AsyncEval(a); err != nil {
		t.Fatal(err)
	}
	if err := own.Synchronize(); err != nil {
		t.Error(err)
	}
	if s.Stream() != own {
		t.Error("the scope has another stream")
	}
	if !GPUAvailable() {
		if _, err := NewStream(Device{Type: GPU}); err == nil {
			t.Error("made a stream on a GPU that is not there")
		}
	}
	if err := (Stream{}).Synchronize(); err == nil {
		t.Error("synchronized no stream")
	}
	if _, err := NewStream(Device{Type: 7}); err == nil {
		t.Error("made a stream on a device that cannot be")
	}
}

func TestDeviceInfo(t *testing.T) {
	info, err := DeviceInfo(Device{Type: CPU})
	if err != nil {
		t.Fatal(err)
	}
	if name, ok := info["device_name"].(string); !ok || name == "" {
		t.Errorf("got %v", info)
	}
	if !GPUAvailable() {
		return
	}
	info, err = DeviceInfo(Device{Type: GPU})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"total_memory", "memory_size"} {
		if bytes, ok := info[key].(int); ok && bytes > 0 {
			return
		}
	}
	t.Errorf("the GPU's memory is not among %v", info)
}

func TestMemoryCounters(t *testing.T) {
	s := newScope(t)
	if err := ClearCache(); err != nil || CacheMemory() != 0 {
		t.Errorf("the cache still holds %d bytes, %v", CacheMemory(), err)
	}
	before := ActiveMemory()
	if err := ResetPeakMemory(); err != nil {
		t.Fatal(err)
	}
	a := s.FromFloat32s(make([]float32, 1<<18))
	if got := ActiveMemory() - before; got < 1<<20 {
		t.Errorf("1 MiB counts as %d bytes", got)
	}
	s.Release(a)
	cached := CacheMemory() // nothing where MLX keeps no buffers: on the CPU before 0.32
	if ActiveMemory() != before || PeakMemory() < before+1<<20 || cached != 0 && cached < 1<<20 {
		t.Errorf("after freeing: active %d (before %d), peak %d, cached %d", ActiveMemory(), before, PeakMemory(), cached)
	}
}

func TestLimits(t *testing.T) {
	for name, set := range map[string]func(int) (int, error){
		"wired": SetWiredLimit,
	} {
		previous, err := set(64 << 20)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := set(previous)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again != 64<<20 && again != 0 { // 0 where the backend has no such limit
			t.Errorf("%s: set %d, then found %d", name, 64<<20, again)
		}
	}
}
