#include "lopt/tasks/data/text_data.h"
#include "lopt/torch/byte_model_options.h"
#include "lopt/torch/task_type.h"
#ifdef LOPT_LIBTORCH
#include <algorithm>

#include "lopt/torch/byte_model.h"
#include "lopt/torch/constant_tensor.h"
#endif

namespace lopt {
namespace {

struct ByteLmOptions {
  TextOptions text;
  ByteModelOptions model;
  void Visit(FieldVisitor& v) {
    text.Visit(v);
    model.Visit(v);
  }
};

#ifdef LOPT_LIBTORCH

// A text and its windows as tensors. Cheap to copy.
class ByteWindows {
 public:
  ByteWindows(const TextData& text, const TextWindows& windows, int64_t length)
      : bytes_(torch::tensor(torch::ArrayRef<uint8_t>(text.bytes().data(), text.bytes().size()),
                             torch::kUInt8)),
        starts_(torch::tensor(windows.starts)),
        offsets_(torch::arange(length + 1)) {}

  // The byte before each window and then its own: int64 [examples.., length + 1].
  torch::Tensor operator()(const torch::Tensor& examples) const {
    const torch::Device device = examples.device();
    const torch::Tensor offsets = offsets_.On(device);
    const torch::Tensor places =
        starts_.On(device).index_select(0, examples.flatten()).unsqueeze(1) + offsets;
    std::vector<int64_t> shape = examples.sizes().vec();
    shape.push_back(offsets.size(0));
    return bytes_.On(device).index_select(0, places.flatten()).to(torch::kInt64).view(shape);
  }

 private:
  ConstantTensor bytes_;
  ConstantTensor starts_;
  ConstantTensor offsets_;
};

// `windows` [n, E, length + 1].
TorchLoss WindowLoss(const ByteModel& model, const std::vector<torch::Tensor>& params,
                     const torch::Tensor& windows, bool aux_wanted) {
  const int64_t length = windows.size(2) - 1;
  const torch::Tensor logits = model.Logits(params, windows.narrow(2, 0, length));
  return ClassifierLoss(logits.flatten(1, 2), windows.narrow(2, 1, length).flatten(1), aux_wanted);
}

// The same, some windows after the others: a whole split may have more logits than memory.
TorchLoss ScoreInPieces(const ByteModel& model, const std::vector<torch::Tensor>& params,
                        const torch::Tensor& windows, bool aux_wanted) {
  constexpr int64_t kBytesAtOnce = 16384;  // logits of 16 MB
  const int64_t count = windows.size(1);
  const int64_t piece =
      std::max<int64_t>(1, kBytesAtOnce / (windows.size(0) * (windows.size(2) - 1)));
  TorchLoss sum = torch::zeros({windows.size(0)}, windows.device());
  if (aux_wanted) sum.aux = torch::zeros({windows.size(0), 1}, windows.device());
  for (int64_t first = 0; first < count; first += piece) {
    const int64_t size = std::min(piece, count - first);
    const TorchLoss part = WindowLoss(model, params, windows.narrow(1, first, size), aux_wanted);
    const double share = static_cast<double>(size) / static_cast<double>(count);
    sum.losses.add_(part.losses, share);
    if (aux_wanted) sum.aux.add_(part.aux, share);
  }
  return sum;
}

// Steps of recurrent layers are small; a bigram costs what its logits, 256 a byte, cost the memory.
TorchRows RowsOf(ByteBody body, double flops) {
  if (body == ByteBody::kTransformer) return RowsBySize(flops);
  return body == ByteBody::kBigram ? TorchRows::kInTurn : TorchRows::kTogether;
}

std::shared_ptr<const TaskFamily> MakeByteLm(const ByteLmOptions& options,
                                             const TaskResources& resources) {
  const auto text = GetText(options.text, resources);
  const TextWindows windows(options.text, *text);
  const ByteModel model(options.model, options.text.length);
  TaskParts parts = BytePredictorParts(options.text, windows);
  parts.flops = model.Flops(options.text.batch_size);
  const TorchRows rows = RowsOf(options.model.body, parts.flops);
  return std::make_shared<TorchTaskFamily>(
      [model](Key key, const torch::Tensor&) { return model.Init(key); },
      [model, data = ByteWindows(*text, windows, options.text.length)](const TorchEvaluation& e) {
        const auto loss = torch::GradMode::is_enabled() ? WindowLoss : ScoreInPieces;
        return loss(model, e.params, data(e.examples), e.aux_wanted);
      },
      std::move(parts), rows,
      [text, windows, length = options.text.length](const TorchEvaluation& e) {
        const torch::Tensor examples = e.examples.flatten().to(torch::kCPU, torch::kInt32);
        const std::span<const int32_t> rows(examples.data_ptr<int32_t>(),
                                            static_cast<size_t>(examples.numel()));
        return std::vector<Pictures>{PictureOfWindows(*text, windows.starts, length, rows)};
      });
}

#endif

}  // namespace
}  // namespace lopt

LOPT_TORCH_TASK(byte_lm, ByteLmOptions, "ByteLM",
                "A model predicts the bytes of a text; needs the torch module.", MakeByteLm)
