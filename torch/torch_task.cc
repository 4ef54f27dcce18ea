#include "lopt/torch/torch_task.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include <string>

#include "lopt/base/device.h"
#include "lopt/base/error.h"
#include "lopt/torch/call.h"

namespace lopt {
namespace {

Shape ShapeOf(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

Layout LayoutOf(const NamedTensors& tensors) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, tensor] : tensors) {
    Require(tensor.defined(), "torch task: init returned no tensor for '{}'", name);
    shapes.emplace_back(name, ShapeOf(tensor));
  }
  return Layout(std::move(shapes));
}

TorchStart CallInit(const TorchTaskFamily::InitFunction& init, Key key,
                    const torch::Tensor& config) {
  return CallTorch("torch task: init", [&] {
    const torch::NoGradGuard no_grad;
    return init(key, config);
  });
}

// Torch has no tensors over constant memory; what is viewed through this is never written.
float* Mutable(std::span<const float> values) { return const_cast<float*>(values.data()); }

Shape Join(torch::IntArrayRef lead, torch::IntArrayRef shape) {
  Shape joined = lead.vec();
  joined.insert(joined.end(), shape.begin(), shape.end());
  return joined;
}

// What torch calls the memory of an evaluation.
torch::Device TorchDeviceOf(const Device* device) {
  if (device == nullptr || device->kind() == Device::Kind::kEmulated) return torch::kCPU;
  return torch::Device(std::string(device->name()));
}

// Has torch give the same bits each time on one model of GPU, as a run promises: cuDNN would also
// take ways whose sums are in no fixed order, or whichever it times as the fastest. And has it
// compute in float32, as the processor does: TF32 rounds what is multiplied to 10 bits. This is for
// the whole process and stays so, as other threads may be in an evaluation.
void KeepGpusExact() {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
}

// Waits until the device has done what this thread gave it.
void WaitFor(torch::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

// A tensor over the memory of an evaluation.
torch::Tensor FloatsAt(float* numbers, torch::IntArrayRef shape, torch::Device device) {
  return torch::from_blob(numbers, shape, torch::TensorOptions(device));
}

// The tensors of the rows of a layout as views, [lead, shape] each.
std::vector<torch::Tensor> RowViews(const Layout& layout, float* rows, torch::IntArrayRef lead,
                                    torch::Device device = torch::kCPU) {
  std::vector<torch::Tensor> views;
  views.reserve(layout.entries().size());
  for (const LayoutEntry& entry : layout.entries()) {
    const Shape sizes = Join(lead, entry.shape);
    Shape strides(sizes.size(), layout.size());
    int64_t stride = 1;
    for (size_t d = sizes.size(); d > lead.size(); --d) {
      strides[d - 1] = stride;
      stride *= sizes[d - 1];
    }
    views.push_back(
        torch::from_blob(rows + entry.offset, sizes, strides, torch::TensorOptions(device)));
  }
  return views;
}

// Copies the first of `tensors` to `views`; one that is not there is zeros.
void CopyOrZero(const std::vector<torch::Tensor>& tensors,
                const std::vector<torch::Tensor>& views) {
  for (size_t t = 0; t < views.size(); ++t) {
    if (tensors[t].defined()) {
      views[t].copy_(tensors[t]);
    } else {
      views[t].zero_();
    }
  }
}

// `parts` with the layouts of what init returns.
TaskParts WithLayouts(TaskParts parts, const TorchTaskFamily::InitFunction& init) {
  Require(parts.params.entries().empty() && parts.model_state.entries().empty(),
          "torch task: the layouts of params and model_state are those of init; leave them out of "
          "the parts");
  const TorchStart start = CallInit(init, Key{}, torch::zeros({parts.config.size()}));
  parts.params = LayoutOf(start.params);
  parts.model_state = LayoutOf(start.model_state);
  parts.allocates = true;
  return parts;
}

void CopyRow(const Layout& layout, const NamedTensors& tensors, std::span<float> row) {
  Require(LayoutOf(tensors) == layout,
          "torch task: init returned other names or shapes than for a config of zeros");
  const std::vector<torch::Tensor> views = RowViews(layout, row.data(), {});
  const torch::NoGradGuard no_grad;
  for (size_t t = 0; t < views.size(); ++t) {
    views[t].copy_(tensors[t].second);
  }
}

void CheckReturned(const char* what, const torch::Tensor& tensor, torch::IntArrayRef wanted) {
  Require(tensor.defined(), "torch task: the loss function returned no {}", what);
  Require(tensor.sizes() == wanted && tensor.scalar_type() == torch::kFloat32,
          "torch task: the loss function returned {} of shape {} and type {}, wanted shape {} and "
          "type Float",
          what, ToString(ShapeOf(tensor)), torch::toString(tensor.scalar_type()),
          ToString(wanted.vec()));
}

torch::Tensor MakeTensor(torch::IntArrayRef shape, torch::ScalarType type) {
  return torch::empty(shape, torch::TensorOptions(type));
}

// Copies what a classifier answers, on the host, to where it is wanted.
void CopyAnswers(const Answers& answers, int64_t classes, const TorchLoss& loss,
                 const torch::Tensor& examples) {
  if (answers.logits.empty()) return;
  Shape shape = ShapeOf(examples);
  Require(loss.labels.defined() && loss.labels.sizes() == shape,
          "torch task: the loss function returned no labels of shape {}", ToString(shape));
  torch::from_blob(answers.labels.data(), shape, torch::TensorOptions(torch::kInt32))
      .copy_(loss.labels);
  shape.push_back(classes);
  CheckReturned("logits", loss.logits, shape);
  FloatsAt(answers.logits.data(), shape, torch::kCPU).copy_(loss.logits);
}

// [n, shape], row i filled by fill(keys[i], row).
template <class T, class Fill>
torch::Tensor FilledRows(std::span<const Key> keys, torch::IntArrayRef shape,
                         torch::ScalarType type, const Fill& fill) {
  torch::Tensor tensor = MakeTensor(Join(std::ssize(keys), shape), type);
  const int64_t row_size = keys.empty() ? 0 : tensor.numel() / std::ssize(keys);
  T* row = tensor.data_ptr<T>();
  for (const Key key : keys) {
    fill(key, std::span<T>(row, static_cast<size_t>(row_size)));
    row += row_size;
  }
  return tensor;
}

}  // namespace

