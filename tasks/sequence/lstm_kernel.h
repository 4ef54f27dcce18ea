#pragma once

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/sequence/byte_sequences.h"
#include "lopt/tasks/sequence/lstm.h"

namespace lopt {

// The mean softmax cross-entropy over all bytes of the sequences, of each the next byte's, and,
// where wanted, its gradient, in single precision on the instruction set that base/isa.h names.
// `correct` counts bytes. The same inputs give the same bits on one
// instruction set.
ClassifierResult ByteLstmLoss(const LstmShape& shape, const LstmEvaluation& e,
                              const ByteSequences& sequences, Workspace& scratch);

}  // namespace lopt
