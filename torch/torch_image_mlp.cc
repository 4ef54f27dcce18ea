#include "torch/torch_image_mlp.h"

#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "torch/torch_task.h"

namespace lopt {
namespace {

// The data set as tensors that view it.
struct ImageTensors {
  explicit ImageTensors(std::shared_ptr<const ImageData> images_data)
      : data(std::move(images_data)),
        images(torch::from_blob(const_cast<float*>(data->images()),
                                {data->count(), data->features()}, {data->stride(), 1})),
        labels(torch::from_blob(const_cast<uint8_t*>(data->labels()), {data->count()},
                                torch::TensorOptions(torch::kUInt8))
                   .to(torch::kInt64)) {}
  std::shared_ptr<const ImageData> data;
  torch::Tensor images;  // [count, features]
  torch::Tensor labels;  // [count]
};

// Initial params of the native task, cut into tensors.
NamedTensors NativeInit(const ImageMlp& native, Key key) {
  const Layout& layout = native.params_layout();
  std::vector<float> row(static_cast<size_t>(layout.size()));
  native.Init({}, key, row, {});
  NamedTensors tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    tensors.emplace_back(entry.name,
                         torch::from_blob(row.data() + entry.offset, entry.shape).clone());
  }
  return tensors;
}

// The rows of the data set that a batch names, [n, batch size].
torch::Tensor ExamplesOf(const TorchBatch& batch, const ImageData& data, int64_t batch_size) {
  if (batch.examples.defined()) {
    Require(((batch.examples >= 0) & (batch.examples < data.count())).all().item<bool>(),
            "TorchImageMLP: an example is not among {}", data.count());
    return batch.examples;
  }
  const auto [first, last] = data.range(batch.split);
  std::vector<Key> keys(batch.keys.size());
  std::transform(batch.keys.begin(), batch.keys.end(), keys.begin(), ImageBatchKey);
  return RandintTensor(keys, static_cast<int32_t>(first), static_cast<int32_t>(last), {batch_size});
}

TorchLoss MlpLoss(const std::vector<torch::Tensor>& params, const TorchBatch& batch,
                  const ImageTensors& data, const ImageMlpOptions& options) {
  const torch::Tensor examples = ExamplesOf(batch, *data.data, options.batch_size);
  const torch::Tensor rows = examples.flatten();
  torch::Tensor x =
      data.images.index_select(0, rows).view({examples.size(0), examples.size(1), -1});
  for (size_t p = 0; p < params.size(); p += 2) {
    if (p > 0) {
      x = options.activation == "tanh" ? torch::tanh(x) : torch::relu(x);
    }
    x = torch::baddbmm(params[p + 1].unsqueeze(1), x, params[p]);
  }
  // Classes before examples: torch's softmax is several times faster over ten strided numbers than
  // over ten adjacent ones.
  const torch::Tensor logits = x.transpose(1, 2).contiguous();
  const torch::Tensor labels = data.labels.index_select(0, rows).view_as(examples);
  TorchLoss loss = torch::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).mean({1, 2}).neg();
  if (batch.aux_wanted) {
    // A logit that is not a number is the maximum, and then none is right.
    const auto [largest, index] = logits.detach().max(1);
    const torch::Tensor correct = (index == labels) & (largest == largest);
    loss.aux = correct.to(torch::kFloat32).mean(1, /*keepdim=*/true);
  }
  return loss;
}

class TorchImageMlp : public TorchTaskFamily {
 public:
  TorchImageMlp(const ImageMlpOptions& options, const ImageTensors& data,
                std::shared_ptr<const ImageMlp> native)
      : TorchTaskFamily(
            [native](Key key, const torch::Tensor&) { return NativeInit(*native, key); },
            [data, options](const std::vector<torch::Tensor>& params, const torch::Tensor&,
                            const TorchBatch& batch) {
              return MlpLoss(params, batch, data, options);
            },
            native->config_layout(), native->aux_layout()),
        native_(std::move(native)) {}

  double Normalize(std::span<const float> config, double loss) const override {
    return native_->Normalize(config, loss);
  }
  std::optional<double> NormalizerMaximum() const override { return native_->NormalizerMaximum(); }
  std::pair<int64_t, int64_t> ExampleRange(Split split) const override {
    return native_->ExampleRange(split);
  }

 private:
  std::shared_ptr<const ImageMlp> native_;
};

}  // namespace

std::shared_ptr<const TaskFamily> MakeTorchImageMlp(const ImageMlpOptions& options,
                                                    std::shared_ptr<const ImageData> data) {
  const ImageTensors tensors(data);
  return std::make_shared<TorchImageMlp>(options, tensors,
                                         std::make_shared<ImageMlp>(options, std::move(data)));
}

const char* TorchVersion() { return TORCH_VERSION; }

}  // namespace lopt
