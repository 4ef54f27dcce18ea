#include "lopt/torch/recurrent_cell.h"
#include "lopt/torch/task_type.h"
#ifdef LOPT_LIBTORCH
#include "lopt/base/options.h"
#include "lopt/torch/image_layers.h"
#include "lopt/torch/recurrent.h"
#endif

namespace lopt {
namespace {

struct RowLstmOptions {
  ImageOptions images = {.image_size = 28};
  RecurrentCell cell = RecurrentCell::kLstm;
  int64_t hidden_size = 64;
  void Visit(FieldVisitor& v) {
    images.Visit(v);
    v.Choice("cell", &cell, kRecurrentCells, "The recurrent cell.");
    v.Field("hidden_size", &hidden_size, Between(1, 100000), "Units of the recurrent layer.");
  }
};

#ifdef LOPT_LIBTORCH

NamedTensors RowLstmInit(const RowLstmOptions& options, const ImageData& data, Key key) {
  NamedTensors params =
      RecurrentInit(options.cell, key, "rnn/", data.width() * data.channels(), options.hidden_size);
  AddLayer("linear", {data.classes(), options.hidden_size}, data.classes(), key, &params);
  return params;
}

// Images [n, batch, features].
torch::Tensor RowLstmLogits(const RowLstmOptions& options, const std::vector<torch::Tensor>& params,
                            const torch::Tensor& images, int64_t height) {
  const int64_t n = images.size(0);
  const int64_t batch = images.size(1);
  const RecurrentOutput last =
      RunRecurrent(options.cell, images.view({n, batch, height, -1}),
                   torch::TensorList(params).slice(0, kRecurrentWeights),
                   RecurrentZeros(options.cell, n, batch, options.hidden_size, images.device()));
  return Linear(last.state[0], {params[kRecurrentWeights], params[kRecurrentWeights + 1]});
}

std::shared_ptr<const TaskFamily> MakeRowLstm(const RowLstmOptions& options,
                                              const TaskResources& resources) {
  CheckOptions("TorchRowLSTM", options);
  const auto data = GetImages(options.images, resources);
  TaskParts parts = ImageClassifierParts(options.images, *data);
  const int64_t batch = options.images.batch_size;
  // Products, gradients of weights and, but for the images', of inputs.
  const int64_t inputs = data->width() * data->channels();
  const double recurrent =
      RecurrentFlops(options.cell, batch, data->height(), inputs, options.hidden_size);
  parts.flops = recurrent * (3 - static_cast<double>(inputs) /
                                     static_cast<double>(inputs + options.hidden_size)) +
                6 * static_cast<double>(batch * options.hidden_size * data->classes());
  return std::make_shared<TorchTaskFamily>(
      [=](Key key, const torch::Tensor&) { return RowLstmInit(options, *data, key); },
      [options, height = data->height(), images = ImageTensors(data)](const TorchEvaluation& e) {
        return ClassifierLoss(RowLstmLogits(options, e.params, images.Images(e.examples), height),
                              images.Labels(e.examples), e.aux_wanted);
      },
      // The steps are many small operations: together they are faster whatever the size.
      std::move(parts), TorchRows::kTogether, ShowBatch(data));
}

#endif

}  // namespace
}  // namespace lopt

LOPT_TORCH_TASK(row_lstm, RowLstmOptions, "TorchRowLSTM",
                "An LSTM or GRU reads the rows of an image one by one and classifies it; needs the "
                "torch module.",
                MakeRowLstm)