TorchRows RowsBySize(double flops) {
  constexpr double kLarge = 5e7;
  return flops < kLarge ? TorchRows::kTogether : TorchRows::kInTurn;
}

TorchTaskFamily::TorchTaskFamily(InitFunction init, LossFunction loss, TaskParts parts,
                                 TorchRows rows, ShowFunction show)
    : TaskFamily(WithLayouts(std::move(parts), init)),
      init_(std::move(init)),
      loss_(std::move(loss)),
      rows_(rows),
      show_(std::move(show)) {
  KeepTorchOnOneThread();
}

void TorchTaskFamily::DoInit(std::span<const float> config, Key key, std::span<float> params,
                             std::span<float> model_state) const {
  const TorchStart start =
      CallInit(init_, key, torch::from_blob(Mutable(config), {config_layout().size()}).clone());
  CopyRow(params_layout(), start.params, params);
  CopyRow(model_state_layout(), start.model_state, model_state);
}

bool TorchTaskFamily::EvaluatesOn(const Device& device) const {
  if (device.kind() == Device::Kind::kEmulated) return true;
  Require(
      at::hasCUDA(),
      "torch task: the device '{}' needs a LibTorch with CUDA, and this one ({}) {}; choose the "
      "device 'cpu'",
      device.name(), TORCH_VERSION,
      at::globalContext().hasCUDART() ? "finds no GPU" : "is built without CUDA");
  KeepGpusExact();
  return true;
}

void TorchTaskFamily::DoEvaluate(const TaskEvaluation& evaluation, Workspace& /*scratch*/) const {
  CallTorch("torch task: loss", [&] {
    if (rows_ == TorchRows::kTogether) {
      EvaluateRows(evaluation, {evaluation.rows});
    } else {
      const Shape lead = rows_ == TorchRows::kInTurn ? Shape{1} : Shape{};
      for (int64_t row = 0; row < evaluation.rows; ++row) {
        EvaluateRows(RowOf(evaluation, row), lead);
      }
    }
    WaitFor(TorchDeviceOf(evaluation.device));
  });
}

