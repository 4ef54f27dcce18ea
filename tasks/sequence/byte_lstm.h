#pragma once

#include <cstdint>
#include <memory>

#include "lopt/base/fields.h"
#include "lopt/tasks/sequence/byte_predictor.h"
#include "lopt/tasks/sequence/lstm.h"

namespace lopt {

struct ByteLstmOptions {
  TextOptions text = {};
  int64_t width = 32;
  int64_t layers = 1;
  double embedding_std = 1;
  void Visit(FieldVisitor& v);
};

// An LSTM (LstmShape) that predicts bytes (BytePredictor). Unlike ByteLM's its first states are 0.
class ByteLstm : public BytePredictor {
 public:
  // Throws Error as CheckOptions, RequireLength, RequireParams, RequireScratch and TextWindows do.
  ByteLstm(const ByteLstmOptions& options, const std::shared_ptr<const TextData>& text);

 private:
  ByteLstm(const ByteLstmOptions& options, const LstmShape& shape,
           const std::shared_ptr<const TextData>& text);
  ClassifierResult LossOfRow(const TaskEvaluation& e, const ByteSequences& sequences,
                             Workspace& scratch) const override;

  LstmShape shape_;
};

}  // namespace lopt
