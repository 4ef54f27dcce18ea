#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/sequence/byte_sequences.h"
#include "lopt/tasks/sequence/transformer.h"

namespace lopt {

// The mean softmax cross-entropy of the next byte over all bytes of the sequences, and its gradient
// if wanted. It computes in single precision on base/isa.h's instruction set; on one set the same
// inputs give the same bits. `correct` counts bytes.
ClassifierResult ByteTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                     const ByteSequences& sequences, Workspace& scratch);

// The same of the images' classes; and their logits.
ClassifierResult ImageTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                      const PatchSequences& sequences, Workspace& scratch);

}  // namespace lopt
