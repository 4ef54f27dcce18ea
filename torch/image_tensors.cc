#include "lopt/torch/image_tensors.h"

#include <utility>

#include "lopt/tasks/image/image_task.h"

namespace lopt {

ImageTensors::ImageTensors(std::shared_ptr<const ImageData> data)
    : data_(std::move(data)),
      images_(torch::from_blob(const_cast<float*>(data_->images()),
                               {data_->count(), data_->features()}, {data_->stride(), 1})),
      labels_(torch::from_blob(const_cast<uint8_t*>(data_->labels()), {data_->count()},
                               torch::TensorOptions(torch::kUInt8))
                  .to(torch::kInt64)) {}

torch::Tensor ImageTensors::Images(const torch::Tensor& examples) const {
  std::vector<int64_t> shape = examples.sizes().vec();
  shape.push_back(data_->features());
  return images_.On(examples.device()).index_select(0, examples.flatten()).view(shape);
}

torch::Tensor ImageTensors::Labels(const torch::Tensor& examples) const {
  return labels_.On(examples.device()).index_select(0, examples.flatten()).view_as(examples);
}

TorchTaskFamily::ShowFunction ShowBatch(std::shared_ptr<const ImageData> data) {
  return [data = std::move(data)](const TorchEvaluation& e) {
    const torch::Tensor rows = e.examples.flatten().to(torch::kInt32);
    return BatchPictures(
        *data, {.images = data->images(),
                .stride = data->stride(),
                .labels = data->labels(),
                .examples = {rows.data_ptr<int32_t>(), static_cast<size_t>(rows.numel())}});
  };
}

TorchLoss ClassifierLoss(const torch::Tensor& logits, const torch::Tensor& labels,
                         bool aux_wanted) {
  // Few classes before examples: torch's softmax is several times faster over ten strided numbers
  // than over ten adjacent ones, and twice as fast over 256 adjacent ones.
  const int64_t classes = logits.size(-1) < 64 ? -2 : -1;
  const torch::Tensor scores = classes == -1 ? logits : logits.transpose(-2, -1).contiguous();
  TorchLoss loss = torch::log_softmax(scores, classes)
                       .gather(classes, labels.unsqueeze(classes))
                       .mean({-2, -1})
                       .neg();
  if (aux_wanted) {
    // A logit that is not a number is the maximum, and then none is right.
    const auto [largest, index] = scores.detach().max(classes);
    const torch::Tensor correct = (index == labels) & (largest == largest);
    loss.aux = correct.to(torch::kFloat32).mean(-1, /*keepdim=*/true);
  }
  loss.logits = logits.detach();
  loss.labels = labels;
  return loss;
}

}  // namespace lopt
