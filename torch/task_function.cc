#include "lopt/torch/task_function.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "lopt/base/error.h"

namespace lopt {
namespace {

// The incoming gradient times the task's.
struct OuterGradient : torch::autograd::Function<OuterGradient> {
  // `params` is there so that a second derivative, which depends on it, comes here.
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& outer, const torch::Tensor& gradients,
                               const torch::Tensor& /*params*/) {
    return outer.unsqueeze(-1) * gradients;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*outer*/) {
    Fail(
        "TaskFunction: the gradient of a task cannot be differentiated; a task has no second "
        "derivatives");
  }
};

struct Losses : torch::autograd::Function<Losses> {
  // `losses` and `gradients` are those of `params`.
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& params, const torch::Tensor& losses,
                               const torch::Tensor& gradients) {
    context->save_for_backward({params, gradients});
    return losses;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outer) {
    const auto saved = context->get_saved_variables();
    return {OuterGradient::apply(outer[0], saved[1], saved[0]), {}, {}};
  }
};

template <class T>
std::span<T> SpanOf(const torch::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

// `tensor` as numbers one after the other; nothing stays nothing.
torch::Tensor Plain(const torch::Tensor& tensor, torch::ScalarType type) {
  return tensor.defined() ? tensor.detach().to(type).resolve_neg().contiguous() : tensor;
}

void RequireOnHost(const char* what, const torch::Tensor& tensor) {
  Require(!tensor.defined() || tensor.device().is_cpu(),
          "TaskFunction: {} must be on the CPU, got one on {}", what,
          tensor.defined() ? tensor.device().str() : "");
}

// Rows of a data set as the family takes them.
torch::Tensor PlainExamples(const torch::Tensor& examples) {
  if (!examples.defined()) return examples;
  Require(torch::isIntegralType(examples.scalar_type(), /*includeBool=*/false),
          "TaskFunction: examples must be integers, the rows of a data set, got {}",
          torch::toString(examples.scalar_type()));
  const torch::Tensor rows = Plain(examples, torch::kInt64);
  for (const int64_t row : SpanOf<int64_t>(rows)) {
    Require(std::in_range<int32_t>(row),
            "TaskFunction: examples must be rows of a data set, got {}", row);
  }
  return rows.to(torch::kInt32);
}

}  // namespace

TaskFunction::TaskFunction(std::shared_ptr<const TaskFamily> family)
    : family_(std::move(family)), scratch_(std::make_shared<WorkspacePool>()) {}

torch::Tensor TaskFunction::operator()(const torch::Tensor& params, const TaskCall& call) const {
  const int64_t size = family_->params_layout().size();
  Require(params.defined() && (params.dim() == 1 || params.dim() == 2) && params.size(-1) == size &&
              params.scalar_type() == torch::kFloat32,
          "TaskFunction: params must be float32 of shape [n, {}] or [{}]{}", size, size,
          params.defined()
              ? fmt::format(", got {} of shape {}", torch::toString(params.scalar_type()),
                            ToString(params.sizes().vec()))
              : "");
  RequireOnHost("params", params);
  RequireOnHost("config", call.config);
  RequireOnHost("model_state", call.model_state);
  RequireOnHost("examples", call.examples);
  Require(!call.model_state.defined() || (call.model_state.is_contiguous() &&
                                          call.model_state.scalar_type() == torch::kFloat32),
          "TaskFunction: model_state must be float32 and contiguous, as it is updated in place");
  const bool gradients_wanted = params.requires_grad() && torch::GradMode::is_enabled();
  const torch::Tensor rows = Plain(params, torch::kFloat32);
  const torch::Tensor config = Plain(call.config, torch::kFloat32);
  const torch::Tensor examples = PlainExamples(call.examples);
  const torch::Tensor losses = torch::empty(params.sizes().slice(0, params.dim() - 1));
  const torch::Tensor gradients = gradients_wanted ? torch::empty(params.sizes()) : torch::Tensor();
  WorkspacePool::Lease scratch(*scratch_);
  family_->Evaluate({.rows = params.dim() == 1 ? 1 : params.size(0),
                     .config = SpanOf<float>(config),
                     .params = SpanOf<float>(rows),
                     .model_state = SpanOf<float>(call.model_state),
                     .split = call.split,
                     .keys = call.keys,
                     .examples = SpanOf<int32_t>(examples),
                     .losses = SpanOf<float>(losses),
                     .gradients = SpanOf<float>(gradients)},
                    *scratch);
  return gradients_wanted ? Losses::apply(params, losses, gradients) : losses;
}

}  // namespace lopt
