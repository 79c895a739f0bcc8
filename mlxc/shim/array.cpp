// Arrays: making them from memory, reading their metadata and their data.
#include <array>
#include <cstring>

#include "common.h"
#include "mlx/allocator.h"

using namespace axlm;

namespace axlm {

namespace {
// mlx-c's numbering of the element types.
const std::array<mx::Dtype, 14>& dtypes() {
  static const std::array<mx::Dtype, 14> table = {
      mx::bool_, mx::uint8, mx::uint16,  mx::uint32,  mx::uint64,  mx::int8,     mx::int16,
      mx::int32, mx::int64, mx::float16, mx::float32, mx::float64, mx::bfloat16, mx::complex64};
  return table;
}
} // namespace

mx::Dtype dtype(mlx_dtype code) {
  if (code < 0 || static_cast<size_t>(code) >= dtypes().size()) {
    throw std::invalid_argument("unknown dtype code " + std::to_string(code));
  }
  return dtypes()[code];
}

mlx_dtype dtype_code(mx::Dtype type) {
  for (size_t i = 0; i < dtypes().size(); i++) {
    if (dtypes()[i] == type) {
      return static_cast<mlx_dtype>(i);
    }
  }
  throw std::invalid_argument("dtype without a code");
}

} // namespace axlm

AXLM_API mlx_array mlx_array_new_data(const void* data, const int* dims, int ndim, mlx_dtype code) {
  return guarded_value(mlx_array{nullptr}, [&] {
    auto type = dtype(code);
    auto extent = shape(dims, ndim);
    size_t bytes = mx::size_of(type);
    for (auto d : extent) {
      if (d < 0) {
        throw std::invalid_argument("negative dimension " + std::to_string(d));
      }
      bytes *= d;
    }
    auto block = mx::allocator::malloc(bytes);
    if (bytes > 0) {
      std::memcpy(block.buffer().raw_ptr(), data, bytes);
    }
    return mlx_array{new mx::array(std::move(block), std::move(extent), type)};
  });
}

AXLM_API int mlx_array_free(mlx_array a) {
  return destroy<mx::array>(a);
}
AXLM_API int mlx_array_set(mlx_array* out, mlx_array source) {
  return guarded([&] { put(out, mx::array(array(source))); });
}
AXLM_API size_t mlx_array_size(mlx_array a) {
  return guarded_value<size_t>(0, [&] { return array(a).size(); });
}
AXLM_API size_t mlx_array_nbytes(mlx_array a) {
  return guarded_value<size_t>(0, [&] { return array(a).nbytes(); });
}
AXLM_API size_t mlx_array_ndim(mlx_array a) {
  return guarded_value<size_t>(0, [&] { return array(a).ndim(); });
}
AXLM_API const int* mlx_array_shape(mlx_array a) {
  return guarded_value<const int*>(nullptr, [&] { return array(a).shape().data(); });
}
AXLM_API const size_t* mlx_array_strides(mlx_array a) {
  return guarded_value<const size_t*>(
      nullptr, [&] { return reinterpret_cast<const size_t*>(array(a).strides().data()); });
}
AXLM_API int mlx_array_dim(mlx_array a, int axis) {
  return guarded_value<int>(0, [&] { return array(a).shape(axis); });
}
AXLM_API mlx_dtype mlx_array_dtype(mlx_array a) {
  return guarded_value<mlx_dtype>(0, [&] { return dtype_code(array(a).dtype()); });
}
AXLM_API int mlx_array_eval(mlx_array a) {
  return guarded([&] { array(a).eval(); });
}
AXLM_API const uint8_t* mlx_array_data_uint8(mlx_array a) {
  return guarded_value<const uint8_t*>(nullptr, [&] { return array(a).data<uint8_t>(); });
}
AXLM_API int _mlx_array_is_row_contiguous(bool* result, mlx_array a) {
  return guarded([&] { *result = array(a).flags().row_contiguous; });
}
