package nn

import (
	"fmt"
	"hash/fnv"

	"axlm/mlxc"
)

// warpSize is how many threads run in step: CUDA's warp, Metal's simdgroup.
const warpSize = 32

// maxLaunches bounds the launches that a kernel keeps: a prompt's last step may
// have any length.
const maxLaunches = 64

// kernelSource is a kernel of ours: one body for Metal and CUDA, with what
// differs in the headers above it and in the preludes that begin it. One
// without a start for Metal saves launches that are cheap there.
type kernelSource struct {
	name            string
	inputs, outputs []string
	body            string
	anyLayout       bool // reads inputs by their strides
	metal, cuda     kernelStart
}

type kernelStart struct{ header, prelude string }

// gpuKernel is a compiled kernel with the launches it was used with, by what
// they depend on. It belongs to the engine's thread.
type gpuKernel[K comparable] struct {
	kernel   *mlxc.Kernel
	launches map[K]*mlxc.BoundKernel
}

// newGPUKernel makes the kernel for the device that the store loads for; nil
// where that is no GPU. The store frees it.
func newGPUKernel[K comparable](st *Store, k kernelSource) *gpuKernel[K] {
	device, err := st.scope.Stream().Device()
	if err != nil {
		st.Fail(err)
	}
	if err != nil || device.Type != mlxc.GPU {
		return nil
	}
	source := mlxc.KernelSource{Inputs: k.inputs, Outputs: k.outputs, AnyLayout: k.anyLayout}
	build := mlxc.NewMetalKernel
	switch {
	case mlxc.MetalKernelAvailable() && k.metal == kernelStart{}:
		return nil
	case mlxc.MetalKernelAvailable():
		source.Header, source.Source = metalHeader+k.metal.header, k.metal.prelude+k.body
	case mlxc.CUDAKernelAvailable():
		source.Header, source.Source = cudaHeader+k.cuda.header, k.cuda.prelude+k.body
		build = mlxc.NewCUDAKernel
	default:
		return nil
	}
	// MLX keeps compiled kernels by name, on disk too: another source needs
	// another name.
	sum := fnv.New64a()
	sum.Write([]byte(source.Header + source.Source))
	source.Name = fmt.Sprintf("axlm_%s_%016x", k.name, sum.Sum64())
	kernel, err := build(source)
	if err != nil {
		st.Fail(err)
		return nil
	}
	g := &gpuKernel[K]{kernel: kernel, launches: map[K]*mlxc.BoundKernel{}}
	st.onFree(g.free)
	return g
}

// apply runs the kernel with the launch for key, which describe makes when it
// is new. It returns the outputs, or nil after an error.
func (g *gpuKernel[K]) apply(s *mlxc.Scope, key K, describe func(K) mlxc.KernelLaunch, in ...mlxc.Array) []mlxc.Array {
	launch := g.launches[key]
	if launch == nil {
		if len(g.launches) == maxLaunches {
			g.unbind()
		}
		var err error
		if launch, err = g.kernel.Bind(describe(key)); err != nil {
			s.Fail(err)
			return nil
		}
		g.launches[key] = launch
	}
	return s.Apply(launch, in...)
}

func (g *gpuKernel[K]) unbind() {
	for _, launch := range g.launches {
		launch.Free()
	}
	clear(g.launches)
}

func (g *gpuKernel[K]) free() {
	g.unbind()
	g.kernel.Free()
}

// What all bodies use: AXLM_UNROLL before a loop of known length, axlm_sum over
// the Lanes neighbours of a lane, axlm_round to a type's numbers, and functions
// of float32 by one name.

const cudaHeader = `
#define AXLM_UNROLL _Pragma("unroll")

__device__ __forceinline__ float axlm_fma(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ __forceinline__ float axlm_exp(float x) { return ::expf(x); }
__device__ __forceinline__ float axlm_log(float x) { return ::logf(x); }
__device__ __forceinline__ float axlm_rsqrt(float x) { return ::rsqrtf(x); }

template <typename T>
__device__ __forceinline__ float axlm_round(float x) { return static_cast<float>(static_cast<T>(x)); }

template <int Lanes>
__device__ __forceinline__ float axlm_sum(float x) {
  AXLM_UNROLL
  for (int m = Lanes / 2; m > 0; m /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, m);
  }
  return x;
}
`

const metalHeader = `
#define AXLM_UNROLL _Pragma("clang loop unroll(full)")

inline float axlm_fma(float a, float b, float c) { return metal::fma(a, b, c); }
inline float axlm_exp(float x) { return metal::exp(x); }
inline float axlm_log(float x) { return metal::log(x); }
inline float axlm_rsqrt(float x) { return metal::rsqrt(x); }

template <typename T>
inline float axlm_round(float x) { return static_cast<float>(static_cast<T>(x)); }

template <int Lanes>
inline float axlm_sum(float x) {
  AXLM_UNROLL
  for (int m = Lanes / 2; m > 0; m /= 2) {
    x += metal::simd_shuffle_xor(x, ushort(m));
  }
  return x;
}
`
