// Elementwise operations and reductions.
#include "common.h"
#include "mlx/ops.h"

using namespace axlm;

#define UNARY(symbol, op)                                                  \
  AXLM_API int symbol(mlx_array* out, mlx_array a, mlx_stream s) {         \
    return guarded([&] { put(out, mx::op(array(a), stream(s))); });        \
  }
#define BINARY(symbol, op)                                                             \
  AXLM_API int symbol(mlx_array* out, mlx_array a, mlx_array b, mlx_stream s) {        \
    return guarded([&] { put(out, mx::op(array(a), array(b), stream(s))); });          \
  }
#define REDUCE(symbol, op)                                                                      \
  AXLM_API int symbol(mlx_array* out, mlx_array a, int axis, bool keepdims, mlx_stream s) {     \
    return guarded([&] { put(out, mx::op(array(a), axis, keepdims, stream(s))); });             \
  }

UNARY(mlx_abs, abs)
UNARY(mlx_ceil, ceil)
UNARY(mlx_copy, copy)
UNARY(mlx_exp, exp)
UNARY(mlx_floor, floor)
UNARY(mlx_isinf, isinf)
UNARY(mlx_isnan, isnan)
UNARY(mlx_log, log)
UNARY(mlx_log1p, log1p)
UNARY(mlx_negative, negative)
UNARY(mlx_sigmoid, sigmoid)
UNARY(mlx_sin, sin)
UNARY(mlx_sqrt, sqrt)
UNARY(mlx_square, square)
UNARY(mlx_tanh, tanh)

BINARY(mlx_add, add)
BINARY(mlx_divide, divide)
BINARY(mlx_equal, equal)
BINARY(mlx_floor_divide, floor_divide)
BINARY(mlx_greater, greater)
BINARY(mlx_greater_equal, greater_equal)
BINARY(mlx_less, less)
BINARY(mlx_less_equal, less_equal)
BINARY(mlx_logaddexp, logaddexp)
BINARY(mlx_logical_and, logical_and)
BINARY(mlx_maximum, maximum)
BINARY(mlx_minimum, minimum)
BINARY(mlx_multiply, multiply)
BINARY(mlx_power, power)
BINARY(mlx_remainder, remainder)
BINARY(mlx_subtract, subtract)

REDUCE(mlx_argmax_axis, argmax)
REDUCE(mlx_logsumexp_axis, logsumexp)
REDUCE(mlx_max_axis, max)
REDUCE(mlx_min_axis, min)
REDUCE(mlx_sum_axis, sum)

AXLM_API int mlx_softmax_axis(mlx_array* out, mlx_array a, int axis, bool precise, mlx_stream s) {
  return guarded([&] { put(out, mx::softmax(array(a), axis, precise, stream(s))); });
}
AXLM_API int mlx_cumsum(mlx_array* out, mlx_array a, int axis, bool reverse, bool inclusive, mlx_stream s) {
  return guarded([&] { put(out, mx::cumsum(array(a), axis, reverse, inclusive, stream(s))); });
}
AXLM_API int mlx_clip(mlx_array* out, mlx_array a, mlx_array low, mlx_array high, mlx_stream s) {
  return guarded([&] { put(out, mx::clip(array(a), maybe(low), maybe(high), stream(s))); });
}
AXLM_API int mlx_where(mlx_array* out, mlx_array condition, mlx_array a, mlx_array b, mlx_stream s) {
  return guarded([&] { put(out, mx::where(array(condition), array(a), array(b), stream(s))); });
}
AXLM_API int mlx_astype(mlx_array* out, mlx_array a, mlx_dtype type, mlx_stream s) {
  return guarded([&] { put(out, mx::astype(array(a), dtype(type), stream(s))); });
}
AXLM_API int mlx_view(mlx_array* out, mlx_array a, mlx_dtype type, mlx_stream s) {
  return guarded([&] { put(out, mx::view(array(a), dtype(type), stream(s))); });
}
