package mlxc

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"
)

// KernelSource describes a custom kernel. MLX wraps the body in a function whose parameters are the inputs and
// outputs by name, and compiles it when it is first evaluated.
type KernelSource struct {
	Name            string
	Inputs, Outputs []string
	Source          string // the function's body
	Header          string // what precedes the function
	AnyLayout       bool   // inputs may lie in any order; otherwise MLX makes them row-major
	AtomicOutputs   bool   // Metal: outputs are atomic
	SharedMemory    int    // CUDA: bytes of dynamic shared memory
}

// KernelLaunch describes one way of running a kernel.
type KernelLaunch struct {
	Grid, ThreadGroup [3]int // threads in all, and in a group
	Outputs           []KernelOutput
	Template          []TemplateArg
	InitValue         *float32 // what the outputs hold before, if anything
	Verbose           bool     // print the generated source
}

// KernelOutput is an output's shape and type.
type KernelOutput struct {
	Shape []int
	DType DType
}

// TemplateArg is a constant of the kernel: an int, a bool or a DType.
type TemplateArg struct {
	Name  string
	Value any
}

// Kernel is a custom kernel.
type Kernel struct {
	lib    *library
	c      *kernelSymbols
	name   string
	handle uintptr
}

// BoundKernel is a kernel with its launch, ready to be applied many times.
type BoundKernel struct {
	kernel *Kernel
	config uintptr
}

// MetalKernelAvailable tells whether kernels of NewMetalKernel can run.
func MetalKernelAvailable() bool {
	return MetalAvailable() && GPUAvailable() && current.lib.Load().c.metal._new.addr != 0
}

// CUDAKernelAvailable tells whether kernels of NewCUDAKernel can run.
func CUDAKernelAvailable() bool {
	return CUDAAvailable() && GPUAvailable() && current.lib.Load().c.cuda._new.addr != 0
}

// NewMetalKernel makes a kernel of Metal source.
func NewMetalKernel(source KernelSource) (*Kernel, error) {
	lib, err := loaded()
	if err != nil {
		return nil, err
	}
	return newKernel(lib, &lib.c.metal, source, boolWord(source.AtomicOutputs))
}

// NewCUDAKernel makes a kernel of CUDA source.
func NewCUDAKernel(source KernelSource) (*Kernel, error) {
	lib, err := loaded()
	if err != nil {
		return nil, err
	}
	return newKernel(lib, &lib.c.cuda, source, uintptr(int32(source.SharedMemory)))
}

func newKernel(lib *library, c *kernelSymbols, source KernelSource, last uintptr) (*Kernel, error) {
	fail := func(err error) (*Kernel, error) {
		return nil, fmt.Errorf("kernel %s: %w", source.Name, err)
	}
	inputs, err := lib.stringVector(source.Inputs)
	if err != nil {
		return fail(err)
	}
	defer lib.call(&lib.c.mlx_vector_string_free, inputs)
	outputs, err := lib.stringVector(source.Outputs)
	if err != nil {
		return fail(err)
	}
	defer lib.call(&lib.c.mlx_vector_string_free, outputs)
	name, body, header := cString(source.Name), cString(source.Source), cString(source.Header)
	handle, err := lib.create(&c._new, uintptr(unsafe.Pointer(&name[0])), inputs, outputs,
		uintptr(unsafe.Pointer(&body[0])), uintptr(unsafe.Pointer(&header[0])), boolWord(!source.AnyLayout), last)
	if err != nil {
		return fail(err)
	}
	return &Kernel{lib: lib, c: c, name: source.Name, handle: handle}, nil
}

// stringVector makes a C++ vector of strings.
func (l *library) stringVector(values []string) (uintptr, error) {
	// C reads the addresses out of a list, where the garbage collector does not see them: texts keeps them alive.
	texts := make([][]byte, len(values))
	addresses := make([]uintptr, len(values)+1)
	for i, v := range values {
		texts[i] = cString(v)
		addresses[i] = uintptr(unsafe.Pointer(&texts[i][0]))
	}
	vector, err := l.create(&l.c.mlx_vector_string_new_data,
		uintptr(unsafe.Pointer(&addresses[0])), uintptr(len(values)))
	runtime.KeepAlive(texts)
	return vector, err
}

