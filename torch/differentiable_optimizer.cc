#include "lopt/torch/differentiable_optimizer.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/jit_exception.h>
#include <torch/script.h>

#include <algorithm>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/torch/call.h"
#include "lopt/torch/script_module.h"

namespace lopt {
namespace {

torch::Tensor TensorAt(std::span<const float> row, const LayoutEntry& entry) {
  return torch::from_blob(const_cast<float*>(row.data()) + entry.offset, entry.shape);
}

// A parameter [spatial..., in, out] as torch has it, [out, in, spatial...], which scripts expect;
// and back.
torch::Tensor InTorchOrder(const torch::Tensor& param) {
  if (param.dim() < 2) return param;
  Shape axes = {param.dim() - 1, param.dim() - 2};
  for (int64_t axis = 0; axis < param.dim() - 2; ++axis) axes.push_back(axis);
  return param.permute(axes);
}

torch::Tensor InOurOrder(const torch::Tensor& param) {
  if (param.dim() < 2) return param;
  Shape axes;
  for (int64_t axis = 2; axis < param.dim(); ++axis) axes.push_back(axis);
  axes.insert(axes.end(), {1, 0});
  return param.permute(axes);
}

// As CallTorch, with scripts run as they are written: an executor that optimises what it has seen a
// few times would give other bits from then on.
template <class Body>
auto CallScript(const Body& body) {
  return CallTorch("update rule in TorchScript:", [&] {
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    try {
      return body();
    } catch (const torch::jit::JITException& error) {
      Fail("update rule in TorchScript: {}", error.getOriginalMsg().value_or(error.what()));
    }
  });
}

class ScriptRule : public DifferentiableRule {
 public:
  ScriptRule(const torch::jit::Module& module, const std::vector<std::string>& names,
             const Layout& params, std::span<const float> theta)
      : module_(module.copy()), params_(params) {
    CallScript([&] {
      int64_t offset = 0;
      for (const std::string& name : names) {
        const torch::Tensor old = module_.attr(name).toTensor();
        theta_.push_back(torch::from_blob(const_cast<float*>(theta.data()) + offset, old.sizes())
                             .clone()
                             .requires_grad_());
        module_.setattr(name, theta_.back());
        offset += old.numel();
      }
      Require(offset == std::ssize(theta),
              "update rule in TorchScript: its theta has {} numbers, got {}", offset, theta.size());
      const torch::NoGradGuard no_grad;
      std::vector<std::pair<std::string, Shape>> states;
      for (const LayoutEntry& entry : params_.entries()) {
        states.emplace_back(entry.name, Init(torch::zeros(entry.shape)).sizes().vec());
      }
      state_ = Layout(std::move(states));
    });
  }

  const Layout& state_layout() const override { return state_; }

  void InitState(std::span<const float> params, std::span<float> state) const override {
    CallScript([&] {
      const torch::NoGradGuard no_grad;
      for (size_t t = 0; t < params_.entries().size(); ++t) {
        TensorAt(state, state_.entries()[t]).copy_(Init(TensorAt(params, params_.entries()[t])));
      }
    });
  }

  void Update(const Step& step, std::span<const float> gradient, std::span<float> params,
              std::span<float> state) const override {
    CallScript([&] {
      const torch::NoGradGuard no_grad;
      for (size_t t = 0; t < params_.entries().size(); ++t) {
        const torch::Tensor param = TensorAt(params, params_.entries()[t]);
        const torch::Tensor own = TensorAt(state, state_.entries()[t]);
        const auto [new_param, new_state] =
            Call(step, param, TensorAt(gradient, params_.entries()[t]), own);
        param.copy_(new_param);
        own.copy_(new_state);
      }
    });
  }

