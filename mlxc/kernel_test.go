package mlxc

import (
	"strings"
	"testing"
)

const (
	// Both bodies compute out = a·scale (twice that if the constant says so) + b, element by element.
	metalBody = `
		uint i = thread_position_in_grid.x;
		out[i] = T(a[i] * SCALE * (TWICE ? 2 : 1) + b[i]);`
	cudaBody = `
		unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
		if (i < a_shape[0]) {
			out[i] = T(a[i] * SCALE * (TWICE ? 2 : 1) + b[i]);
		}`
)

func kernelSource(body string) KernelSource {
	return KernelSource{Name: "axlm_test_scale_add", Inputs: []string{"a", "b"}, Outputs: []string{"out"}, Source: body}
}

func kernelLaunch(n int) KernelLaunch {
	return KernelLaunch{
		Grid: [3]int{n, 1, 1}, ThreadGroup: [3]int{n, 1, 1},
		Outputs:  []KernelOutput{{Shape: []int{n}, DType: Float32}},
		Template: []TemplateArg{{"SCALE", 3}, {"TWICE", true}, {"T", Float32}},
	}
}

func TestKernels(t *testing.T) {
	for _, c := range []struct {
		name      string
		create    func(KernelSource) (*Kernel, error)
		available bool
		body      string
	}{
		{"metal", NewMetalKernel, MetalKernelAvailable(), metalBody},
		{"cuda", NewCUDAKernel, CUDAKernelAvailable(), cudaBody},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScope(t)
			kernel, err := c.create(kernelSource(c.body))
			if !c.available {
				// Without the backend MLX refuses, at the latest when the kernel is applied.
				if err == nil {
					refuse(t, s, kernel)
				} else if !strings.Contains(err.Error(), "kernel axlm_test_scale_add: ") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer kernel.Free()
			runKernel(t, kernel)
		})
	}
}

func refuse(t *testing.T, s *Scope, kernel *Kernel) {
	defer kernel.Free()
	bound, err := kernel.Bind(kernelLaunch(4))
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Free()
	out := s.Apply(bound, s.Ones(Float32, 4), s.Ones(Float32, 4))
	if s.Err() == nil {
		s.Fail(Eval(out...))
	}
	if s.Err() == nil {
		t.Error("a kernel ran on a backend that is not there")
	}
}

func runKernel(t *testing.T, kernel *Kernel) {
	stream, err := DefaultStream(Device{Type: GPU})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Free()
	s := NewScope(stream)
	defer s.Close()
	const n = 32
	launch := kernelLaunch(n)
	initial := float32(7)
	launch.InitValue = &initial
	bound, err := kernel.Bind(launch)
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Free()
	a, b := noise(n, 1), noise(n, 2)
	want := make([]float64, n)
	for i := range want {
		want[i] = float64(a[i])*6 + float64(b[i])
	}
	for range 2 {
		out := s.Apply(bound, s.FromFloat32s(a), s.FromFloat32s(b))
		if s.Err() != nil || len(out) != 1 {
			t.Fatalf("got %v, %v", out, s.Err())
		}
		sameValues(t, values(t, s, out[0]), want)
	}
	bound.Free()
	if s.Apply(bound, s.FromFloat32s(a), s.FromFloat32s(b)); s.Err() == nil {
		t.Error("applied a launch that was freed")
	}
}

func TestKernelLaunchErrors(t *testing.T) {
	lib := current.lib.Load()
	// A launch can be bound without the backend that would run it.
	kernel := &Kernel{lib: lib, c: &lib.c.cuda, name: "bound"}
	launch := kernelLaunch(4)
	launch.Template = append(launch.Template, TemplateArg{"F", 1.5})
	if _, err := kernel.Bind(launch); err == nil || !strings.Contains(err.Error(), "template argument F: want an int") {
		t.Errorf("got %v", err)
	}
	launch = kernelLaunch(4)
	launch.Outputs[0].DType = AnyDType
	if _, err := kernel.Bind(launch); err == nil {
		t.Error("bound an output without a type")
	}
	bound, err := kernel.Bind(kernelLaunch(4))
	if err != nil {
		t.Fatal(err)
	}
	bound.Free()
	bound.Free()
}
