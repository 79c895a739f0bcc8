// Operations that make arrays or change their shape.
#include "common.h"
#include "mlx/ops.h"

using namespace axlm;

AXLM_API int mlx_arange(mlx_array* out, double start, double stop, double step, mlx_dtype type, mlx_stream s) {
  return guarded([&] { put(out, mx::arange(start, stop, step, dtype(type), stream(s))); });
}
AXLM_API int mlx_zeros(mlx_array* out, const int* dims, size_t n, mlx_dtype type, mlx_stream s) {
  return guarded([&] { put(out, mx::zeros(shape(dims, n), dtype(type), stream(s))); });
}
AXLM_API int mlx_ones(mlx_array* out, const int* dims, size_t n, mlx_dtype type, mlx_stream s) {
  return guarded([&] { put(out, mx::ones(shape(dims, n), dtype(type), stream(s))); });
}
AXLM_API int mlx_full(mlx_array* out, const int* dims, size_t n, mlx_array value, mlx_dtype type, mlx_stream s) {
  return guarded([&] { put(out, mx::full(shape(dims, n), array(value), dtype(type), stream(s))); });
}

AXLM_API int mlx_contiguous(mlx_array* out, mlx_array a, bool allow_col_major, mlx_stream s) {
  return guarded([&] { put(out, mx::contiguous(array(a), allow_col_major, stream(s))); });
}
AXLM_API int mlx_reshape(mlx_array* out, mlx_array a, const int* dims, size_t n, mlx_stream s) {
  return guarded([&] { put(out, mx::reshape(array(a), shape(dims, n), stream(s))); });
}
AXLM_API int mlx_broadcast_to(mlx_array* out, mlx_array a, const int* dims, size_t n, mlx_stream s) {
  return guarded([&] { put(out, mx::broadcast_to(array(a), shape(dims, n), stream(s))); });
}
AXLM_API int mlx_flatten(mlx_array* out, mlx_array a, int start_axis, int end_axis, mlx_stream s) {
  return guarded([&] { put(out, mx::flatten(array(a), start_axis, end_axis, stream(s))); });
}
AXLM_API int mlx_unflatten(mlx_array* out, mlx_array a, int axis, const int* dims, size_t n, mlx_stream s) {
  return guarded([&] { put(out, mx::unflatten(array(a), axis, shape(dims, n), stream(s))); });
}
AXLM_API int mlx_transpose(mlx_array* out, mlx_array a, mlx_stream s) {
  return guarded([&] { put(out, mx::transpose(array(a), stream(s))); });
}
AXLM_API int mlx_transpose_axes(mlx_array* out, mlx_array a, const int* axes, size_t n, mlx_stream s) {
  return guarded([&] { put(out, mx::transpose(array(a), ints(axes, n), stream(s))); });
}
AXLM_API int mlx_swapaxes(mlx_array* out, mlx_array a, int axis1, int axis2, mlx_stream s) {
  return guarded([&] { put(out, mx::swapaxes(array(a), axis1, axis2, stream(s))); });
}
AXLM_API int mlx_moveaxis(mlx_array* out, mlx_array a, int source, int destination, mlx_stream s) {
  return guarded([&] { put(out, mx::moveaxis(array(a), source, destination, stream(s))); });
}
AXLM_API int mlx_expand_dims_axes(mlx_array* out, mlx_array a, const int* axes, size_t n, mlx_stream s) {
  return guarded([&] { put(out, mx::expand_dims(array(a), ints(axes, n), stream(s))); });
}
AXLM_API int mlx_squeeze(mlx_array* out, mlx_array a, mlx_stream s) {
  return guarded([&] { put(out, mx::squeeze(array(a), stream(s))); });
}
AXLM_API int mlx_squeeze_axes(mlx_array* out, mlx_array a, const int* axes, size_t n, mlx_stream s) {
  return guarded([&] { put(out, mx::squeeze(array(a), ints(axes, n), stream(s))); });
}
AXLM_API int mlx_concatenate_axis(mlx_array* out, mlx_vector_array parts, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::concatenate(arrays(parts), axis, stream(s))); });
}
AXLM_API int mlx_stack_axis(mlx_array* out, mlx_vector_array parts, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::stack(arrays(parts), axis, stream(s))); });
}
AXLM_API int mlx_split(mlx_vector_array* out, mlx_array a, int parts, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::split(array(a), parts, axis, stream(s))); });
}
AXLM_API int
mlx_split_sections(mlx_vector_array* out, mlx_array a, const int* indices, size_t n, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::split(array(a), shape(indices, n), axis, stream(s))); });
}
AXLM_API int mlx_repeat_axis(mlx_array* out, mlx_array a, int repeats, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::repeat(array(a), repeats, axis, stream(s))); });
}
AXLM_API int mlx_pad(
    mlx_array* out,
    mlx_array a,
    const int* axes,
    size_t n,
    const int* low,
    size_t low_n,
    const int* high,
    size_t high_n,
    mlx_array value,
    const char* mode,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::pad(
            array(a),
            ints(axes, n),
            shape(low, low_n),
            shape(high, high_n),
            array(value),
            std::string(mode),
            stream(s)));
  });
}
