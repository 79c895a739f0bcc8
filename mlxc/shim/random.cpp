// Random numbers with explicit keys.
#include "mlx/random.h"

#include "common.h"

using namespace axlm;

AXLM_API int mlx_random_key(mlx_array* out, uint64_t seed) {
  return guarded([&] { put(out, mx::random::key(seed)); });
}
AXLM_API int mlx_random_split(mlx_array* first, mlx_array* second, mlx_array key, mlx_stream s) {
  return guarded([&] {
    auto keys = mx::random::split(array(key), stream(s));
    put(first, std::move(keys.first));
    put(second, std::move(keys.second));
  });
}
AXLM_API int mlx_random_split_num(mlx_array* out, mlx_array key, int n, mlx_stream s) {
  return guarded([&] { put(out, mx::random::split(array(key), n, stream(s))); });
}
AXLM_API int mlx_random_bits(mlx_array* out, const int* dims, size_t n, int width, mlx_array key, mlx_stream s) {
  return guarded([&] { put(out, mx::random::bits(shape(dims, n), width, maybe(key), stream(s))); });
}
AXLM_API int mlx_random_uniform(
    mlx_array* out,
    mlx_array low,
    mlx_array high,
    const int* dims,
    size_t n,
    mlx_dtype type,
    mlx_array key,
    mlx_stream s) {
  return guarded([&] {
    put(out,
        mx::random::uniform(array(low), array(high), shape(dims, n), dtype(type), maybe(key), stream(s)));
  });
}
AXLM_API int mlx_random_normal(
    mlx_array* out,
    const int* dims,
    size_t n,
    mlx_dtype type,
    float loc,
    float scale,
    mlx_array key,
    mlx_stream s) {
  return guarded([&] {
    put(out, mx::random::normal(shape(dims, n), dtype(type), loc, scale, maybe(key), stream(s)));
  });
}
AXLM_API int
mlx_random_gumbel(mlx_array* out, const int* dims, size_t n, mlx_dtype type, mlx_array key, mlx_stream s) {
  return guarded([&] { put(out, mx::random::gumbel(shape(dims, n), dtype(type), maybe(key), stream(s))); });
}
AXLM_API int mlx_random_categorical(mlx_array* out, mlx_array logits, int axis, mlx_array key, mlx_stream s) {
  return guarded([&] { put(out, mx::random::categorical(array(logits), axis, maybe(key), stream(s))); });
}
