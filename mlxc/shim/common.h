// Helpers shared by the shim's files: handles to C++ objects, and the border no C++ exception may cross.
#pragma once

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "abi.h"
#include "mlx/array.h"
#include "mlx/dtype.h"
#include "mlx/stream.h"

namespace axlm {

namespace mx = mlx::core;

using Arrays = std::vector<mx::array>;

// Hands a message to the installed error handler.
void report(const char* message) noexcept;

// Runs body; whatever it throws is reported and turned into a nonzero result.
template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    report(e.what());
  } catch (...) {
    report("unknown C++ exception");
  }
  return 1;
}

// Like guarded, for functions that return a value: the fallback stands for failure.
template <typename T, typename Body>
T guarded_value(T fallback, Body&& body) noexcept {
  guarded([&] { fallback = body(); });
  return fallback;
}

// The C++ object behind a handle. T is given by the caller, since a handle does not know it.
template <typename T, typename Handle>
T& get(Handle handle, const char* what) {
  if (!handle.ctx) {
    throw std::invalid_argument(std::string("expected a non-empty ") + what);
  }
  return *static_cast<T*>(handle.ctx);
}

// Stores a value in the handle that out points to, creating the object if there is none.
template <typename Handle, typename T>
void put(Handle* out, T&& value) {
  using Value = std::decay_t<T>;
  if (out->ctx) {
    *static_cast<Value*>(out->ctx) = std::forward<T>(value);
  } else {
    out->ctx = new Value(std::forward<T>(value));
  }
}

template <typename T, typename Handle>
int destroy(Handle handle) noexcept {
  return guarded([&] { delete static_cast<T*>(handle.ctx); });
}

inline mx::array& array(mlx_array a) {
  return get<mx::array>(a, "mlx_array");
}
inline std::optional<mx::array> maybe(mlx_array a) {
  return a.ctx ? std::make_optional(*static_cast<mx::array*>(a.ctx)) : std::nullopt;
}
inline mx::Stream stream(mlx_stream s) {
  return get<mx::Stream>(s, "mlx_stream");
}
inline Arrays& arrays(mlx_vector_array v) {
  return get<Arrays>(v, "mlx_vector_array");
}
inline mx::Shape shape(const int* data, size_t n) {
  return mx::Shape(data, data + n);
}
inline std::vector<int> ints(const int* data, size_t n) {
  return std::vector<int>(data, data + n);
}
inline std::optional<int> maybe(mlx_optional_int v) {
  return v.has_value ? std::make_optional(v.value) : std::nullopt;
}
inline std::optional<float> maybe(mlx_optional_float v) {
  return v.has_value ? std::make_optional(v.value) : std::nullopt;
}

mx::Dtype dtype(mlx_dtype code);
mlx_dtype dtype_code(mx::Dtype type);

inline std::optional<mx::Dtype> maybe(mlx_optional_dtype v) {
  return v.has_value ? std::make_optional(dtype(v.value)) : std::nullopt;
}

} // namespace axlm
