// Devices, streams and the allocator's counters and limits.
#include <string>
#include <unordered_map>
#include <variant>

#include "common.h"
#include "containers.h"
#include "mlx/backend/cuda/cuda.h"
#include "mlx/backend/metal/metal.h"
#include "mlx/device.h"
#include "mlx/memory.h"

using namespace axlm;

namespace {

using DeviceInfo = std::unordered_map<std::string, std::variant<std::string, size_t>>;

// Lookups of a key that is absent, or of the other type, end with 2: not an error, but no value.
constexpr int kNoValue = 2;

mx::Device& device(mlx_device d) {
  return get<mx::Device>(d, "mlx_device");
}

mx::Device::DeviceType device_type(mlx_device_type type) {
  switch (type) {
    case 0:
      return mx::Device::cpu;
    case 1:
      return mx::Device::gpu;
  }
  throw std::invalid_argument("unknown device type " + std::to_string(type));
}

template <typename T, typename Store>
int lookup(mlx_device_info info, const char* key, Store&& store) {
  bool found = false;
  int rc = guarded([&] {
    auto& map = get<DeviceInfo>(info, "mlx_device_info");
    auto it = map.find(key);
    if (it != map.end()) {
      if (auto* value = std::get_if<T>(&it->second)) {
        found = true;
        store(*value);
      }
    }
  });
  return rc ? rc : found ? 0 : kNoValue;
}

} // namespace

AXLM_API mlx_device mlx_device_new_type(mlx_device_type type, int index) {
  return guarded_value(
      mlx_device{nullptr}, [&] { return mlx_device{new mx::Device(device_type(type), index)}; });
}
AXLM_API int mlx_device_free(mlx_device d) {
  return destroy<mx::Device>(d);
}
AXLM_API int mlx_device_get_index(int* index, mlx_device d) {
  return guarded([&] { *index = device(d).index; });
}
AXLM_API int mlx_device_get_type(mlx_device_type* type, mlx_device d) {
  return guarded([&] { *type = device(d).type == mx::Device::cpu ? 0 : 1; });
}
AXLM_API int mlx_get_default_device(mlx_device* out) {
  return guarded([&] { put(out, mx::Device(mx::default_device())); });
}
AXLM_API int mlx_set_default_device(mlx_device d) {
  return guarded([&] { mx::set_default_device(device(d)); });
}
AXLM_API int mlx_device_is_available(bool* result, mlx_device d) {
  return guarded([&] { *result = mx::is_available(device(d)); });
}
AXLM_API int mlx_metal_is_available(bool* result) {
  return guarded([&] { *result = mx::metal::is_available(); });
}
AXLM_API int mlx_cuda_is_available(bool* result) {
  return guarded([&] { *result = mx::cu::is_available(); });
}

AXLM_API int mlx_device_info_free(mlx_device_info info) {
  return destroy<DeviceInfo>(info);
}
AXLM_API int mlx_device_info_get(mlx_device_info* out, mlx_device d) {
  return guarded([&] { put(out, DeviceInfo(mx::device_info(device(d)))); });
}
AXLM_API int mlx_device_info_get_keys(mlx_vector_string* out, mlx_device_info info) {
  return guarded([&] {
    Strings keys;
    for (auto& entry : get<DeviceInfo>(info, "mlx_device_info")) {
      keys.push_back(entry.first);
    }
    put(out, std::move(keys));
  });
}
AXLM_API int mlx_device_info_get_string(const char** value, mlx_device_info info, const char* key) {
  return lookup<std::string>(info, key, [&](std::string& s) { *value = s.c_str(); });
}
AXLM_API int mlx_device_info_get_size(size_t* value, mlx_device_info info, const char* key) {
  return lookup<size_t>(info, key, [&](size_t n) { *value = n; });
}

AXLM_API mlx_stream mlx_stream_new_device(mlx_device d) {
  return guarded_value(
      mlx_stream{nullptr}, [&] { return mlx_stream{new mx::Stream(mx::new_stream(device(d)))}; });
}
AXLM_API int mlx_stream_free(mlx_stream s) {
  return destroy<mx::Stream>(s);
}
AXLM_API int mlx_get_default_stream(mlx_stream* out, mlx_device d) {
  return guarded([&] { put(out, mx::Stream(mx::default_stream(device(d)))); });
}
AXLM_API int mlx_set_default_stream(mlx_stream s) {
  return guarded([&] { mx::set_default_stream(stream(s)); });
}
AXLM_API int mlx_stream_get_device(mlx_device* out, mlx_stream s) {
  return guarded([&] { put(out, mx::Device(stream(s).device)); });
}
AXLM_API int mlx_synchronize(mlx_stream s) {
  return guarded([&] { mx::synchronize(stream(s)); });
}

AXLM_API int mlx_clear_cache(void) {
  return guarded([] { mx::clear_cache(); });
}
AXLM_API int mlx_get_active_memory(size_t* out) {
  return guarded([&] { *out = mx::get_active_memory(); });
}
AXLM_API int mlx_get_cache_memory(size_t* out) {
  return guarded([&] { *out = mx::get_cache_memory(); });
}
AXLM_API int mlx_get_peak_memory(size_t* out) {
  return guarded([&] { *out = mx::get_peak_memory(); });
}
AXLM_API int mlx_reset_peak_memory(void) {
  return guarded([] { mx::reset_peak_memory(); });
}
AXLM_API int mlx_set_wired_limit(size_t* out, size_t limit) {
  return guarded([&] { *out = mx::set_wired_limit(limit); });
}