  void Differentiate(const Step& step, std::span<const float> gradient,
                     std::span<const float> params, std::span<const float> state,
                     std::span<float> d_params, std::span<float> d_state,
                     std::span<float> d_gradient, std::span<double> d_theta) const override {
    CallScript([&] {
      const torch::AutoGradMode with_grad(true);
      for (size_t t = 0; t < params_.entries().size(); ++t) {
        const LayoutEntry& entry = params_.entries()[t];
        std::vector<torch::Tensor> inputs = {TensorAt(params, entry), TensorAt(gradient, entry),
                                             TensorAt(state, state_.entries()[t])};
        for (const torch::Tensor& input : inputs) input.requires_grad_();
        const auto [new_param, new_state] = Call(step, inputs[0], inputs[1], inputs[2]);
        inputs.insert(inputs.end(), theta_.begin(), theta_.end());
        const std::vector<torch::Tensor> outputs = {TensorAt(d_params, entry),
                                                    TensorAt(d_state, state_.entries()[t])};
        const std::vector<torch::Tensor> derivatives =
            torch::autograd::grad({new_param, new_state}, inputs, outputs, /*retain_graph=*/false,
                                  /*create_graph=*/false, /*allow_unused=*/true);
        const torch::NoGradGuard no_grad;
        const auto set = [](const torch::Tensor& to, const torch::Tensor& derivative) {
          if (derivative.defined()) {
            to.copy_(derivative);
          } else {
            to.zero_();
          }
        };
        set(outputs[0], derivatives[0]);
        set(TensorAt(d_gradient, entry), derivatives[1]);
        set(outputs[1], derivatives[2]);
        AddTheta(derivatives, d_theta);
      }
    });
  }

 private:
  torch::Tensor Init(const torch::Tensor& param) const {
    return module_.get_method("init_state")({InTorchOrder(param)}).toTensor();
  }

  std::pair<torch::Tensor, torch::Tensor> Call(const Step& step, const torch::Tensor& param,
                                               const torch::Tensor& gradient,
                                               const torch::Tensor& state) const {
    const auto results = module_
                             .get_method("update")({InTorchOrder(param), InTorchOrder(gradient),
                                                    state, step.step, step.num_steps})
                             .toTuple();
    return {InOurOrder(results->elements()[0].toTensor()), results->elements()[1].toTensor()};
  }

  // Those behind the first three.
  void AddTheta(const std::vector<torch::Tensor>& derivatives, std::span<double> d_theta) const {
    size_t offset = 0;
    for (size_t i = 0; i < theta_.size(); ++i) {
      const auto size = static_cast<size_t>(theta_[i].numel());
      if (const torch::Tensor& derivative = derivatives[3 + i]; derivative.defined()) {
        const torch::Tensor values = derivative.contiguous();
        const float* from = values.data_ptr<float>();
        for (size_t k = 0; k < size; ++k) d_theta[offset + k] += double{from[k]};
      }
      offset += size;
    }
  }

  torch::jit::Module module_;
  Layout params_;
  Layout state_;
  std::vector<torch::Tensor> theta_;
};

class ScriptOptimizer : public DifferentiableOptimizer {
 public:
  explicit ScriptOptimizer(const ScriptModule& script) {
    KeepTorchOnOneThread();
    for (const auto& [name, array] : script.theta) theta_.push_back(BufferName(name));
    try {
      module_ = MakeModule("Rule", script);
    } catch (const torch::jit::ErrorReport& error) {
      Fail("update rule in TorchScript: {}", error.what());
    }
  }

  std::unique_ptr<DifferentiableRule> Bind(const Layout& params,
                                           std::span<const float> theta) const override {
    return std::make_unique<ScriptRule>(module_, theta_, params, theta);
  }

 private:
  torch::jit::Module module_;
  std::vector<std::string> theta_;
};

}  // namespace

std::shared_ptr<const DifferentiableOptimizer> TorchDifferentiableOptimizer(
    const ScriptModule& script) {
  return std::make_shared<ScriptOptimizer>(script);
}

}  // namespace lopt
