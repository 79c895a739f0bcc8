// The error handler through which every failure's text reaches the caller.
#include <cstdio>
#include <memory>
#include <mutex>

#include "common.h"

namespace {

struct Handler {
  mlx_error_handler_func call = nullptr;
  std::shared_ptr<void> data;
};

std::mutex handler_mutex;

Handler& installed() {
  static Handler handler;
  return handler;
}

} // namespace

namespace axlm {

void report(const char* message) noexcept {
  Handler handler;
  {
    std::lock_guard lock(handler_mutex);
    handler = installed();
  }
  if (handler.call) {
    handler.call(message, handler.data.get());
  } else {
    std::fprintf(stderr, "mlx: %s\n", message);
  }
}

} // namespace axlm

AXLM_API void mlx_set_error_handler(mlx_error_handler_func call, void* data, axlm_destructor destructor) {
  axlm::guarded([&] {
    Handler handler;
    handler.call = call;
    handler.data = destructor ? std::shared_ptr<void>(data, destructor) : std::shared_ptr<void>(data, [](void*) {});
    std::lock_guard lock(handler_mutex);
    std::swap(installed(), handler);
  });
}