void TorchTaskFamily::Differentiate(const TaskEvaluation& at, const Outer& outer,
                                    std::span<float> d_params, std::span<float> d_model_state,
                                    Workspace& scratch) const {
  CheckInputs(at);
  Require(at.rows == 1, "torch task: {} rows to differentiate, wanted 1", at.rows);
  Require(at.device == nullptr, "torch task: derivatives are made on the host alone");
  const Workspace::Frame frame(scratch);
  TaskEvaluation e = at;
  e.examples = Examples(at, scratch);
  CallTorch("torch task: the derivative of the loss", [&] {
    const torch::AutoGradMode with_grad(true);
    const Shape lead = rows_ == TorchRows::kOneByOne ? Shape{} : Shape{1};
    TorchEvaluation evaluation = View(e, lead);
    evaluation.aux_wanted = outer.aux.has_value();
    std::vector<torch::Tensor> inputs = evaluation.params;
    inputs.insert(inputs.end(), evaluation.model_state.begin(), evaluation.model_state.end());
    for (const torch::Tensor& tensor : inputs) tensor.requires_grad_();
    const TorchLoss loss = loss_(evaluation);

    // J is the sum of what is in `results` times what is in `factors`.
    std::vector<torch::Tensor> results;
    std::vector<torch::Tensor> factors;
    const auto add = [&](const torch::Tensor& result, const torch::Tensor& factor) {
      if (!result.defined() || !result.requires_grad()) return;
      results.push_back(result);
      factors.push_back(factor);
    };
    const auto add_rows = [&](const Layout& layout, const std::vector<torch::Tensor>& tensors,
                              std::span<const float> outers) {
      if (outers.empty() || tensors.empty()) return;
      const std::vector<torch::Tensor> views = RowViews(layout, Mutable(outers), lead);
      for (size_t t = 0; t < views.size(); ++t) add(tensors[t], views[t]);
    };
    if (outer.loss != 0) {
      const torch::Tensor judged = outer.aux ? loss.aux.select(-1, *outer.aux) : loss.losses;
      Require(judged.requires_grad(), "torch task: aux output '{}' cannot be differentiated",
              outer.aux ? aux_layout().entries().at(*outer.aux).name : "");
      add(judged, torch::full(lead, outer.loss));
    }
    // Where the evaluation leaves the model state as it is, its derivative is the identity.
    const bool is_new = e.split == Split::kTrain && !loss.model_state.empty();
    add_rows(model_state_layout(), is_new ? loss.model_state : evaluation.model_state,
             outer.model_state);
    if (!outer.gradient.empty()) {
      add_rows(params_layout(),
               torch::autograd::grad({loss.losses}, evaluation.params, {torch::ones(lead)},
                                     /*retain_graph=*/true, /*create_graph=*/true,
                                     /*allow_unused=*/true),
               outer.gradient);
    }
    std::vector<torch::Tensor> gradients(inputs.size());
    if (!results.empty()) {
      gradients = torch::autograd::grad(results, inputs, factors, /*retain_graph=*/false,
                                        /*create_graph=*/false, /*allow_unused=*/true);
    }
    const torch::NoGradGuard no_grad;
    CopyOrZero(gradients, RowViews(params_layout(), d_params.data(), lead));
    gradients.erase(gradients.begin(), gradients.begin() + std::ssize(evaluation.params));
    CopyOrZero(gradients, RowViews(model_state_layout(), d_model_state.data(), lead));
  });
}

std::vector<Pictures> TorchTaskFamily::DoShow(const TaskEvaluation& evaluation,
                                              Workspace& /*scratch*/) const {
  if (!show_) return {};
  return CallTorch("torch task: show", [&] {
    const torch::NoGradGuard no_grad;
    return show_(View(evaluation, rows_ == TorchRows::kOneByOne ? Shape{} : Shape{1}));
  });
}

TorchEvaluation TorchTaskFamily::View(const TaskEvaluation& e, torch::IntArrayRef lead) const {
  const torch::Device device = TorchDeviceOf(e.device);
  TorchEvaluation evaluation{
      .params = RowViews(params_layout(), Mutable(e.params), lead, device),
      .model_state = RowViews(model_state_layout(), e.model_state.data(), lead, device),
      .config =
          torch::from_blob(Mutable(e.config), Join(lead, {config_layout().size()})).to(device),
      .split = e.split,
      .keys = e.keys,
      .examples = {},
      .aux_wanted = !e.aux.empty(),
      .device = device};
  for (torch::Tensor& tensor : evaluation.model_state) {
    tensor = tensor.clone();  // a new state may be made of pieces of the old one
  }
  if (!e.examples.empty()) {
    const int64_t count = std::ssize(e.examples) / e.rows;
    evaluation.examples = torch::from_blob(const_cast<int32_t*>(e.examples.data()),
                                           Join(lead, {count}), torch::TensorOptions(torch::kInt32))
                              .to(device, torch::kInt64);
  }
  return evaluation;
}

