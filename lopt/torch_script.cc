#include "lopt/torch_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numbers>
#include <span>
#include <vector>

#include "base/error.h"
#include "lopt/learnable.h"
#include "lopt/mlp_lopt.h"
#include "lopt/registry.h"

namespace lopt {
namespace {

// init_state with `slots` tensors like the parameter. `like` is a buffer of the module.
std::string InitState(int slots, std::string_view like) {
  return fmt::format(R"(
def init_state(self, param: Tensor) -> Tensor:
    return torch.zeros([{}] + param.size(), dtype=self.{}.dtype, device=param.device)
)",
                     slots, like);
}

constexpr const char* kUpdate = R"(
def update(self, param: Tensor, grad: Tensor, state: Tensor, step: int,
           num_steps: int = 0) -> Tuple[Tensor, Tensor]:
)";

// The first line of update where `need` (LearnedOptimizer::needs_num_steps) is not empty.
std::string RequireNumSteps(const std::string& need) {
  if (need.empty()) return "";
  return fmt::format(
      R"(    message = "{} needs num_steps: step {{}} is not one of a training of {{}} steps"
    assert step < num_steps, message.format(step, num_steps)
)",
      need);
}

// The expression of ScheduleFactor.
std::string Factor(RateSchedule schedule) {
  if (schedule == RateSchedule::kConstant) return "1.0";
  if (schedule == RateSchedule::kLinear) return "(1.0 - step / num_steps)";
  return fmt::format("((1.0 + torch.cos({} * step / num_steps)) / 2.0)", std::numbers::pi);
}

void MlpLopt(const Config& config, TorchScript* script) {
  const auto options = ReadOptions<MLPLOptOptions>(config);
  script->buffers.Set("decays", Array::Of<float>({MLPLOpt::kMomenta}, MLPLOpt::kDecays));
  script->buffers.Set("time_scales", Array::Of<float>({MLPLOpt::kTimes}, MLPLOpt::kTimeScales));
  std::string times;
  if (options.progress_features) {
    times = R"(    progress = torch.tensor([step / num_steps, torch.log(num_steps) / 10.0],
                            dtype=times.dtype, device=times.device)
    times = torch.cat([times, progress])
)";
  }
  std::string layers;
  for (int64_t l = 1; l <= options.hidden_layers; ++l) {
    layers +=
        fmt::format("    x = torch.relu(x) @ self.mlp_linear_{0}_w + self.mlp_linear_{0}_b\n", l);
  }
  std::string multiplier;
  if (options.relative_step) {
    multiplier += fmt::format(R"(    gradient = rms[0] * (1.0 - {decay} ** (step + 1))
    relative = (gradient / rms[{slowest}]).clamp(max=1.0)
    multiplier = multiplier * relative.masked_fill(gradient == 0.0, 0.0)
)",
                              fmt::arg("decay", double{MLPLOpt::kDecays.back()}),
                              fmt::arg("slowest", MLPLOpt::kNormalized - 1));
  }
  if (options.relative_to_parameter) {
    multiplier += fmt::format("    multiplier = multiplier * rms[1].clamp(min={})\n",
                              MLPLOpt::kParameterFloor);
  }
  script->source =
      InitState(MLPLOpt::kMomenta, "decays") + kUpdate +
      RequireNumSteps(MLPLOpt(options).needs_num_steps()) +
      fmt::format(R"(    p = param.to(self.decays.dtype)
    g = grad.to(self.decays.dtype)
    decays = self.decays.view([{momenta}] + [1] * param.dim())
    momenta = decays * state + (1.0 - decays) * g
    x = torch.cat([g.unsqueeze(0), p.unsqueeze(0), momenta]).reshape([{normalized}, param.numel()])
    mean_square = x.square().mean(1, True)
    x = x * torch.rsqrt({epsilon} + mean_square)
    times = torch.tanh(torch.full_like(self.time_scales, step) / self.time_scales - 1.0)
{times}    w = self.mlp_linear_0_w
    x = x.t() @ w[:{normalized}] + (times @ w[{normalized}:] + self.mlp_linear_0_b)
{layers}    rms = mean_square.sqrt().view([{normalized}])
    multiplier = torch.full_like(rms[0], {step_mult} * {factor})
{multiplier}    change = x[:, 0] * torch.exp(x[:, 1] * {exp_mult}) * multiplier
    return param - change.reshape(param.size()).to(param.dtype), momenta
)",
                  fmt::arg("momenta", MLPLOpt::kMomenta),
                  fmt::arg("normalized", MLPLOpt::kNormalized),
                  fmt::arg("epsilon", options.normalizer_epsilon), fmt::arg("times", times),
                  fmt::arg("layers", layers), fmt::arg("step_mult", options.step_mult),
                  fmt::arg("factor", Factor(options.schedule)), fmt::arg("multiplier", multiplier),
                  fmt::arg("exp_mult", options.exp_mult));
}

