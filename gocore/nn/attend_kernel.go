package nn

import (
	"math"

	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// attendBody is attention of few queries: scores into shared memory, softmax
// there, then the weighted sum of values. A block has one query of one head; a
// warp reads whole keys and values, several at once to hide what memory takes.
// mask is added to the scores if it is a matrix, [queries, keys].
//
// Numbers are rounded to InT where the operations that this replaces round.
const attendBody = `
  constexpr int Width = 16 / sizeof(InT);
  constexpr int Loads = Size / (32 * Width);
  constexpr int AtOnce = Loads < 8 ? 8 / Loads : 1;
  using Vector = axlm_vector<InT>;
  __shared__ float shared[Room];
  __shared__ float partial[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int heads = q_shape[1], n = k_shape[2];
  const int head = blockIdx.y % heads, row = blockIdx.y / heads, batch = blockIdx.z;
  const int shares = head / (heads / k_shape[1]);
  const InT* query = q + batch * q_strides[0] + head * q_strides[1] + row * q_strides[2];
  const InT* keys = k + batch * k_strides[0] + shares * k_strides[1];
  const InT* values = v + batch * v_strides[0] + shares * v_strides[1];

  float x[Loads][Width];
  AXLM_UNROLL
  for (int i = 0; i < Loads; ++i) {
    const Vector in = *reinterpret_cast<const Vector*>(query + (i * 32 + lane) * Width);
    AXLM_UNROLL
    for (int j = 0; j < Width; ++j) {
      x[i][j] = axlm_round<InT>(static_cast<float>(in.at[j]) * axlm_round<InT>(__int_as_float(Scale)));
    }
  }
  float most = -INFINITY;
  for (int first = warp * AtOnce; first < n; first += Warps * AtOnce) {
    Vector in[AtOnce][Loads];
    AXLM_UNROLL
    for (int u = 0; u < AtOnce; ++u) {
      const InT* from = keys + min(first + u, n - 1) * k_strides[2];
      AXLM_UNROLL
      for (int i = 0; i < Loads; ++i) {
        in[u][i] = *reinterpret_cast<const Vector*>(from + (i * 32 + lane) * Width);
      }
    }
    AXLM_UNROLL
    for (int u = 0; u < AtOnce; ++u) {
      float score = 0.0f;
      AXLM_UNROLL
      for (int i = 0; i < Loads; ++i) {
        AXLM_UNROLL
        for (int j = 0; j < Width; ++j) {
          score = axlm_fma(x[i][j], static_cast<float>(in[u][i].at[j]), score);
        }
      }
      score = axlm_round<InT>(axlm_sum<32>(score));
      if (first + u < n) {
        if (mask_ndim == 2) {
          score = axlm_round<InT>(score + static_cast<float>(mask[row * mask_strides[0] + (first + u) * mask_strides[1]]));
        }
        most = score > most ? score : most;
        if (lane == 0) {
          shared[first + u] = score;
        }
      }
    }
  }
  if (lane == 0) {
    partial[0][warp] = most;
  }
  __syncthreads();
  AXLM_UNROLL
  for (int i = 0; i < Warps; ++i) {
    most = partial[0][i] > most ? partial[0][i] : most;
  }
  float total = 0.0f;
  for (int i = threadIdx.x; i < n; i += Warps * 32) {
    const float e = __expf(shared[i] - most);
    shared[i] = e;
    total += e;
  }
  total = axlm_sum<32>(total);
  if (lane == 0) {
    partial[1][warp] = total;
  }
  __syncthreads();
  total = 0.0f;
  AXLM_UNROLL
  for (int i = 0; i < Warps; ++i) {
    total += partial[1][i];
  }
  const float factor = 1.0f / total;

  float sum[Loads][Width];
  AXLM_UNROLL
  for (int i = 0; i < Loads; ++i) {
    AXLM_UNROLL
    for (int j = 0; j < Width; ++j) {
      sum[i][j] = 0.0f;
    }
  }
  for (int first = warp * AtOnce; first < n; first += Warps * AtOnce) {
    Vector in[AtOnce][Loads];
    float weight[AtOnce];
    AXLM_UNROLL
    for (int u = 0; u < AtOnce; ++u) {
      const int at = min(first + u, n - 1);
      weight[u] = first + u < n ? axlm_round<InT>(shared[at] * factor) : 0.0f;
      AXLM_UNROLL
      for (int i = 0; i < Loads; ++i) {
        in[u][i] = *reinterpret_cast<const Vector*>(values + at * v_strides[2] + (i * 32 + lane) * Width);
      }
    }
    AXLM_UNROLL
    for (int u = 0; u < AtOnce; ++u) {
      AXLM_UNROLL
      for (int i = 0; i < Loads; ++i) {
        AXLM_UNROLL
        for (int j = 0; j < Width; ++j) {
          sum[i][j] = axlm_fma(weight[u], static_cast<float>(in[u][i].at[j]), sum[i][j]);
        }
      }
    }
  }
  __syncthreads();
  AXLM_UNROLL
  for (int i = 0; i < Loads; ++i) {
    AXLM_UNROLL
    for (int j = 0; j < Width; ++j) {
      shared[warp * Size + (i * 32 + lane) * Width + j] = sum[i][j];
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < Size; at += Warps * 32) {
    float result = 0.0f;
    AXLM_UNROLL
    for (int i = 0; i < Warps; ++i) {
      result += shared[i * Size + at];
    }
    out[((size_t(batch) * q_shape[2] + row) * heads + head) * Size + at] = static_cast<InT>(result);
  }
`

// attendRoom is how many float32 a block's shared memory holds: the scores of
// as many keys, then each warp's sums.
const attendRoom = attendWarps * attendSize

// Beyond these MLX's way, which spreads the keys over the GPU and reads them
// once for all queries, is the faster one.
const (
	attendKeys = 2048
	attendRows = 32
)

// attendSize is the greatest head size that its registers are meant for.
const attendSize = 512

// attendLaunch is what a launch depends on.
type attendLaunch struct {
	batch, heads, length, size int
	scale                      float32
	rows                       mlxc.DType
}

type attendKernel = gpuKernel[attendLaunch]

func newAttendKernel(st *Store) *attendKernel {
	return newGPUKernel[attendLaunch](st, kernelSource{
		name:   "attend",
		inputs: []string{"q", "k", "v", "mask"}, outputs: []string{"out"},
		body: attendBody, anyLayout: true,
		cuda: kernelStart{attendHeader, ""},
	})
}

// attendVector is how many bytes a lane reads at once.
const attendVector = 16

const attendHeader = `
template <typename T>
struct alignas(16) axlm_vector { T at[16 / sizeof(T)]; };
`

// fits tells whether the kernel can run over keys and values under a mask: a
// warp's lanes hold a key, and a mask is a matrix of the same type.
func (l attendLaunch) fits(k, v mlxc.Array, m kvcache.Mask) bool {
	masked := m.Mode == "" || m.Mode == "array" && m.Array.NDim() == 2 && m.Array.DType() == l.rows
	return masked && l.length <= attendRows && k.Dim(2) <= attendKeys &&
		k.DType() == l.rows && v.DType() == l.rows && v.Dim(3) == l.size &&
		l.size > fusedSize && l.size <= attendSize && l.size%(warpSize*attendVector/l.rows.Size()) == 0
}

// attendWarps is how many a block has: their registers and, for the widest
// heads, their sums are what an SM has room for.
const attendWarps = 16

func (l attendLaunch) describe() mlxc.KernelLaunch {
	return mlxc.KernelLaunch{
		Grid:        [3]int{warpSize * attendWarps, l.heads * l.length, l.batch},
		ThreadGroup: [3]int{warpSize * attendWarps, 1, 1},
		Outputs:     []mlxc.KernelOutput{{Shape: []int{l.batch, l.length, l.heads * l.size}, DType: l.rows}},
		// MLX compiles each combination, which takes seconds: only what the model
		// fixes is in it.
		Template: []mlxc.TemplateArg{
			{Name: "InT", Value: l.rows}, {Name: "Size", Value: l.size}, {Name: "Warps", Value: attendWarps},
			{Name: "Room", Value: attendRoom}, {Name: "Scale", Value: int(int32(math.Float32bits(l.scale)))},
		},
	}
}
