package nn

import "axlm/mlxc"

// mixWarps is how many warps make a block of the mixing kernel.
const mixWarps = 4

// mixBody is what comes before the recurrence, in one pass: the convolution of
// each channel over the last Width rows and silu; each head of q and k made a
// unit vector; decay and strength of each value head. The preludes define lane,
// unit and token: the thread's number in its warp, one of q's, k's and v's heads
// or, after them, the gates, and batch·T + row.
//
// Numbers are rounded to InT where the operations that this replaces round.
const mixBody = `
  constexpr int Channels = 2 * Hk * Dk + Hv * Dv;
  constexpr int Most = ((Dk > Dv ? Dk : Dv) + 31) / 32;
  const int T = a_shape[1];

  if (unit == 2 * Hk + Hv) {
    for (int h = lane; h < Hv; h += 32) {
      const size_t i = size_t(token) * Hv + h;
      const float x = axlm_round<InT>(static_cast<float>(a[i]) + static_cast<float>(dt[h]));
      // log(1 + e), exact for small e as well
      const float e = axlm_exp(x > 0.0f ? -x : x);
      const float u1 = 1.0f + e;
      const float log1p = u1 == 1.0f ? e : axlm_log(u1) * (e / (u1 - 1.0f));
      const float softplus = axlm_round<InT>((x > 0.0f ? x : 0.0f) + log1p);
      g[i] = axlm_exp(-axlm_exp(static_cast<float>(a_log[h])) * softplus);
      beta[i] = static_cast<InT>(axlm_sigmoid(static_cast<float>(b[i])));
    }
    return;
  }

  const bool values = unit >= 2 * Hk;
  const int size = values ? Dv : Dk;
  const int from = values ? 2 * Hk * Dk + (unit - 2 * Hk) * Dv : unit * Dk;
  auto u_t = u + (size_t(token / T) * (T + Width - 1) + token % T) * Channels + from;
  auto w_c = w + size_t(from) * Width;

  float x[Most];
  float squares = 0.0f;
  AXLM_UNROLL
  for (int i = 0; i < Most; ++i) {
    const int c = i * 32 + lane;
    x[i] = 0.0f;
    if (c < size) {
      float sum = 0.0f;
      AXLM_UNROLL
      for (int j = 0; j < Width; ++j) {
        sum = axlm_fma(static_cast<float>(u_t[j * Channels + c]), static_cast<float>(w_c[c * Width + j]), sum);
      }
      sum = axlm_round<InT>(sum);
      x[i] = axlm_round<InT>(sum * axlm_round<InT>(axlm_sigmoid(sum)));
    }
    squares = axlm_fma(x[i], x[i], squares);
  }
  if (values) {
    auto v_t = v + (size_t(token) * Hv + (unit - 2 * Hk)) * Dv;
    AXLM_UNROLL
    for (int i = 0; i < Most; ++i) {
      const int c = i * 32 + lane;
      if (c < Dv) {
        v_t[c] = static_cast<InT>(x[i]);
      }
    }
    return;
  }
  const float unit_length = axlm_rsqrt(axlm_sum<32>(squares) / Dk + 1e-6f / Dk);
  const bool queries = unit < Hk;
  const float factor = axlm_round<InT>(queries ? 1.0f / Dk : axlm_rsqrt(float(Dk)));
  auto out = (queries ? q : k) + (size_t(token) * Hk + unit % Hk) * Dk;
  AXLM_UNROLL
  for (int i = 0; i < Most; ++i) {
    const int c = i * 32 + lane;
    if (c < Dk) {
      out[c] = static_cast<InT>(axlm_round<InT>(x[i] * unit_length) * factor);
    }
  }
`

const mixCUDAHeader = `
__device__ __forceinline__ float axlm_sigmoid(float x) {
  const float y = 1.0f / (1.0f + axlm_exp(x < 0.0f ? -x : x));
  return x < 0.0f ? y : 1.0f - y;
}
`

const mixCUDAPrelude = `
  const int lane = threadIdx.x;
  const int unit = blockIdx.y * blockDim.y + threadIdx.y;
  const int token = blockIdx.x;
  if (unit > 2 * Hk + Hv) {
    return;
  }
`

const mixMetalHeader = `
inline float axlm_sigmoid(float x) {
  const float y = 1.0f / (1.0f + axlm_exp(x < 0.0f ? -x : x));
  return x < 0.0f ? y : 1.0f - y;
}
`

const mixMetalPrelude = `
  const int lane = thread_position_in_threadgroup.x;
  const int unit = thread_position_in_grid.y;
  const int token = thread_position_in_grid.x / 32;
`

// mixLaunch is what a launch of the mixing depends on.
type mixLaunch struct {
	batch, length int
	DeltaDims
	rows, log mlxc.DType
}

type mixKernel = gpuKernel[mixLaunch]

func newMixKernel(st *Store) *mixKernel {
	return newGPUKernel[mixLaunch](st, kernelSource{
		name:   "gated_delta_mix",
		inputs: []string{"u", "w", "a", "b", "a_log", "dt"}, outputs: []string{"q", "k", "v", "g", "beta"},
		body:  mixBody,
		metal: kernelStart{mixMetalHeader, mixMetalPrelude},
		cuda:  kernelStart{mixCUDAHeader, mixCUDAPrelude},
	})
}

func (l mixLaunch) describe() mlxc.KernelLaunch {
	return mlxc.KernelLaunch{
		Grid:        [3]int{warpSize * l.batch * l.length, 2*l.KeyHeads + l.ValueHeads + 1, 1},
		ThreadGroup: [3]int{warpSize, mixWarps, 1},
		Outputs: []mlxc.KernelOutput{
			{Shape: []int{l.batch, l.length, l.KeyHeads, l.KeySize}, DType: l.rows},
			{Shape: []int{l.batch, l.length, l.KeyHeads, l.KeySize}, DType: l.rows},
			{Shape: []int{l.batch, l.length, l.ValueHeads, l.ValueSize}, DType: l.rows},
			{Shape: []int{l.batch, l.length, l.ValueHeads}, DType: mlxc.Float32},
			{Shape: []int{l.batch, l.length, l.ValueHeads}, DType: l.rows},
		},
		Template: []mlxc.TemplateArg{
			{Name: "InT", Value: l.rows}, {Name: "LogT", Value: l.log},
			{Name: "Dk", Value: l.KeySize}, {Name: "Dv", Value: l.ValueSize},
			{Name: "Hk", Value: l.KeyHeads}, {Name: "Hv", Value: l.ValueHeads}, {Name: "Width", Value: l.Width},
		},
	}
}
