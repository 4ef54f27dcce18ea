#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/base/key_device.h"
#include "lopt/base/replica_device.h"

namespace lopt {

// The quadratics of tasks/quadratic/quadratic.h and tasks/quadratic/linear_task.h on a device.
struct QuadraticDevice {
  enum class Kind { kPlain, kTarget, kNoisy, kLog, kLinear };

  struct Args {
    Kind kind;
    int64_t dim;
    float factor;  // of what is drawn: cov of kNoisy, the scale of kLinear
  };

  static int64_t ScratchFloats(const Args&, int threads) { return threads; }

  static LOPT_DEVICE_INLINE void Evaluate(const Block& block, const Args& args,
                                          const DeviceEvaluation& e, const Replica& replica) {
    const float* x = replica.params;
    float* partial = replica.scratch;
    const float* center = e.config;
    const float* scale = e.config + args.dim;
    const auto distance = [&](int64_t i) {
      if (args.kind == Kind::kTarget) return x[i] - center[i];
      if (args.kind == Kind::kNoisy) return scale[i] * (x[i] - center[i]);
      return x[i];
    };
    const auto noise = [&](int64_t i) { return NormalAt(e.key, static_cast<uint64_t>(i)); };
    // What is summed up.
    const auto term = [&](int64_t i) {
      return distance(i) * (args.kind == Kind::kLinear ? args.factor * noise(i) : distance(i));
    };
    block.ForEachThread([&](int thread) {
      float sum = 0;
      for (int64_t i = thread; i < args.dim; i += block.threads()) sum += term(i);
      partial[thread] = sum;
    });
    SumOverThreads(block, 1, partial, replica.loss);
    const float sum = *replica.loss;
    if (e.gradient) {
      float* gradient = replica.gradient;
      block.ForEach(args.dim, [&](int64_t i) {
        if (args.kind == Kind::kLinear) {
          gradient[i] = args.factor * noise(i);
        } else if (args.kind == Kind::kNoisy) {
          gradient[i] = 2 * scale[i] * distance(i) + args.factor * noise(i) * x[i];
        } else {
          gradient[i] = args.kind == Kind::kLog ? 2 * x[i] / sum : 2 * distance(i);
        }
      });
    }
    if (args.kind == Kind::kLog) {
      block.Once([&] { *replica.loss = std::log(sum); });
    }
  }
};

}  // namespace lopt
