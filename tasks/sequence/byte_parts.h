#pragma once

// For kernels alone.

#include <algorithm>
#include <cstdint>
#include <span>

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/layers/batch_parts-inl.h"
#include "lopt/tasks/layers/softmax_layer.h"
#include "lopt/tasks/sequence/byte_sequences.h"

namespace lopt {

// A part of a batch of sequences that a kernel takes at a time: one after the other in `bytes` and
// `next`, which may be read kSpareRows beyond their end.
struct BytePart {
  std::span<const int32_t> bytes;
  std::span<const int32_t> next;  // behind each of them
  int64_t sequences;
  float scale;  // 1 / bytes of the whole batch
  bool add;     // whether there are parts before, to whose gradient that of this one is added
};

// The mean over all bytes from run(part), which gives the LossSums of at most `most` sequences.
template <class Run>
ClassifierResult SumOverByteParts(const ByteSequences& of, int64_t most, Workspace& scratch,
                                  const Run& run) {
  const Workspace::Frame frame(scratch);
  const std::span<int32_t> bytes = scratch.Take<int32_t>(most * of.length + kSpareRows);
  const std::span<int32_t> next = scratch.Take<int32_t>(most * of.length + kSpareRows);
  const auto count = std::ssize(of.examples);
  LossSums sums;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t size = std::min(most, count - first);
    for (int64_t i = 0; i < size; ++i) {
      const uint8_t* from = of.text + of.starts[of.examples[first + i]];
      std::copy_n(from, of.length, bytes.begin() + i * of.length);
      std::copy_n(from + 1, of.length, next.begin() + i * of.length);
    }
    std::fill_n(&next[size * of.length], kSpareRows, 0);
    const LossSums more = run(BytePart{.bytes = bytes.first(size * of.length),
                                       .next = next.first(size * of.length),
                                       .sequences = size,
                                       .scale = 1 / static_cast<float>(count * of.length),
                                       .add = first > 0});
    sums.loss += more.loss;
    sums.correct += more.correct;
  }
  return {static_cast<float>(sums.loss / static_cast<double>(count * of.length)), sums.correct};
}

}  // namespace lopt
