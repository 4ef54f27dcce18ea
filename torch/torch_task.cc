#include "torch/torch_task.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"

namespace lopt {
namespace {

// Calls `body`; what torch throws becomes an Error.
template <class Body>
auto WithTorchErrors(const char* what, const Body& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    Fail("torch task: {} failed: {}", what, error.what_without_backtrace());
  }
}

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

NamedTensors CallInit(const TorchTaskFamily::InitFunction& init, Key key,
                      const torch::Tensor& config) {
  return WithTorchErrors("init", [&] {
    const torch::NoGradGuard no_grad;
    return init(key, config);
  });
}

// Torch has no tensors over constant memory; what is viewed through this is never written.
float* Mutable(std::span<const float> values) { return const_cast<float*>(values.data()); }

// The tensors of n rows of a layout as views, [n, shape] each.
std::vector<torch::Tensor> RowViews(const Layout& layout, float* rows, int64_t n) {
  std::vector<torch::Tensor> views;
  views.reserve(layout.entries().size());
  for (const LayoutEntry& entry : layout.entries()) {
    std::vector<int64_t> sizes{n};
    sizes.insert(sizes.end(), entry.shape.begin(), entry.shape.end());
    std::vector<int64_t> strides(sizes.size());
    strides[0] = layout.size();
    int64_t stride = 1;
    for (size_t d = sizes.size() - 1; d > 0; --d) {
      strides[d] = stride;
      stride *= sizes[d];
    }
    views.push_back(torch::from_blob(rows + entry.offset, sizes, strides));
  }
  return views;
}

void CheckRows(const char* what, const torch::Tensor& tensor, const Shape& wanted) {
  Require(tensor.defined(), "torch task: the loss function returned no {}", what);
  Require(ShapeOf(tensor) == wanted && tensor.scalar_type() == torch::kFloat32,
          "torch task: the loss function returned {} of shape {} and type {}, wanted shape {} and "
          "type Float",
          what, ToString(ShapeOf(tensor)), torch::toString(tensor.scalar_type()), ToString(wanted));
}

torch::Tensor MakeTensor(torch::IntArrayRef shape, torch::ScalarType type) {
  return torch::empty(shape, torch::TensorOptions(type));
}

// [n, shape], row i filled by fill(keys[i], row).
template <class T, class Fill>
torch::Tensor FilledRows(std::span<const Key> keys, torch::IntArrayRef shape,
                         torch::ScalarType type, const Fill& fill) {
  std::vector<int64_t> sizes{static_cast<int64_t>(keys.size())};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  torch::Tensor tensor = MakeTensor(sizes, type);
  const int64_t row_size = keys.empty() ? 0 : tensor.numel() / sizes[0];
  T* row = tensor.data_ptr<T>();
  for (const Key key : keys) {
    fill(key, std::span<T>(row, static_cast<size_t>(row_size)));
    row += row_size;
  }
  return tensor;
}

}  // namespace

TorchTaskFamily::TorchTaskFamily(InitFunction init, LossFunction loss, const Layout& config,
                                 Layout aux)
    : TaskFamily({.config = config,
                  .params = LayoutOf(CallInit(init, Key{}, torch::zeros({config.size()}))),
                  .model_state = {},
                  .aux = std::move(aux)}),
      init_(std::move(init)),
      loss_(std::move(loss)) {
  at::set_num_threads(1);
}

void TorchTaskFamily::DoInit(std::span<const float> config, Key key, std::span<float> params,
                             std::span<float> /*model_state*/) const {
  const NamedTensors tensors =
      CallInit(init_, key, torch::from_blob(Mutable(config), {config_layout().size()}).clone());
  Require(LayoutOf(tensors) == params_layout(),
          "torch task: init returned other names or shapes than for a config of zeros");
  std::vector<torch::Tensor> views = RowViews(params_layout(), params.data(), 1);
  const torch::NoGradGuard no_grad;
  for (size_t t = 0; t < views.size(); ++t) {
    views[t].squeeze(0).copy_(tensors[t].second);
  }
}

void TorchTaskFamily::DoEvaluate(const TaskEvaluation& evaluation, Workspace& /*scratch*/) const {
  // Torch's number of threads reaches a new thread only with the first parallel loop of its own.
  at::internal::lazy_init_num_threads();
  WithTorchErrors("loss", [&] {
    const int64_t n = evaluation.rows;
    const bool gradients_wanted = !evaluation.gradients.empty();
    const torch::AutoGradMode grad_mode(gradients_wanted);

    std::vector<torch::Tensor> params = RowViews(params_layout(), Mutable(evaluation.params), n);
    for (torch::Tensor& tensor : params) {
      tensor.requires_grad_(gradients_wanted);
    }
    TorchBatch batch{.split = evaluation.split,
                     .keys = evaluation.keys,
                     .examples = {},
                     .aux_wanted = !evaluation.aux.empty()};
    if (!evaluation.examples.empty()) {
      const auto total = static_cast<int64_t>(evaluation.examples.size());
      batch.keys = {};
      batch.examples = torch::from_blob(const_cast<int32_t*>(evaluation.examples.data()),
                                        {n, total / n}, torch::TensorOptions(torch::kInt32))
                           .to(torch::kInt64);
    }
    const int64_t config_size = config_layout().size();
    const TorchLoss loss =
        loss_(params, torch::from_blob(Mutable(evaluation.config), {n, config_size}), batch);
    CheckRows("losses", loss.losses, {n});

    std::vector<torch::Tensor> gradients;
    if (gradients_wanted) {
      gradients = torch::autograd::grad({loss.losses}, params, {torch::ones({n})},
                                        /*retain_graph=*/false, /*create_graph=*/false,
                                        /*allow_unused=*/true);
    }
    const torch::NoGradGuard no_grad;
    torch::from_blob(evaluation.losses.data(), {n}).copy_(loss.losses);
    if (gradients_wanted) {
      std::vector<torch::Tensor> views = RowViews(params_layout(), evaluation.gradients.data(), n);
      for (size_t t = 0; t < views.size(); ++t) {
        if (gradients[t].defined()) {
          views[t].copy_(gradients[t]);
        } else {
          views[t].zero_();
        }
      }
    }
    if (batch.aux_wanted) {
      const int64_t aux_size = aux_layout().size();
      CheckRows("aux", loss.aux, {n, aux_size});
      torch::from_blob(evaluation.aux.data(), {n, aux_size}).copy_(loss.aux);
    }
  });
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
