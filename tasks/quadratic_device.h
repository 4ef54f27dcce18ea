#pragma once

#include <cmath>
#include <cstdint>

#include "base/block_device.h"
#include "base/key_device.h"
#include "base/replica_device.h"

namespace lopt {

// The quadratics of tasks/quadratic.h on a device.
struct QuadraticDevice {
  enum class Kind { kPlain, kTarget, kNoisy, kLog };

  struct Args {
    Kind kind;
    int64_t dim;
    float cov;  // of kNoisy
  };

  static int64_t ScratchFloats(const Args&, int threads) { return threads; }

  static LOPT_DEVICE_INLINE void Evaluate(const Block& block, const Args& args,
                                          const DeviceEvaluation& e, const Replica& replica) {
    const float* x = replica.params;
    float* partial = replica.scratch;
    const float* center = e.config;
    const float* scale = e.config + args.dim;
    // What is squared and summed up.
    const auto distance = [&](int64_t i) {
      if (args.kind == Kind::kTarget) return x[i] - center[i];
      if (args.kind == Kind::kNoisy) return scale[i] * (x[i] - center[i]);
      return x[i];
    };
    block.ForEachThread([&](int thread) {
      float sum = 0;
      for (int64_t i = thread; i < args.dim; i += block.threads()) sum += distance(i) * distance(i);
      partial[thread] = sum;
    });
    SumOverThreads(block, 1, partial, replica.loss);
    const float sum = *replica.loss;
    if (e.gradient) {
      float* gradient = replica.gradient;
      block.ForEach(args.dim, [&](int64_t i) {
        gradient[i] = args.kind == Kind::kNoisy
                          ? 2 * scale[i] * distance(i) + args.cov * NormalAt(e.key, i) * x[i]
                      : args.kind == Kind::kLog ? 2 * x[i] / sum
                                                : 2 * distance(i);
      });
    }
    if (args.kind == Kind::kLog) {
      block.Once([&] { *replica.loss = std::log(sum); });
    }
  }
};

}  // namespace lopt
