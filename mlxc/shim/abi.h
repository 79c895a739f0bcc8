// The part of the mlx-c 0.6.0 C ABI that the Go binding uses, declared in our own terms:
// every object handle is a struct of one pointer, passed and returned by value.
#pragma once

#include <cstddef>
#include <cstdint>

#define AXLM_API extern "C" __attribute__((visibility("default")))

extern "C" {

#define AXLM_HANDLE(name) \
  struct name {           \
    void* ctx;            \
  }

AXLM_HANDLE(mlx_array);
AXLM_HANDLE(mlx_stream);
AXLM_HANDLE(mlx_device);
AXLM_HANDLE(mlx_device_info);
AXLM_HANDLE(mlx_string);
AXLM_HANDLE(mlx_closure);
AXLM_HANDLE(mlx_vector_array);
AXLM_HANDLE(mlx_vector_string);
AXLM_HANDLE(mlx_map_string_to_array);
AXLM_HANDLE(mlx_map_string_to_string);
AXLM_HANDLE(mlx_fast_metal_kernel);
AXLM_HANDLE(mlx_fast_metal_kernel_config);
AXLM_HANDLE(mlx_fast_cuda_kernel);
AXLM_HANDLE(mlx_fast_cuda_kernel_config);

#undef AXLM_HANDLE

struct mlx_map_string_to_array_iterator {
  void* ctx;
  void* map_ctx;
};
struct mlx_map_string_to_string_iterator {
  void* ctx;
  void* map_ctx;
};

// Enumerations travel as plain ints; the numbers are fixed by mlx-c.
using mlx_dtype = int;
using mlx_device_type = int;

struct mlx_optional_int {
  int value;
  bool has_value;
};
struct mlx_optional_float {
  float value;
  bool has_value;
};
struct mlx_optional_dtype {
  mlx_dtype value;
  bool has_value;
};

using mlx_error_handler_func = void (*)(const char* message, void* data);
using axlm_destructor = void (*)(void*);
using axlm_closure_func = int (*)(mlx_vector_array* result, mlx_vector_array input, void* payload);
}
