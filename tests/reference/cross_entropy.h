#pragma once

#include <cstdint>
#include <span>

namespace lopt {

struct CrossEntropyResult {
  double loss;
  bool correct;  // as in ClassifierResult
};

// The softmax cross-entropy of one example, in plain loops and double precision; the logits become
// its gradient with respect to them.
CrossEntropyResult CrossEntropy(std::span<double> logits, int64_t label);

}  // namespace lopt
