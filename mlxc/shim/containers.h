// The C++ containers behind the vector and map handles.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "common.h"

namespace axlm {

using Strings = std::vector<std::string>;
using ArrayMap = std::unordered_map<std::string, mx::array>;
using StringMap = std::unordered_map<std::string, std::string>;

inline Strings& strings(mlx_vector_string v) {
  return get<Strings>(v, "mlx_vector_string");
}
inline ArrayMap& array_map(mlx_map_string_to_array m) {
  return get<ArrayMap>(m, "mlx_map_string_to_array");
}
inline StringMap& string_map(mlx_map_string_to_string m) {
  return get<StringMap>(m, "mlx_map_string_to_string");
}

} // namespace axlm
