#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lopt/tasks/data/text_data.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/sequence/byte_sequences.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// The base of native models that predict each byte of a window of text from those before it. The
// loss is the bytes' mean softmax cross-entropy, in nats; meta-losses are cut to [0, 1.5 ln 256].
// The aux output is "accuracy". Text, windows and splits are those of ByteLM. There is no config.
class BytePredictor : public TaskFamily {
 protected:
  // What a model is, beside its loss.
  struct Model {
    Layout params;
    double flops;          // as in TaskParts
    double embedding_std;  // of the initial params (InitNetworkOnEmbeddings)
  };

  // Throws Error as TextWindows does.
  BytePredictor(Model model, const TextOptions& options,
                const std::shared_ptr<const TextData>& text);

 private:
  BytePredictor(Model model, const TextOptions& options, TextWindows windows,
                std::shared_ptr<const TextData> text);
  // Gives the loss of one row and writes its gradient to e.gradients, unless that is empty.
  virtual ClassifierResult LossOfRow(const TaskEvaluation& e, const ByteSequences& sequences,
                                     Workspace& scratch) const = 0;
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  std::shared_ptr<const TextData> text_;
  std::vector<int64_t> starts_;
  int64_t length_;
  double embedding_std_;
};

}  // namespace lopt
