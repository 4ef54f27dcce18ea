#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/sequence/byte_sequences.h"
#include "lopt/tasks/sequence/transformer.h"

namespace lopt {

// The mean softmax cross-entropy over all bytes of the sequences, of each the next byte's, and,
// where wanted, its gradient, in single precision on the instruction set that base/isa.h names.
// `correct` counts bytes. The same inputs give the same bits on one
// instruction set.
ClassifierResult ByteTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                     const ByteSequences& sequences, Workspace& scratch);

// The same of the images' classes; and their logits.
ClassifierResult ImageTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                      const PatchSequences& sequences, Workspace& scratch);

}  // namespace lopt