void TorchTaskFamily::EvaluateRows(const TaskEvaluation& e, torch::IntArrayRef lead) const {
  const bool gradients_wanted = !e.gradients.empty();
  const torch::AutoGradMode grad_mode(gradients_wanted);
  const TorchEvaluation evaluation = View(e, lead);
  for (const torch::Tensor& tensor : evaluation.params) {
    tensor.requires_grad_(gradients_wanted);
  }
  const TorchLoss loss = loss_(evaluation);
  CheckReturned("losses", loss.losses, lead);

  std::vector<torch::Tensor> gradients;
  if (gradients_wanted) {
    gradients = torch::autograd::grad({loss.losses}, evaluation.params,
                                      {torch::ones(lead, evaluation.device)},
                                      /*retain_graph=*/false, /*create_graph=*/false,
                                      /*allow_unused=*/true);
  }
  const torch::NoGradGuard no_grad;
  const torch::Device device = evaluation.device;
  FloatsAt(e.losses.data(), lead, device).copy_(loss.losses);
  if (gradients_wanted) {
    CopyOrZero(gradients, RowViews(params_layout(), e.gradients.data(), lead, device));
  }
  if (evaluation.aux_wanted) {
    const Shape shape = Join(lead, {aux_layout().size()});
    CheckReturned("aux", loss.aux, shape);
    FloatsAt(e.aux.data(), shape, device).copy_(loss.aux);
  }
  CopyAnswers(e.answers, parts().classes, loss, evaluation.examples);
  if (e.split == Split::kTrain && !loss.model_state.empty()) {
    const auto views = RowViews(model_state_layout(), e.model_state.data(), lead, device);
    Require(loss.model_state.size() == views.size(),
            "torch task: the loss function returned {} tensors of model state, wanted {}",
            loss.model_state.size(), views.size());
    for (size_t t = 0; t < views.size(); ++t) {
      CheckReturned("model state", loss.model_state[t], views[t].sizes());
      views[t].copy_(loss.model_state[t]);
    }
  }
}

Pictures ToPictures(std::string name, const torch::Tensor& images) {
  const torch::Tensor pixels = images.permute({0, 2, 3, 1}).contiguous();
  return {.name = std::move(name),
          .count = pixels.size(0),
          .height = pixels.size(1),
          .width = pixels.size(2),
          .channels = pixels.size(3),
          .pixels = {pixels.data_ptr<float>(), pixels.data_ptr<float>() + pixels.numel()}};
}

torch::Tensor UniformTensor(std::span<const Key> keys, torch::IntArrayRef shape) {
  return FilledRows<float>(keys, shape, torch::kFloat32,
                           [](Key key, std::span<float> row) { Uniform(key, row); });
}

torch::Tensor NormalTensor(std::span<const Key> keys, torch::IntArrayRef shape) {
  return FilledRows<float>(keys, shape, torch::kFloat32,
                           [](Key key, std::span<float> row) { Normal(key, row); });
}

torch::Tensor RandintTensor(std::span<const Key> keys, int32_t low, int32_t high,
                            torch::IntArrayRef shape) {
  return FilledRows<int32_t>(keys, shape, torch::kInt32,
                             [=](Key key, std::span<int32_t> row) { Randint(key, low, high, row); })
      .to(torch::kInt64);
}

torch::Tensor UniformTensor(Key key, torch::IntArrayRef shape) {
  return UniformTensor(std::span(&key, 1), shape).squeeze(0);
}

torch::Tensor NormalTensor(Key key, torch::IntArrayRef shape) {
  return NormalTensor(std::span(&key, 1), shape).squeeze(0);
}

torch::Tensor RandintTensor(Key key, int32_t low, int32_t high, torch::IntArrayRef shape) {
  return RandintTensor(std::span(&key, 1), low, high, shape).squeeze(0);
}

}  // namespace lopt
