#include "lopt/torch/blas.h"

#include <dlfcn.h>

namespace lopt {
namespace {

// A function of OpenBLAS; null where another library is the BLAS.
template <class Function>
Function* OpenBlas(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

bool BlasIsThreadSafe() {
  // 0: built without threads, 1: POSIX threads, 2: OpenMP.
  static auto* const parallel = OpenBlas<int()>("openblas_get_parallel");
  return parallel == nullptr || parallel() != 0;
}

void KeepBlasOnOneThread() {
  if (auto* const set = OpenBlas<void(int)>("openblas_set_num_threads")) set(1);
}

}  // namespace lopt
