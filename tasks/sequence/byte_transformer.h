#pragma once

#include <memory>

#include "lopt/base/fields.h"
#include "lopt/tasks/sequence/byte_predictor.h"
#include "lopt/tasks/sequence/transformer.h"

namespace lopt {

struct ByteTransformerOptions {
  TextOptions text = {};
  TransformerOptions model = {};
  void Visit(FieldVisitor& v);
};

// A causal transformer (TransformerShape) that predicts bytes (BytePredictor).
class ByteTransformer : public BytePredictor {
 public:
  // Throws Error as CheckOptions, RequireLength, CheckTransformer and TextWindows do.
  ByteTransformer(const ByteTransformerOptions& options,
                  const std::shared_ptr<const TextData>& text);

 private:
  ByteTransformer(const ByteTransformerOptions& options, const TransformerShape& shape,
                  const std::shared_ptr<const TextData>& text);
  ClassifierResult LossOfRow(const TaskEvaluation& e, const ByteSequences& sequences,
                             Workspace& scratch) const override;

  TransformerShape shape_;
};

}  // namespace lopt
