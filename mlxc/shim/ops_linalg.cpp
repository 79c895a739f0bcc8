// Matrix products, dense and quantized, and convolution.
#include "common.h"
#include "mlx/ops.h"

using namespace axlm;

AXLM_API int mlx_matmul(mlx_array* out, mlx_array a, mlx_array b, mlx_stream s) {
  return guarded([&] { put(out, mx::matmul(array(a), array(b), stream(s))); });
}
AXLM_API int
mlx_addmm(mlx_array* out, mlx_array c, mlx_array a, mlx_array b, float alpha, float beta, mlx_stream s) {
  return guarded([&] { put(out, mx::addmm(array(c), array(a), array(b), alpha, beta, stream(s))); });
}
AXLM_API int mlx_gather_mm(
    mlx_array* out,
    mlx_array a,
    mlx_array b,
    mlx_array lhs_indices,
    mlx_array rhs_indices,
    bool sorted,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::gather_mm(array(a), array(b), maybe(lhs_indices), maybe(rhs_indices), sorted, stream(s)));
  });
}
AXLM_API int mlx_quantize(
    mlx_vector_array* out,
    mlx_array w,
    mlx_optional_int group_size,
    mlx_optional_int bits,
    const char* mode,
    mlx_array global_scale,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::quantize(
            array(w), maybe(group_size), maybe(bits), std::string(mode), maybe(global_scale), stream(s)));
  });
}
AXLM_API int mlx_dequantize(
    mlx_array* out,
    mlx_array w,
    mlx_array scales,
    mlx_array biases,
    mlx_optional_int group_size,
    mlx_optional_int bits,
    const char* mode,
    mlx_array global_scale,
    mlx_optional_dtype type,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::dequantize(
            array(w),
            array(scales),
            maybe(biases),
            maybe(group_size),
            maybe(bits),
            std::string(mode),
            maybe(global_scale),
            maybe(type),
            stream(s)));
  });
}
AXLM_API int mlx_quantized_matmul(
    mlx_array* out,
    mlx_array x,
    mlx_array w,
    mlx_array scales,
    mlx_array biases,
    bool transpose,
    mlx_optional_int group_size,
    mlx_optional_int bits,
    const char* mode,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::quantized_matmul(
            array(x),
            array(w),
            array(scales),
            maybe(biases),
            transpose,
            maybe(group_size),
            maybe(bits),
            std::string(mode),
            stream(s)));
  });
}
AXLM_API int mlx_gather_qmm(
    mlx_array* out,
    mlx_array x,
    mlx_array w,
    mlx_array scales,
    mlx_array biases,
    mlx_array lhs_indices,
    mlx_array rhs_indices,
    bool transpose,
    mlx_optional_int group_size,
    mlx_optional_int bits,
    const char* mode,
    bool sorted,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::gather_qmm(
            array(x),
            array(w),
            array(scales),
            maybe(biases),
            maybe(lhs_indices),
            maybe(rhs_indices),
            transpose,
            maybe(group_size),
            maybe(bits),
            std::string(mode),
            std::nullopt, // the global scale, which mlx-c 0.6.0 does not know
            sorted,
            stream(s)));
  });
}
AXLM_API int mlx_conv1d(
    mlx_array* out,
    mlx_array input,
    mlx_array weight,
    int stride,
    int padding,
    int dilation,
    int groups,
    mlx_stream s) {
  return guarded([&] {
    put(out, mx::conv1d(array(input), array(weight), stride, padding, dilation, groups, stream(s)));
  });
}
