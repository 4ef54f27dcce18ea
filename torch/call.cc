#include "lopt/torch/call.h"

#include "lopt/torch/blas.h"

namespace lopt {

void KeepTorchOnOneThread() {
  at::set_num_threads(1);
  KeepBlasOnOneThread();
}

std::unique_lock<std::recursive_mutex> LockBlas() {
  static std::recursive_mutex mutex;
  return BlasIsThreadSafe() ? std::unique_lock<std::recursive_mutex>() : std::unique_lock(mutex);
}

}  // namespace lopt
