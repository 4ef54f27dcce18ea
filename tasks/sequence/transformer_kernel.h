#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/sequence/transformer.h"

namespace lopt {

// A part of a batch of sequences of bytes: one after the other in `bytes` and `next`, which may be
// read kSpareRows beyond their end.
struct BytePart {
  std::span<const int32_t> bytes;
  std::span<const int32_t> next;
  int64_t sequences;
  float scale;
  bool add;
};

// The mean softmax cross-entropy over all bytes of the sequences, of each the next byte's, and,
// where wanted, its gradient, in single precision on the instruction set that base/isa.h names.
// Bytes that are right are those of the result. The same inputs give the same bits on one
// instruction set.
ClassifierResult ByteTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                     const ByteSequences& sequences, Workspace& scratch);

// The same of the images' classes; and their logits.
ClassifierResult ImageTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                      const PatchSequences& sequences, Workspace& scratch);

}  // namespace lopt