// The methods of a hand-designed optimizer with `slots` tensors of state: `body` ends update and
// finds the learning rate in `rate`.
std::string LearnableSource(const Config& config, RateSchedule schedule, int slots,
                            const std::string& body) {
  return InitState(slots, "log_lr") + kUpdate +
         RequireNumSteps(NeedOfNumSteps(config.Type(), schedule)) +
         "    rate = torch.exp(self.log_lr[0]) * " + Factor(schedule) + "\n" + body;
}

void Sgd(const Config& config, TorchScript* script) {
  const auto options = ReadOptions<LearnableSGDOptions>(config);
  script->source = LearnableSource(config, options.schedule, 0,
                                   R"(    change = rate * grad.to(self.log_lr.dtype)
    return param - change.to(param.dtype), state
)");
}

void Sgdm(const Config& config, TorchScript* script) {
  const auto options = ReadOptions<LearnableSGDMOptions>(config);
  script->source = LearnableSource(config, options.schedule, 1,
                                   R"(    momentum = 1.0 - torch.exp(self.one_minus_momentum[0])
    state = momentum * state + grad.to(self.log_lr.dtype)
    change = rate * state[0]
    return param - change.to(param.dtype), state
)");
}

void Adam(const Config& config, TorchScript* script) {
  const auto options = ReadOptions<LearnableAdamOptions>(config);
  script->source = LearnableSource(config, options.schedule, 2,
                                   fmt::format(R"(    g = grad.to(self.log_lr.dtype)
    beta1 = 1.0 - torch.exp(self.one_minus_beta1[0])
    beta2 = 1.0 - torch.exp(self.one_minus_beta2[0])
    m = beta1 * state[0] + (1.0 - beta1) * g
    v = beta2 * state[1] + (1.0 - beta2) * (g * g)
    correction1 = (1.0 - torch.pow(beta1.double(), step + 1)).to(g.dtype)
    correction2 = (1.0 - torch.pow(beta2.double(), step + 1)).to(g.dtype)
    root = torch.sqrt(v / correction2 + {epsilon_root}) + torch.exp(self.log_epsilon[0])
    direction = (m / correction1) / root + param.to(g.dtype) * {weight_decay}
    change = rate * direction
    return param - change.to(param.dtype), torch.stack([m, v])
)",
                                               fmt::arg("epsilon_root", options.epsilon_root),
                                               fmt::arg("weight_decay", options.weight_decay)));
}

const std::map<std::string, void (*)(const Config&, TorchScript*)>& Scripts() {
  static const std::map<std::string, void (*)(const Config&, TorchScript*)> scripts = {
      {"MLPLOpt", MlpLopt},
      {"LearnableSGD", Sgd},
      {"LearnableSGDM", Sgdm},
      {"LearnableAdam", Adam}};
  return scripts;
}

}  // namespace

TorchScript MakeTorchScript(const ThetaFile& theta_file) {
  const std::string type = theta_file.learned_optimizer.Type();
  const auto found = Scripts().find(type);
  if (found == Scripts().end()) {
    std::vector<std::string> types;
    for (const auto& [name, unused] : Scripts()) types.push_back(name);
    Fail("TorchScript: a {} cannot be exported{}; types that can: {}", type,
         type == "RNNMLPLOpt" ? ", for it sees all tensors and a script sees one" : "",
         fmt::join(types, ", "));
  }
  TorchScript script;
  const auto optimizer = OptimizerRegistry().Make(theta_file.learned_optimizer);
  const std::span<const float> theta(theta_file.theta.data(),
                                     static_cast<size_t>(theta_file.theta.size()));
  for (const auto& [name, array] : ArraysFromRow(optimizer->theta_layout(), theta)) {
    std::string identifier = name;
    std::replace(identifier.begin(), identifier.end(), '/', '_');
    script.buffers.Set(identifier, array);
  }
  found->second(theta_file.learned_optimizer, &script);
  return script;
}

}  // namespace lopt
