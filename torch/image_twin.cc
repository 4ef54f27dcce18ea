#include "torch/image_twin.h"

#include <utility>

#include "base/error.h"

namespace lopt {
namespace {

// Initial params of a family without a config, cut into tensors.
NamedTensors InitOf(const TaskFamily& family, Key key) {
  const Layout& layout = family.params_layout();
  std::vector<float> row(static_cast<size_t>(layout.size()));
  family.Init({}, key, row, {});
  NamedTensors tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    tensors.emplace_back(entry.name,
                         torch::from_blob(row.data() + entry.offset, entry.shape).clone());
  }
  return tensors;
}

}  // namespace

std::shared_ptr<const TaskFamily> MakeTwin(const std::string& type,
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
      [native = std::move(native)](Key key, const torch::Tensor&) { return InitOf(*native, key); },
      [logits = std::move(logits), tensors = ImageTensors(data)](const TorchEvaluation& e) {
        return ClassifierLoss(logits(e, tensors), tensors.Labels(e.examples), e.aux_wanted);
      },
      std::move(parts), rows, ShowBatch(data));
}

}  // namespace lopt
