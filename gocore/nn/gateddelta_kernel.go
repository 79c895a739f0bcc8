package nn

import "axlm/mlxc"

const (
	// deltaLanes is how many lanes of a warp share a row of the state, the row
	// of one value feature. Fewer lanes make each hold more of the row, which
	// leaves fewer steps to sum over lanes, but fewer warps.
	deltaLanes = 8
	// deltaWarps is how many warps make a block; they work on the same head, so
	// that its q and k are read from memory once for all of them.
	deltaWarps = 4
)

// deltaBody is the recurrence. The preludes define lane, group and head: the
// thread's number in its warp, the warp's group of rows, and batch·Hv + value
// head.
//
// A lane holds Each elements of its row, in fours that lie Lanes·4 apart, so
// that neighbouring lanes read neighbouring addresses. The next token is read
// while the present one is computed. Rows beyond Dv, in the last group, are
// computed as the last row and not stored: all lanes must take part in sums.
const deltaBody = `
  constexpr int Each = Dk / Lanes;
  const int T = v_shape[1];
  const int hv = head % Hv;
  const int b = head / Hv;
  const int hk = hv / (Hv / Hk);
  const int at = lane % Lanes;
  const int wanted = group * (32 / Lanes) + lane / Lanes;
  const int row = wanted < Dv ? wanted : Dv - 1;
  const bool stores = wanted < Dv;

  const size_t first = size_t(b) * T;
  auto q_t = q + (first * Hk + hk) * Dk + at * 4;
  auto k_t = k + (first * Hk + hk) * Dk + at * 4;
  auto v_t = v + (first * Hv + hv) * Dv + row;
  auto g_t = g + first * Hv + hv;
  auto beta_t = beta + first * Hv + hv;
  auto y_t = y + (first * Hv + hv) * Dv + row;
  const size_t from = (size_t(head) * Dv + row) * Dk + at * 4;

  float S[Each], k_now[Each], q_now[Each], k_next[Each], q_next[Each];
  axlm_load<Each, Lanes>(state + from, S);
  axlm_load<Each, Lanes>(k_t, k_now);
  axlm_load<Each, Lanes>(q_t, q_now);
  float v_now = static_cast<float>(*v_t);
  float g_now = static_cast<float>(*g_t);
  float beta_now = static_cast<float>(*beta_t);

  for (int t = 0; t < T; ++t) {
    const int more = t + 1 < T ? 1 : 0;
    q_t += more * Hk * Dk;
    k_t += more * Hk * Dk;
    v_t += more * Hv * Dv;
    g_t += more * Hv;
    beta_t += more * Hv;
    axlm_load<Each, Lanes>(k_t, k_next);
    axlm_load<Each, Lanes>(q_t, q_next);
    const float v_next = static_cast<float>(*v_t);
    const float g_next = static_cast<float>(*g_t);
    const float beta_next = static_cast<float>(*beta_t);

    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    AXLM_UNROLL
    for (int i = 0; i < Each; ++i) {
      S[i] *= g_now;
      part[i % 4] = axlm_fma(S[i], k_now[i], part[i % 4]);
    }
    const float recalled = axlm_sum<Lanes>((part[0] + part[1]) + (part[2] + part[3]));
    const float delta = (v_now - recalled) * beta_now;
    AXLM_UNROLL
    for (int i = 0; i < 4; ++i) {
      part[i] = 0.0f;
    }
    AXLM_UNROLL
    for (int i = 0; i < Each; ++i) {
      S[i] = axlm_fma(k_now[i], delta, S[i]);
      part[i % 4] = axlm_fma(S[i], q_now[i], part[i % 4]);
    }
    const float out = axlm_sum<Lanes>((part[0] + part[1]) + (part[2] + part[3]));
    if (stores && at == 0) {
      *y_t = static_cast<InT>(out);
    }
    y_t += Hv * Dv;
    AXLM_UNROLL
    for (int i = 0; i < Each; ++i) {
      k_now[i] = k_next[i];
      q_now[i] = q_next[i];
    }
    v_now = v_next;
    g_now = g_next;
    beta_now = beta_next;
  }
  if (stores) {
    axlm_store<Each, Lanes>(S, state_out + from);
  }
`

