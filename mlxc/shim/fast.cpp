// MLX's fused operations.
#include "common.h"
#include "mlx/fast.h"

using namespace axlm;

AXLM_API int mlx_fast_rms_norm(mlx_array* out, mlx_array x, mlx_array weight, float eps, mlx_stream s) {
  return guarded([&] { put(out, mx::fast::rms_norm(array(x), maybe(weight), eps, stream(s))); });
}
AXLM_API int mlx_fast_rope(
    mlx_array* out,
    mlx_array x,
    int dims,
    bool traditional,
    mlx_optional_float base,
    float scale,
    int offset,
    mlx_array freqs,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::fast::rope(array(x), dims, traditional, maybe(base), scale, offset, maybe(freqs), stream(s)));
  });
}
AXLM_API int mlx_fast_rope_dynamic(
    mlx_array* out,
    mlx_array x,
    int dims,
    bool traditional,
    mlx_optional_float base,
    float scale,
    mlx_array offset,
    mlx_array freqs,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::fast::rope(
            array(x), dims, traditional, maybe(base), scale, array(offset), maybe(freqs), stream(s)));
  });
}
AXLM_API int mlx_fast_scaled_dot_product_attention(
    mlx_array* out,
    mlx_array queries,
    mlx_array keys,
    mlx_array values,
    float scale,
    const char* mask_mode,
    mlx_array mask,
    mlx_array sinks,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::fast::scaled_dot_product_attention(
            array(queries),
            array(keys),
            array(values),
            scale,
            std::string(mask_mode),
            maybe(mask),
            maybe(sinks),
            false, // MLX picks the kernel
            stream(s)));
  });
}
