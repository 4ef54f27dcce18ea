#pragma once

#include <cstdint>

namespace lopt {

// The examples that softmax_layer-inl.h takes at a time.
constexpr int64_t kMaxExamples = 256;

// What it sums over examples.
struct LossSums {
  double loss = 0;
  int64_t correct = 0;  // examples whose largest logit is that of their label
};

}  // namespace lopt
