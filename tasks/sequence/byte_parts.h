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

// A part of a batch, which a kernel takes at a time. Its sequences lie one after the other. `next`
// may be read kSpareRows beyond its end.
struct BytePart {
  std::span<const int32_t> bytes;
  std::span<const int32_t> next;  // the byte after each
  int64_t sequences;
  float scale;  // 1 / bytes of the whole batch
  bool add;     // whether there are parts before, to whose gradient that of this one is added
};

// The result over all bytes. run(part) gives the LossSums of a part of at most `most` sequences.
template <class Run>
ClassifierResult SumOverByteParts(const ByteSequences& of, int64_t most, Workspace& scratch,
                                  const Run& run) {
  const Workspace::Frame frame(scratch);
  const auto count = std::ssize(of.examples);
  most = std::min(most, count);
  const std::span<int32_t> bytes = scratch.Take<int32_t>(most * of.length);
  const std::span<int32_t> next = scratch.Take<int32_t>(most * of.length + kSpareRows);
  const LossSums sums = SumOfParts(count, most, [&](int64_t first, int64_t size) {
    for (int64_t i = 0; i < size; ++i) {
      const uint8_t* from = of.text + of.starts[of.examples[first + i]];
      std::copy_n(from, of.length, bytes.begin() + i * of.length);
      std::copy_n(from + 1, of.length, next.begin() + i * of.length);
    }
    std::fill_n(&next[size * of.length], kSpareRows, 0);
    return run(BytePart{.bytes = bytes.first(size * of.length),
                        .next = next.first(size * of.length),
                        .sequences = size,
                        .scale = 1 / static_cast<float>(count * of.length),
                        .add = first > 0});
  });
  return {static_cast<float>(sums.loss / static_cast<double>(count * of.length)), sums.correct};
}

}  // namespace lopt