// deltaCUDAHeader loads and stores four elements at a time: sizes are multiples
// of 32, so that every address is aligned for it.
const deltaCUDAHeader = `
template <typename T>
struct alignas(4 * sizeof(T)) AxlmFour {
  T v[4];
};

template <int Each, int Lanes, typename T>
__device__ __forceinline__ void axlm_load(const T* from, float (&to)[Each]) {
  AXLM_UNROLL
  for (int i = 0; i < Each / 4; ++i) {
    const AxlmFour<T> four = *reinterpret_cast<const AxlmFour<T>*>(from + i * Lanes * 4);
    AXLM_UNROLL
    for (int j = 0; j < 4; ++j) {
      to[i * 4 + j] = static_cast<float>(four.v[j]);
    }
  }
}

template <int Each, int Lanes>
__device__ __forceinline__ void axlm_store(const float (&from)[Each], float* to) {
  AXLM_UNROLL
  for (int i = 0; i < Each / 4; ++i) {
    AxlmFour<float> four;
    AXLM_UNROLL
    for (int j = 0; j < 4; ++j) {
      four.v[j] = from[i * 4 + j];
    }
    *reinterpret_cast<AxlmFour<float>*>(to + i * Lanes * 4) = four;
  }
}
`

const deltaCUDAPrelude = `
  const int lane = threadIdx.x;
  const int group = blockIdx.y * blockDim.y + threadIdx.y;
  const int head = blockIdx.z;
  if (group * (32 / Lanes) >= Dv) {
    return;
  }
`

const deltaMetalHeader = `
template <int Each, int Lanes, typename P>
inline void axlm_load(P from, thread float (&to)[Each]) {
  AXLM_UNROLL
  for (int i = 0; i < Each; ++i) {
    to[i] = static_cast<float>(from[i / 4 * Lanes * 4 + i % 4]);
  }
}

template <int Each, int Lanes>
inline void axlm_store(thread const float (&from)[Each], device float* to) {
  AXLM_UNROLL
  for (int i = 0; i < Each; ++i) {
    to[i / 4 * Lanes * 4 + i % 4] = from[i];
  }
}
`

const deltaMetalPrelude = `
  const int lane = thread_position_in_threadgroup.x;
  const int group = thread_position_in_grid.y;
  const int head = thread_position_in_grid.z;
`

// deltaLaunch is what a launch of the recurrence depends on.
type deltaLaunch struct {
	batch, length int
	DeltaDims
	rows, beta mlxc.DType
}

type deltaKernel = gpuKernel[deltaLaunch]

// newDeltaKernel makes the recurrence as a kernel; nil where it has to be a
// loop of operations.
func newDeltaKernel(st *Store, keySize int) *deltaKernel {
	if keySize%warpSize != 0 {
		return nil
	}
	return newGPUKernel[deltaLaunch](st, kernelSource{
		name:   "gated_delta",
		inputs: []string{"q", "k", "v", "g", "beta", "state"}, outputs: []string{"y", "state_out"},
		body:  deltaBody,
		metal: kernelStart{deltaMetalHeader, deltaMetalPrelude},
		cuda:  kernelStart{deltaCUDAHeader, deltaCUDAPrelude},
	})
}

func (l deltaLaunch) describe() mlxc.KernelLaunch {
	return mlxc.KernelLaunch{
		Grid:        [3]int{warpSize, (l.ValueSize*deltaLanes + warpSize - 1) / warpSize, l.batch * l.ValueHeads},
		ThreadGroup: [3]int{warpSize, deltaWarps, 1},
		Outputs: []mlxc.KernelOutput{
			{Shape: []int{l.batch, l.length, l.ValueHeads, l.ValueSize}, DType: l.rows},
			{Shape: []int{l.batch, l.ValueHeads, l.ValueSize, l.KeySize}, DType: mlxc.Float32},
		},
		// Beta's type is among them because MLX names the compiled kernel by them
		// alone.
		Template: []mlxc.TemplateArg{
			{Name: "InT", Value: l.rows}, {Name: "BetaT", Value: l.beta},
			{Name: "Dk", Value: l.KeySize}, {Name: "Dv", Value: l.ValueSize},
			{Name: "Hk", Value: l.KeyHeads}, {Name: "Hv", Value: l.ValueHeads},
			{Name: "Lanes", Value: deltaLanes},
		},
	}
}

// runDelta applies the recurrence's kernel.
func runDelta(k *deltaKernel, s *mlxc.Scope, in DeltaRows, state mlxc.Array) (y, next mlxc.Array) {
	out := k.apply(s, deltaLaunch{
		batch: in.V.Dim(0), length: in.V.Dim(1), rows: in.Q.DType(), beta: in.Beta.DType(),
		DeltaDims: DeltaDims{KeyHeads: in.K.Dim(2), ValueHeads: in.V.Dim(2), KeySize: in.K.Dim(3), ValueSize: in.V.Dim(3)},
	}, deltaLaunch.describe, in.Q, in.K, in.V, in.G, in.Beta, state)
	if len(out) != 2 {
		return mlxc.Array{}, mlxc.Array{}
	}
	return out[0], out[1]
}
