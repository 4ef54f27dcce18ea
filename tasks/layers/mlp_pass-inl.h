#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "lopt/tasks/image/image_mlp_problem.h"
#include "lopt/tasks/layers/batch_parts-inl.h"

namespace lopt {

// What a kernel computes of a part of a batch.
struct MlpPass {
  const MlpShape& shape;
  Activation activation;
  const float* params;
  float* statistics;
  bool train;
  MlpTargets targets;
  BatchPart part;
  float* gradient;  // null: not wanted
  float* logits;    // of the part, [examples, outputs]; null: not wanted
};

inline MlpPass MakeMlpPass(const MlpShape& shape, const MlpEvaluation& e, const BatchPart& part) {
  return {.shape = shape,
          .activation = e.activation,
          .params = e.params.data(),
          .statistics = e.statistics.data(),
          .train = e.train,
          .targets = e.targets,
          .part = part,
          .gradient = e.gradient.empty() ? nullptr : e.gradient.data(),
          .logits = LogitsOfPart(e.logits, shape.sizes.back(), part)};
}

// How many examples a pass takes at a time: the statistics of a batch need all of it.
inline int64_t MostExamplesOfPass(const MlpShape& shape, const MlpEvaluation& e) {
  const bool whole = shape.norm == Norm::kBatch && e.train;
  return whole ? std::max(kMaxExamples, std::ssize(e.batch.examples)) : kMaxExamples;
}

}  // namespace lopt
