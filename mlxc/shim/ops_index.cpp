// Slicing, indexing and sorting.
#include "common.h"
#include "mlx/ops.h"

using namespace axlm;

AXLM_API int mlx_slice(
    mlx_array* out,
    mlx_array a,
    const int* start,
    size_t start_n,
    const int* stop,
    size_t stop_n,
    const int* strides,
    size_t strides_n,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::slice(array(a), shape(start, start_n), shape(stop, stop_n), shape(strides, strides_n), stream(s)));
  });
}
AXLM_API int mlx_slice_update(
    mlx_array* out,
    mlx_array a,
    mlx_array update,
    const int* start,
    size_t start_n,
    const int* stop,
    size_t stop_n,
    const int* strides,
    size_t strides_n,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::slice_update(
            array(a),
            array(update),
            shape(start, start_n),
            shape(stop, stop_n),
            shape(strides, strides_n),
            stream(s)));
  });
}
AXLM_API int mlx_take_axis(mlx_array* out, mlx_array a, mlx_array indices, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::take(array(a), array(indices), axis, stream(s))); });
}
AXLM_API int mlx_take_along_axis(mlx_array* out, mlx_array a, mlx_array indices, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::take_along_axis(array(a), array(indices), axis, stream(s))); });
}
AXLM_API int mlx_put_along_axis(
    mlx_array* out,
    mlx_array a,
    mlx_array indices,
    mlx_array values,
    int axis,
    mlx_stream s) {
  return guarded(
      [&] { put(out, mx::put_along_axis(array(a), array(indices), array(values), axis, stream(s))); });
}
AXLM_API int mlx_scatter_add_axis(
    mlx_array* out,
    mlx_array a,
    mlx_array indices,
    mlx_array values,
    int axis,
    mlx_stream s) {
  return guarded(
      [&] { put(out, mx::scatter_add_axis(array(a), array(indices), array(values), axis, stream(s))); });
}

AXLM_API int mlx_sort_axis(mlx_array* out, mlx_array a, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::sort(array(a), axis, stream(s))); });
}
AXLM_API int mlx_argsort_axis(mlx_array* out, mlx_array a, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::argsort(array(a), axis, stream(s))); });
}
AXLM_API int mlx_argpartition_axis(mlx_array* out, mlx_array a, int kth, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::argpartition(array(a), kth, axis, stream(s))); });
}
AXLM_API int mlx_topk_axis(mlx_array* out, mlx_array a, int k, int axis, mlx_stream s) {
  return guarded([&] { put(out, mx::topk(array(a), k, axis, stream(s))); });
}
