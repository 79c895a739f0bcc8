// Reading and writing safetensors files.
#include "common.h"
#include "containers.h"
#include "mlx/io.h"

using namespace axlm;

AXLM_API int mlx_load_safetensors(
    mlx_map_string_to_array* out,
    mlx_map_string_to_string* metadata,
    const char* file,
    mlx_stream s) {
  return guarded([&] {
    auto loaded = mx::load_safetensors(std::string(file), stream(s));
    put(out, std::move(loaded.first));
    put(metadata, std::move(loaded.second));
  });
}
AXLM_API int
mlx_save_safetensors(const char* file, mlx_map_string_to_array values, mlx_map_string_to_string metadata) {
  return guarded([&] { mx::save_safetensors(std::string(file), array_map(values), string_map(metadata)); });
}
