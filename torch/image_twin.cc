#include "lopt/torch/image_twin.h"

#include <utility>

#include "lopt/base/error.h"

namespace lopt {
namespace {

// A row of the layout cut into tensors.
NamedTensors Cut(const Layout& layout, std::vector<float> row) {
  NamedTensors tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    tensors.emplace_back(entry.name,
                         torch::from_blob(row.data() + entry.offset, entry.shape).clone());
  }
  return tensors;
}

// What a task of a family without a config starts from.
TorchStart StartOf(const TaskFamily& family, Key key) {
  std::vector<float> params(static_cast<size_t>(family.params_layout().size()));
  std::vector<float> model_state(static_cast<size_t>(family.model_state_layout().size()));
  family.Init({}, key, params, model_state);
  return {Cut(family.params_layout(), std::move(params)),
          Cut(family.model_state_layout(), std::move(model_state))};
}

}  // namespace

std::shared_ptr<const TaskFamily> MakePartner(const std::string& type,
                                              std::shared_ptr<const TaskFamily> native,
                                              const ImageOptions& images, const Config& augment,
                                              const std::shared_ptr<const ImageData>& data,
                                              LogitsFunction logits) {
  Require(augment.Type() == "None", "Torch{}: augment must be None, got {}; {} augments its images",
          type, augment.Type(), type);
  TaskParts parts = ImageClassifierParts(images, *data);
  parts.flops = native->flops();
  const TorchRows rows = RowsBySize(parts.flops);
  return std::make_shared<TorchTaskFamily>(
      [native = std::move(native)](Key key, const torch::Tensor&) { return StartOf(*native, key); },
      [logits = std::move(logits), tensors = ImageTensors(data)](const TorchEvaluation& e) {
        std::vector<torch::Tensor> model_state;
        const torch::Tensor outputs = logits(e, tensors, &model_state);
        TorchLoss loss = ClassifierLoss(outputs, tensors.Labels(e.examples), e.aux_wanted);
        loss.model_state = std::move(model_state);
        return loss;
      },
      std::move(parts), rows, ShowBatch(data));
}

}  // namespace lopt
