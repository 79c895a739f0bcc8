// Evaluation, and functions that are traced and compiled.
#include <functional>
#include <memory>

#include "common.h"
#include "mlx/compile.h"
#include "mlx/transforms.h"

using namespace axlm;

namespace {

using Function = std::function<Arrays(const Arrays&)>;

// Owns one vector handle for the time of a callback.
struct OwnedVector {
  mlx_vector_array handle{nullptr};
  ~OwnedVector() {
    delete static_cast<Arrays*>(handle.ctx);
  }
};

} // namespace

AXLM_API int mlx_eval(mlx_vector_array outputs) {
  return guarded([&] { mx::eval(arrays(outputs)); });
}
AXLM_API int mlx_async_eval(mlx_vector_array outputs) {
  return guarded([&] { mx::async_eval(arrays(outputs)); });
}

AXLM_API mlx_closure
mlx_closure_new_func_payload(axlm_closure_func call, void* payload, axlm_destructor destructor) {
  return guarded_value(mlx_closure{nullptr}, [&] {
    // Copies of the function share the payload; the last one releases it.
    std::shared_ptr<void> shared(payload, destructor ? destructor : [](void*) {});
    Function function = [call, shared](const Arrays& inputs) {
      OwnedVector in;
      OwnedVector out;
      put(&in.handle, Arrays(inputs));
      if (call(&out.handle, in.handle, shared.get()) != 0) {
        throw std::runtime_error("the traced function failed");
      }
      return out.handle.ctx ? std::move(arrays(out.handle)) : Arrays();
    };
    return mlx_closure{new Function(std::move(function))};
  });
}
AXLM_API int mlx_closure_free(mlx_closure f) {
  return destroy<Function>(f);
}
AXLM_API int mlx_closure_apply(mlx_vector_array* out, mlx_closure f, mlx_vector_array inputs) {
  return guarded([&] { put(out, get<Function>(f, "mlx_closure")(arrays(inputs))); });
}

AXLM_API int mlx_compile(mlx_closure* out, mlx_closure f, bool shapeless) {
  return guarded([&] { put(out, mx::compile(get<Function>(f, "mlx_closure"), shapeless)); });
}
AXLM_API int mlx_enable_compile(void) {
  return guarded([] { mx::enable_compile(); });
}
AXLM_API int mlx_disable_compile(void) {
  return guarded([] { mx::disable_compile(); });
}
