#include "lopt/torch/call.h"

#include "lopt/torch/blas.h"

namespace lopt {

void KeepTorchOnOneThread() {
  at::set_num_threads(1);
  KeepBlasOnOneThread();
}

std::unique_lock<std::mutex> LockBlas() {
  static std::mutex mutex;
  return BlasIsThreadSafe() ? std::unique_lock<std::mutex>() : std::unique_lock(mutex);
}

}  // namespace lopt
