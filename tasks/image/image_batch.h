#pragma once

#include <cstdint>
#include <span>

namespace lopt {

// What a network sees of images: row r is images[r * stride, + features) with class labels[r], and
// the batch is the rows that `examples` names, in order. Rows are 64-byte aligned, `stride` is a
// multiple of 16, and zeros follow the features up to such a multiple.
struct ImageBatch {
  const float* images;
  int64_t stride;
  const uint8_t* labels;
  std::span<const int32_t> examples;
};

// The mean softmax cross-entropy and the number of examples that are right: the label has the
// largest logit (the first of equals), and the loss is a number.
struct ClassifierResult {
  float loss;
  int64_t correct;
};

}  // namespace lopt
