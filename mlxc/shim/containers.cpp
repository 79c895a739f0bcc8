// Vectors, maps and strings that cross the C border.
#include <string>
#include <unordered_map>

#include "common.h"
#include "containers.h"
#include "mlx/version.h"

using namespace axlm;

namespace {

Arrays collect(const mlx_array* data, size_t n) {
  Arrays values;
  values.reserve(n);
  for (size_t i = 0; i < n; i++) {
    values.push_back(array(data[i]));
  }
  return values;
}

} // namespace

AXLM_API mlx_vector_array mlx_vector_array_new_data(const mlx_array* data, size_t n) {
  return guarded_value(
      mlx_vector_array{nullptr}, [&] { return mlx_vector_array{new Arrays(collect(data, n))}; });
}
AXLM_API int mlx_vector_array_set_data(mlx_vector_array* out, const mlx_array* data, size_t n) {
  return guarded([&] { put(out, collect(data, n)); });
}
AXLM_API int mlx_vector_array_free(mlx_vector_array v) {
  return destroy<Arrays>(v);
}
AXLM_API size_t mlx_vector_array_size(mlx_vector_array v) {
  return guarded_value<size_t>(0, [&] { return arrays(v).size(); });
}
AXLM_API int mlx_vector_array_get(mlx_array* out, mlx_vector_array v, size_t i) {
  return guarded([&] { put(out, mx::array(arrays(v).at(i))); });
}

AXLM_API mlx_vector_string mlx_vector_string_new_data(const char** data, size_t n) {
  return guarded_value(
      mlx_vector_string{nullptr}, [&] { return mlx_vector_string{new Strings(data, data + n)}; });
}
AXLM_API int mlx_vector_string_free(mlx_vector_string v) {
  return destroy<Strings>(v);
}
AXLM_API size_t mlx_vector_string_size(mlx_vector_string v) {
  return guarded_value<size_t>(0, [&] { return strings(v).size(); });
}
AXLM_API int mlx_vector_string_get(char** out, mlx_vector_string v, size_t i) {
  return guarded([&] { *out = strings(v).at(i).data(); });
}

AXLM_API const char* mlx_string_data(mlx_string s) {
  return guarded_value<const char*>(nullptr, [&] { return get<std::string>(s, "mlx_string").c_str(); });
}
AXLM_API int mlx_string_free(mlx_string s) {
  return destroy<std::string>(s);
}
AXLM_API int mlx_version(mlx_string* out) {
  return guarded([&] { put(out, std::string(mx::version())); });
}

// Iterators end with 2, so that the end is neither success nor an error.
constexpr int kEnd = 2;

namespace {

template <typename Map, typename Iterator, typename Store>
int advance(Iterator it, const char** key, Store&& store) {
  bool end = false;
  int rc = guarded([&] {
    auto& position = get<typename Map::iterator>(it, "map iterator");
    if (position == static_cast<Map*>(it.map_ctx)->end()) {
      end = true;
      return;
    }
    *key = position->first.c_str();
    store(position->second);
    ++position;
  });
  return rc ? rc : end ? kEnd : 0;
}

} // namespace

AXLM_API mlx_map_string_to_array mlx_map_string_to_array_new(void) {
  return guarded_value(
      mlx_map_string_to_array{nullptr}, [] { return mlx_map_string_to_array{new ArrayMap()}; });
}
AXLM_API int mlx_map_string_to_array_free(mlx_map_string_to_array map) {
  return destroy<ArrayMap>(map);
}
AXLM_API int mlx_map_string_to_array_insert(mlx_map_string_to_array map, const char* key, mlx_array value) {
  return guarded([&] { array_map(map).insert_or_assign(key, array(value)); });
}
AXLM_API mlx_map_string_to_array_iterator mlx_map_string_to_array_iterator_new(mlx_map_string_to_array map) {
  return guarded_value(mlx_map_string_to_array_iterator{nullptr, nullptr}, [&] {
    auto& m = array_map(map);
    return mlx_map_string_to_array_iterator{new ArrayMap::iterator(m.begin()), &m};
  });
}
AXLM_API int mlx_map_string_to_array_iterator_free(mlx_map_string_to_array_iterator it) {
  return destroy<ArrayMap::iterator>(it);
}
AXLM_API int mlx_map_string_to_array_iterator_next(
    const char** key,
    mlx_array* value,
    mlx_map_string_to_array_iterator it) {
  return advance<ArrayMap>(it, key, [&](mx::array& a) { put(value, mx::array(a)); });
}

AXLM_API mlx_map_string_to_string mlx_map_string_to_string_new(void) {
  return guarded_value(
      mlx_map_string_to_string{nullptr}, [] { return mlx_map_string_to_string{new StringMap()}; });
}
AXLM_API int mlx_map_string_to_string_free(mlx_map_string_to_string map) {
  return destroy<StringMap>(map);
}
AXLM_API int mlx_map_string_to_string_insert(mlx_map_string_to_string map, const char* key, const char* value) {
  return guarded([&] { string_map(map).insert_or_assign(key, value); });
}
AXLM_API mlx_map_string_to_string_iterator mlx_map_string_to_string_iterator_new(mlx_map_string_to_string map) {
  return guarded_value(mlx_map_string_to_string_iterator{nullptr, nullptr}, [&] {
    auto& m = string_map(map);
    return mlx_map_string_to_string_iterator{new StringMap::iterator(m.begin()), &m};
  });
}
AXLM_API int mlx_map_string_to_string_iterator_free(mlx_map_string_to_string_iterator it) {
  return destroy<StringMap::iterator>(it);
}
AXLM_API int mlx_map_string_to_string_iterator_next(
    const char** key,
    const char** value,
    mlx_map_string_to_string_iterator it) {
  return advance<StringMap>(it, key, [&](std::string& s) { *value = s.c_str(); });
}
