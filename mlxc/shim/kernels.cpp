// Custom kernels, compiled by MLX from source: Metal and CUDA share everything but their construction.
#include <optional>
#include <tuple>

#include "common.h"
#include "containers.h"
#include "mlx/fast.h"

using namespace axlm;

namespace {

using Kernel = mx::fast::CustomKernelFunction;

// What one way of launching a kernel needs besides its inputs.
struct Config {
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> types;
  std::tuple<int, int, int> grid{1, 1, 1};
  std::tuple<int, int, int> group{1, 1, 1};
  std::vector<std::pair<std::string, mx::fast::TemplateArg>> arguments;
  std::optional<float> init;
  bool verbose = false;
};

Config& config(void* ctx) {
  return get<Config>(mlx_array{ctx}, "kernel configuration");
}

int apply(mlx_vector_array* out, void* kernel, mlx_vector_array inputs, void* configuration, mlx_stream s) {
  return guarded([&] {
    auto& c = config(configuration);
    auto& k = get<Kernel>(mlx_array{kernel}, "kernel");
    put(out, k(arrays(inputs), c.shapes, c.types, c.grid, c.group, c.arguments, c.init, c.verbose, stream(s)));
  });
}

} // namespace

#define KERNEL_API(prefix)                                                                                    \
  AXLM_API prefix##_config prefix##_config_new(void) {                                                        \
    return guarded_value(prefix##_config{nullptr}, [] { return prefix##_config{new Config()}; });             \
  }                                                                                                           \
  AXLM_API void prefix##_config_free(prefix##_config c) {                                                     \
    destroy<Config>(c);                                                                                       \
  }                                                                                                           \
  AXLM_API int prefix##_config_add_output_arg(prefix##_config c, const int* dims, size_t n, mlx_dtype type) { \
    return guarded([&] {                                                                                      \
      auto& cfg = config(c.ctx);                                                                              \
      auto element = dtype(type);                                                                             \
      cfg.shapes.push_back(shape(dims, n));                                                                   \
      cfg.types.push_back(element);                                                                           \
    });                                                                                                       \
  }                                                                                                           \
  AXLM_API int prefix##_config_set_grid(prefix##_config c, int x, int y, int z) {                             \
    return guarded([&] { config(c.ctx).grid = {x, y, z}; });                                                  \
  }                                                                                                           \
  AXLM_API int prefix##_config_set_thread_group(prefix##_config c, int x, int y, int z) {                     \
    return guarded([&] { config(c.ctx).group = {x, y, z}; });                                                 \
  }                                                                                                           \
  AXLM_API int prefix##_config_set_init_value(prefix##_config c, float value) {                               \
    return guarded([&] { config(c.ctx).init = value; });                                                      \
  }                                                                                                           \
  AXLM_API int prefix##_config_set_verbose(prefix##_config c, bool verbose) {                                 \
    return guarded([&] { config(c.ctx).verbose = verbose; });                                                 \
  }                                                                                                           \
  AXLM_API int prefix##_config_add_template_arg_dtype(prefix##_config c, const char* name, mlx_dtype type) {  \
    return guarded([&] { config(c.ctx).arguments.emplace_back(name, dtype(type)); });                         \
  }                                                                                                           \
  AXLM_API int prefix##_config_add_template_arg_int(prefix##_config c, const char* name, int value) {         \
    return guarded([&] { config(c.ctx).arguments.emplace_back(name, value); });                               \
  }                                                                                                           \
  AXLM_API int prefix##_config_add_template_arg_bool(prefix##_config c, const char* name, bool value) {       \
    return guarded([&] { config(c.ctx).arguments.emplace_back(name, value); });                               \
  }                                                                                                           \
  AXLM_API void prefix##_free(prefix k) {                                                                     \
    destroy<Kernel>(k);                                                                                       \
  }                                                                                                           \
  AXLM_API int prefix##_apply(                                                                                \
      mlx_vector_array* out, prefix k, mlx_vector_array inputs, prefix##_config c, mlx_stream s) {            \
    return apply(out, k.ctx, inputs, c.ctx, s);                                                               \
  }

KERNEL_API(mlx_fast_metal_kernel)
KERNEL_API(mlx_fast_cuda_kernel)

AXLM_API mlx_fast_metal_kernel mlx_fast_metal_kernel_new(
    const char* name,
    mlx_vector_string inputs,
    mlx_vector_string outputs,
    const char* source,
    const char* header,
    bool row_contiguous,
    bool atomic_outputs) {
  return guarded_value(mlx_fast_metal_kernel{nullptr}, [&] {
    return mlx_fast_metal_kernel{new Kernel(mx::fast::metal_kernel(
        name, strings(inputs), strings(outputs), source, header, row_contiguous, atomic_outputs))};
  });
}
AXLM_API mlx_fast_cuda_kernel mlx_fast_cuda_kernel_new(
    const char* name,
    mlx_vector_string inputs,
    mlx_vector_string outputs,
    const char* source,
    const char* header,
    bool row_contiguous,
    int shared_memory) {
  return guarded_value(mlx_fast_cuda_kernel{nullptr}, [&] {
    return mlx_fast_cuda_kernel{new Kernel(mx::fast::cuda_kernel(
        name, strings(inputs), strings(outputs), source, header, row_contiguous, shared_memory))};
  });
}
