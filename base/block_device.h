#pragma once

#include <cstdint>

// Marks functions that a device runs as well as the host. Such functions are in headers called
// *_device.h, which include no others of the project; CUDA's compiler and the host's read the same
// text.
#ifdef __CUDACC__
#define LOPT_DEVICE __host__ __device__
// The same of a function that becomes a part of its kernel, so that no registers are saved around
// a call.
#define LOPT_DEVICE_INLINE __host__ __device__ __forceinline__
#define LOPT_UNROLL _Pragma("unroll")
#define LOPT_ROLLED _Pragma("unroll 1")
#else
#define LOPT_DEVICE
#define LOPT_DEVICE_INLINE inline
#define LOPT_UNROLL
#define LOPT_ROLLED
#endif

namespace lopt {

// Four neighbours, loaded and stored as one; at multiples of 16 bytes.
struct alignas(16) Float4 {
  float at[4];
};

// The order in which the host runs the threads of a phase, which must not matter.
enum class ThreadOrder { kForward, kBackward, kMixed };

// A block of threads that work on one thing, phase after phase: in a phase each thread does its
// part, and the next begins when all have done theirs. What one thread writes in a phase no other
// reads or writes in it. Between phases all threads compute the same from what they read; only
// inside a phase is anything written that others see. What is read between two phases the second of
// them does not write, as a thread may begin it while others still read: an empty phase comes
// first. On a device the threads are the device's, on the host a loop.
class Block {
 public:
  // `shared`: the block's memory on the host; on a device it is the launch's.
  LOPT_DEVICE Block(int threads, float* shared, ThreadOrder order = ThreadOrder::kForward)
      : threads_(threads), shared_(shared), order_(order) {}

  LOPT_DEVICE int threads() const { return threads_; }
  // Memory that the block's threads share, aligned to 16 bytes.
  LOPT_DEVICE float* shared() const {
#ifdef __CUDA_ARCH__
    extern __shared__ Float4 lopt_block_memory[];
    return lopt_block_memory->at;
#else
    return shared_;
#endif
  }

  // A phase: body(thread) for every thread.
  template <class Body>
  LOPT_DEVICE void ForEachThread(const Body& body) const {
#ifdef __CUDA_ARCH__
    body(static_cast<int>(threadIdx.x));
    __syncthreads();
#else
    for (int i = 0; i < threads_; ++i) {
      body(order_ == ThreadOrder::kForward    ? i
           : order_ == ThreadOrder::kBackward ? threads_ - 1 - i
                                              : static_cast<int>(i * int64_t{31} % threads_));
    }
#endif
  }
  // A phase: body(i) for i in [0, n), neighbours on neighbouring threads.
  template <class Body>
  LOPT_DEVICE void ForEach(int64_t n, const Body& body) const {
    ForEachThread([&](int thread) {
      for (int64_t i = thread; i < n; i += threads_) body(i);
    });
  }
  // A phase of one thread.
  template <class Body>
  LOPT_DEVICE void Once(const Body& body) const {
    ForEachThread([&](int thread) {
      if (thread == 0) body();
    });
  }

 private:
  int threads_;
  float* shared_;
  ThreadOrder order_;
};

// sums[k] = the sum over the threads of partial[k threads + thread], in a fixed order; k < count.
// `partial` [count, threads] is lost.
LOPT_DEVICE inline void SumOverThreads(const Block& block, int count, float* partial, float* sums) {
  const int threads = block.threads();
  constexpr int kRun = 8;  // numbers that one thread adds
  int left = threads;
  int stride = 1;
  for (; left > kRun; stride *= kRun) {
    const int runs = (left + kRun - 1) / kRun;
    // A sum goes to where the first of its run was, which no other thread reads.
    block.ForEach(int64_t{count} * runs, [&](int64_t i) {
      const auto first = static_cast<int>(i % runs) * kRun;
      float* at = partial + i / runs * threads;
      float sum = 0;
      for (int j = first; j < first + kRun && j < left; ++j) sum += at[j * stride];
      at[first * stride] = sum;
    });
    left = runs;
  }
  block.ForEach(count, [&](int64_t k) {
    float sum = 0;
    for (int j = 0; j < left; ++j) sum += partial[k * threads + j * stride];
    sums[k] = sum;
  });
}

}  // namespace lopt
