#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/data/text_data.h"
#include "lopt/tasks/sequence/transformer.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

struct ByteTransformerOptions {
  TextOptions text = {};
  TransformerOptions model = {};
  void Visit(FieldVisitor& v);
};

// A causal transformer (TransformerShape) that predicts each byte of a window of text from those
// before it. The loss is the mean softmax cross-entropy of the bytes, in nats, cut to [0, 1.5 ln
// 256]; aux is "accuracy". Text, windows and splits are those of ByteLM. No config.
class ByteTransformer : public TaskFamily {
 public:
  // Throws Error as CheckOptions, CheckTransformer and TextWindows do.
  ByteTransformer(const ByteTransformerOptions& options, std::shared_ptr<const TextData> text);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  std::shared_ptr<const TextData> text_;
  std::vector<int64_t> starts_;
  TransformerShape shape_;
  double embedding_std_;
};

}  // namespace lopt