// Free releases the kernel; what was bound to it must have been freed.
func (k *Kernel) Free() {
	if k.handle != 0 {
		k.lib.call(&k.c._free, k.handle)
		k.handle = 0
	}
}

// Bind prepares a launch.
func (k *Kernel) Bind(launch KernelLaunch) (*BoundKernel, error) {
	config, err := k.lib.create(&k.c._config_new)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", k.name, err)
	}
	if err := k.configure(config, launch); err != nil {
		k.lib.call(&k.c._config_free, config)
		return nil, fmt.Errorf("kernel %s: %w", k.name, err)
	}
	return &BoundKernel{kernel: k, config: config}, nil
}

func (k *Kernel) configure(config uintptr, launch KernelLaunch) error {
	lib, c := k.lib, k.c
	for _, dims := range []struct {
		set    *function
		values [3]int
	}{{&c._config_set_grid, launch.Grid}, {&c._config_set_thread_group, launch.ThreadGroup}} {
		x, y, z := dims.values[0], dims.values[1], dims.values[2]
		err := lib.check(dims.set, config, uintptr(int32(x)), uintptr(int32(y)), uintptr(int32(z)))
		if err != nil {
			return err
		}
	}
	for _, output := range launch.Outputs {
		shape := make([]int32, len(output.Shape), len(output.Shape)+1)
		for i, d := range output.Shape {
			shape[i] = int32(d)
		}
		element, err := output.DType.word()
		if err != nil {
			return err
		}
		err = lib.check(&c._config_add_output_arg, config,
			uintptr(unsafe.Pointer(unsafe.SliceData(shape))), uintptr(len(shape)), element)
		if err != nil {
			return err
		}
	}
	for _, arg := range launch.Template {
		if err := k.addTemplateArg(config, arg); err != nil {
			return fmt.Errorf("template argument %s: %w", arg.Name, err)
		}
	}
	if launch.InitValue != nil {
		value := math.Float64frombits(uint64(floatWord(*launch.InitValue)))
		set := &c._config_set_init_value
		if lib.missing(set) {
			return lib.failure(set.name)
		}
		if int32(set.mixed(config, 0, 0, 0, 0, 0, 0, 0, 0, value, 0, 0)) != 0 {
			return fmt.Errorf("%s failed", set.name)
		}
	}
	return lib.check(&c._config_set_verbose, config, boolWord(launch.Verbose))
}

func (k *Kernel) addTemplateArg(config uintptr, arg TemplateArg) error {
	name := cString(arg.Name)
	add, value := &k.c._config_add_template_arg_int, uintptr(0)
	switch v := arg.Value.(type) {
	case int:
		value = uintptr(int32(v))
	case bool:
		add, value = &k.c._config_add_template_arg_bool, boolWord(v)
	case DType:
		element, err := v.word()
		if err != nil {
			return err
		}
		add, value = &k.c._config_add_template_arg_dtype, element
	default:
		return fmt.Errorf("want an int, a bool or a DType, got %T", arg.Value)
	}
	return k.lib.check(add, config, uintptr(unsafe.Pointer(&name[0])), value)
}

// Free releases the launch.
func (b *BoundKernel) Free() {
	if b.config != 0 {
		b.kernel.lib.call(&b.kernel.c._config_free, b.config)
		b.config = 0
	}
}

// Apply runs a kernel; it returns the outputs. The slice is good until the scope is closed.
func (s *Scope) Apply(b *BoundKernel, in ...Array) []Array {
	if s.err != nil {
		return nil
	}
	if b.config == 0 || b.kernel.handle == 0 {
		s.Fail(errors.New("apply a kernel: it was freed"))
		return nil
	}
	vector := s.vector(b.kernel.name, in)
	if vector == 0 {
		return nil
	}
	s.beginVector()
	s.frame.a[1], s.frame.a[2], s.frame.a[3], s.frame.a[4] = b.kernel.handle, vector, b.config, s.stream.ctx
	failed := s.failed(&b.kernel.c._apply)
	if failed {
		s.fail("kernel "+b.kernel.name, in...)
	}
	result := s.vec
	s.freeVector(vector)
	if failed {
		return nil
	}
	return s.takeVector(result)
}
