#pragma once

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <mutex>

#include "lopt/base/error.h"

namespace lopt {

// Has LibTorch and its BLAS use the calling thread alone, from now on.
void KeepTorchOnOneThread();

// A lock that keeps other threads out where the BLAS is not thread-safe (torch/blas.h); else none.
// The thread that has it may ask again: a loss may call another task.
std::unique_lock<std::recursive_mutex> LockBlas();

// Calls `body`; what torch throws becomes an Error: "`what` failed: ...".
template <class Body>
auto WithTorchErrors(const char* what, const Body& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    Fail("{} failed: {}", what, error.what_without_backtrace());
  }
}

// The same on this thread alone, and one thread at a time where the BLAS needs it.
template <class Body>
auto CallTorch(const char* what, const Body& body) {
  // Torch's number of threads reaches a new thread only with the first parallel loop of its own.
  at::internal::lazy_init_num_threads();
  const auto lock = LockBlas();
  return WithTorchErrors(what, body);
}

}  // namespace lopt
