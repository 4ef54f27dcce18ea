#pragma once

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/layers/softmax_layer.h"

namespace lopt {

// A part of a batch that a kernel takes at a time. `rows` and `labels` may be read kSpareRows
// beyond their end.
struct BatchPart {
  std::span<const float* const> rows;
  std::span<const int32_t> labels;
  float scale;    // 1 / examples of the whole batch
  int64_t first;  // of its examples, among those of the whole batch
  // Whether there are parts before, to whose gradient that of this one is added.
  bool add() const { return first > 0; }
};

// Where the logits of a part go, of those of the whole batch [examples, classes]; null: nowhere.
inline float* LogitsOfPart(std::span<float> logits, int64_t classes, const BatchPart& part) {
  return logits.empty() ? nullptr : logits.data() + part.first * classes;
}

// Those of a panel or a tile.
constexpr int64_t kSpareRows = 32;

// The sums over n examples of run(first, size), which has at most `most` of them at a time.
template <class Run>
LossSums SumOfParts(int64_t n, int64_t most, const Run& run) {
  LossSums sums;
  for (int64_t first = 0; first < n; first += most) {
    const LossSums more = run(first, std::min(most, n - first));
    sums.loss += more.loss;
    sums.correct += more.correct;
  }
  return sums;
}

// The result of a batch from run(part), which gives the LossSums of at most `most` examples.
template <class Run>
ClassifierResult SumOverParts(const ImageBatch& batch, int64_t most, Workspace& scratch,
                              const Run& run) {
  const Workspace::Frame frame(scratch);
  const std::span<const float*> rows = scratch.Take<const float*>(most + kSpareRows);
  const std::span<int32_t> labels = scratch.Take<int32_t>(most + kSpareRows);
  const auto count = static_cast<int64_t>(batch.examples.size());
  const LossSums sums = SumOfParts(count, most, [&](int64_t first, int64_t size) {
    const int32_t* examples = &batch.examples[first];
    for (int64_t i = 0; i < size; ++i) rows[i] = batch.images + examples[i] * batch.stride;
    for (int64_t i = 0; i < std::min<int64_t>(size, 16); ++i) hwy::Prefetch(rows[i]);
    for (int64_t i = 0; i < size; ++i) labels[i] = batch.labels[examples[i]];
    std::fill_n(&rows[size], kSpareRows, rows[0]);
    std::fill_n(&labels[size], kSpareRows, 0);
    return run(BatchPart{.rows = rows.first(size),
                         .labels = labels.first(size),
                         .scale = 1 / static_cast<float>(count),
                         .first = first});
  });
  return {static_cast<float>(sums.loss / static_cast<double>(count)), sums.correct};
}

}  // namespace lopt
