#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/sequence/byte_sequences.h"
#include "lopt/tasks/sequence/lstm.h"

namespace lopt {

// The mean softmax cross-entropy of the next byte over all bytes of the sequences, and its gradient
// if wanted. It computes in single precision on base/isa.h's instruction set; on one set the same
// inputs give the same bits. `correct` counts bytes.
ClassifierResult ByteLstmLoss(const LstmShape& shape, const LstmEvaluation& e,
                              const ByteSequences& sequences, Workspace& scratch);

}  // namespace lopt
