#include "lopt/lopt/torch_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numbers>
#include <regex>
#include <span>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/lopt/adafac_mlp_lopt.h"
#include "lopt/lopt/adafac_parts.h"
#include "lopt/lopt/celo2.h"
#include "lopt/lopt/learnable.h"
#include "lopt/lopt/learned_scheduler.h"
#include "lopt/lopt/mlp_lopt.h"
#include "lopt/lopt/orthogonal_steps.h"
#include "lopt/lopt/registry.h"

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

// For optimizers that see shapes: parameters [out, in, spatial...] as [spatial..., in, out] and
// back, the two largest axes as FindLargestAxes has them, and sizes with one axis averaged away.
constexpr const char* kShapes = R"(
def in_rule_order(self, x: Tensor) -> Tensor:
    if x.dim() < 2:
        return x
    axes: List[int] = []
    for axis in range(2, x.dim()):
        axes.append(axis)
    return x.permute(axes + [1, 0])

def in_torch_order(self, x: Tensor) -> Tensor:
    if x.dim() < 2:
        return x
    axes = [x.dim() - 1, x.dim() - 2]
    for axis in range(x.dim() - 2):
        axes.append(axis)
    return x.permute(axes)

def largest_axes(self, size: List[int]) -> Tuple[int, int]:
    largest = 0 if size[0] > size[1] else 1
    second = 1 - largest
    for axis in range(2, len(size)):
        if size[axis] >= size[largest]:
            second = largest
            largest = axis
        elif size[axis] >= size[second]:
            second = axis
    return largest, second

def averaged(self, size: List[int], axis: int) -> List[int]:
    means = size[:]
    means[axis] = 1
    return means

def count(self, size: List[int]) -> int:
    product = 1
    for n in size:
        product *= n
    return product
)";

// Of matrices, the last two axes: nearly orthogonal ones.
constexpr const char* kNewtonSchulz = R"(
def newton_schulz(self, x: Tensor) -> Tensor:
    tall = x.size(-2) > x.size(-1)
    if tall:
        x = x.transpose(-1, -2)
    x = x / (torch.sqrt(x.square().sum([-2, -1], True)) + 1e-8)
    for i in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.775 * a + 2.0315 * (a @ a)) @ x
    if tall:
        x = x.transpose(-1, -2)
    return x
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
  const auto cosine = [](const std::string& done) {
    return fmt::format("((1.0 + torch.cos({} * {})) / 2.0)", std::numbers::pi, done);
  };
  if (schedule == RateSchedule::kCosine) return cosine("step / num_steps");
  return fmt::format(
      "torch.where(step / num_steps < {0}, torch.clamp((step + 1) / ({0} * num_steps), max=1.0), "
      "{1})",
      kWarmup, cosine(fmt::format("(step / num_steps - {}) / {}", kWarmup, 1 - kWarmup)));
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

void AdafacMlpLopt(const Config& config, TorchScript* script) {
  const auto options = ReadOptions<AdafacMLPLOptOptions>(config);
  const AdafacFeatures features(options);
  const auto set = [&](const char* name, std::span<const float> values) {
    script->buffers.Set(name, Array::Of<float>({std::ssize(values)}, values));
  };
  set("initial_m", AdafacDecayParameters(options.initial_momentum_decays));
  set("initial_r", AdafacDecayParameters(options.initial_rms_decays));
  set("initial_f", AdafacDecayParameters(options.initial_adafactor_decays));
  set("time_scales", MLPLOpt::kTimeScales);
  std::string layers;
  for (int64_t l = 1; l <= options.hidden_layers; ++l) {
    layers += fmt::format("    x = torch.relu(x) @ self.nn_w{0} + self.nn_b{0}\n", l);
  }
  script->source = kShapes + fmt::format(
                                 R"(
def decays(self, initial: Tensor, offsets: Tensor) -> Tensor:
    return 1.0 - torch.exp(10.0 * (initial + offsets))

def init_state(self, param: Tensor) -> Tensor:
    size = self.in_rule_order(param).size()
    n = ({m} + {r}) * param.numel()
    if param.dim() < 2:
        n += {f} * param.numel()
    else:
        largest, second = self.largest_axes(size)
        n += {f} * self.count(self.averaged(size, largest))
        n += {f} * self.count(self.averaged(size, second))
    return torch.zeros([n], dtype=self.initial_m.dtype, device=param.device)
{update}    n = param.numel()
    if n == 0:
        return param, state
    p = self.in_rule_order(param.to(self.initial_m.dtype))
    g = self.in_rule_order(grad.to(self.initial_m.dtype))
    size = p.size()
    ones = [1] * p.dim()
    d = self.decays(self.initial_m, self.momentum_decays).view([{m}] + ones)
    m = d * state[:{m} * n].view([{m}] + size) + (1.0 - d) * g
    d = self.decays(self.initial_r, self.rms_decays).clamp(0.0, 1.0).view([{r}] + ones)
    r = d * state[{m} * n:({m} + {r}) * n].view([{r}] + size) + (1.0 - d) * (g * g)
    v = state[({m} + {r}) * n:]
    d = self.decays(self.initial_f, self.adafactor_decays).clamp(0.0, 1.0).view([{f}] + ones)
    square = g * g + 1e-30
    if p.dim() < 2:
        row = d * v.view([{f}] + size) + (1.0 - d) * square
        col = row
        of_g = torch.rsqrt(torch.clamp_min(row + {vector_epsilon}, 1e-9))
        of_m = torch.rsqrt(row + {momentum_epsilon})
        new_v = row.reshape([-1])
    else:
        largest, second = self.largest_axes(size)
        rows = [{f}] + self.averaged(size, largest)
        cols = [{f}] + self.averaged(size, second)
        row = d * v[:self.count(rows)].view(rows) + (1.0 - d) * square.mean(largest, True)
        col = d * v[self.count(rows):].view(cols) + (1.0 - d) * square.mean(second, True)
        ratio = row / (row.mean(second + 1, True) + 1e-9)
        of_g = torch.rsqrt(torch.clamp_min(ratio, 1e-9)) * torch.rsqrt(torch.clamp_min(col, 1e-9))
        of_m = of_g
        new_v = torch.cat([row.reshape([-1]), col.reshape([-1])])
        row = row.expand([{f}] + size)
        col = col.expand([{f}] + size)
    q = torch.rsqrt(r + {rms_epsilon})
    x = torch.cat([g.unsqueeze(0), p.unsqueeze(0), m, r, m * q, q, g * of_g, row, col,
                   torch.rsqrt(row + {moment_epsilon}), torch.rsqrt(col + {moment_epsilon}),
                   m * of_m]).reshape([{count}, n])
    x = x * torch.rsqrt({epsilon} + x.square().mean(1, True))
    times = torch.tanh(torch.full_like(self.time_scales, step) / self.time_scales - 1.0)
    w = self.nn_w0
    x = x.t() @ w[:{count}] + (times @ w[{count}:] + self.nn_b0)
{layers}    change = x[:, 0] * torch.exp(x[:, 1] * {exp_mult}) * {step_mult}
    change = self.in_torch_order(change.reshape(size))
    return param - change.to(param.dtype), torch.cat([m.reshape([-1]), r.reshape([-1]), new_v])
)",
                                 fmt::arg("update", kUpdate), fmt::arg("m", features.m),
                                 fmt::arg("r", features.r), fmt::arg("f", features.f),
                                 fmt::arg("count", features.count),
                                 fmt::arg("vector_epsilon", AdafacMLPLOpt::kVectorEpsilon),
                                 fmt::arg("momentum_epsilon", AdafacMLPLOpt::kMomentumEpsilon),
                                 fmt::arg("rms_epsilon", AdafacMLPLOpt::kRmsEpsilon),
                                 fmt::arg("moment_epsilon", AdafacMLPLOpt::kMomentEpsilon),
                                 fmt::arg("epsilon", AdafacMLPLOpt::kNormalizerEpsilon),
                                 fmt::arg("layers", layers), fmt::arg("exp_mult", options.exp_mult),
                                 fmt::arg("step_mult", options.step_mult));
}

// Celo2 and Celo2Base. The state of a parameter that the network steps is m, r, and then v or the
// moments by rows and by columns; of one that Adam steps, m and v.
void Celo2Source(const Config& config, const Celo2Options& options, bool orthogonal,
                 TorchScript* script) {
  const std::string update =
      kUpdate + RequireNumSteps(NeedOfNumSteps(config.Type(), options.schedule));
  script->buffers.Set("decays", Array::Of<float>({Celo2::kMomenta}, Celo2::kDecays));
  std::string first = "self.w0__0";
  for (int i = 1; i < 14; ++i) first += fmt::format(", self.w0__{}", i);
  std::string init;
  std::string adam;
  if (options.one_d != OneD::kLearned) {
    init = "    if param.dim() < 2:\n        n = 2 * param.numel()\n";
    const std::string direction =
        options.one_d == OneD::kAdam
            ? "        x = m * torch.rsqrt(v + 1e-8)\n"
            : "        root = torch.sqrt(v / (1.0 - 0.95 ** (step + 1))) + 1e-8\n"
              "        x = m / (1.0 - 0.9 ** (step + 1)) / root\n";
    adam = fmt::format(R"(    if param.dim() < 2:
        g = grad.to(self.decays.dtype)
        m = 0.9 * state[:n].view(g.size()) + (1.0 - 0.9) * g
        v = 0.95 * state[n:].view(g.size()) + (1.0 - 0.95) * (g * g)
{direction}        x = rate * {mult} * (x + {decay} * param.to(g.dtype))
        return param - x.to(param.dtype), torch.cat([m.reshape([-1]), v.reshape([-1])])
)",
                       fmt::arg("direction", direction), fmt::arg("mult", options.mult_1d),
                       fmt::arg("decay", options.weight_decay));
  }
  const std::string newton_schulz = !orthogonal ? "" : R"(    if p.dim() >= 2:
        x = self.newton_schulz(x)
)";
  script->source = kShapes + std::string(orthogonal ? kNewtonSchulz : "") +
                   fmt::format(R"(
def init_state(self, param: Tensor) -> Tensor:
    n = 7 * param.numel()
    if param.dim() >= 2:
        size = self.in_rule_order(param).size()
        largest, second = self.largest_axes(size)
        n = 4 * param.numel() + 3 * (self.count(self.averaged(size, largest)) +
                                     self.count(self.averaged(size, second)))
{init}    return torch.zeros([n], dtype=self.decays.dtype, device=param.device)

def normalized(self, x: Tensor, axes: List[int]) -> Tensor:
    square = x.square()
    if len(axes) > 0:
        square = square.mean(axes, True)
    return x * torch.rsqrt(1e-9 + square)
{update}    n = param.numel()
    if n == 0:
        return param, state
    rate = {rate} * {factor}
{adam}    p = self.in_rule_order(param.to(self.decays.dtype))
    g = self.in_rule_order(grad.to(self.decays.dtype)).clamp(-1000.0, 1000.0)
    size = p.size()
    d = self.decays.view([3] + [1] * p.dim())
    m = d * state[:3 * n].view([3] + size) + (1.0 - d) * g
    square = g * g
    r = 0.95 * state[3 * n:4 * n].view(size) + (1.0 - 0.95) * square
    q = torch.rsqrt(r + 1e-8)
    square = square + 1e-30
    v = state[4 * n:]
    axes: List[int] = []
    if p.dim() < 2:
        if p.dim() == 1:
            axes.append(-1)
        row = d * v.view([3] + size) + (1.0 - d) * square
        col = row
        f = torch.rsqrt(torch.clamp_min(row + 1e-9, 1e-9))
        new_v = row.reshape([-1])
    else:
        axes = [-2, -1]
        largest, second = self.largest_axes(size)
        rows = [3] + self.averaged(size, largest)
        cols = [3] + self.averaged(size, second)
        row = d * v[:self.count(rows)].view(rows) + (1.0 - d) * square.mean(largest, True)
        col = d * v[self.count(rows):].view(cols) + (1.0 - d) * square.mean(second, True)
        ratio = row / (row.mean(second + 1, True) + 1e-9)
        f = torch.rsqrt(torch.clamp_min(ratio, 1e-9)) * torch.rsqrt(torch.clamp_min(col, 1e-9))
        new_v = torch.cat([row.reshape([-1]), col.reshape([-1])])
    features = [g.unsqueeze(0), g.clamp(-0.1, 0.1).unsqueeze(0), p.unsqueeze(0), m,
                r.unsqueeze(0), m * q, q.unsqueeze(0), g * f, (g * q).unsqueeze(0)]
    if p.dim() >= 2:
        row = row.expand([3] + size)
        col = col.expand([3] + size)
        features += [row, col, torch.rsqrt(row + 1e-8), torch.rsqrt(col + 1e-8), m * f]
    x = self.normalized(torch.cat(features), axes)
    x = x.reshape([x.size(0), n]).t()
    w = torch.cat([{first}])
    x = torch.relu(x @ w[:x.size(1)] + self.b0)
    x = torch.relu(x @ self.w1 + self.b1)
    x = (x @ self.w2[:, 0] + self.b2[0]).view(size)
{newton_schulz}    x = rate * (self.normalized(x, axes) + {decay} * p)
    x = self.in_torch_order(x)
    return param - x.to(param.dtype), torch.cat([m.reshape([-1]), r.reshape([-1]), new_v])
)",
                               fmt::arg("init", init), fmt::arg("update", update),
                               fmt::arg("rate", options.learning_rate),
                               fmt::arg("factor", Factor(options.schedule)), fmt::arg("adam", adam),
                               fmt::arg("first", first), fmt::arg("newton_schulz", newton_schulz),
                               fmt::arg("decay", options.weight_decay));
}

void Celo2Script(const Config& config, TorchScript* script) {
  Celo2Source(config, ReadOptions<Celo2Options>(config), true, script);
}

void Celo2BaseScript(const Config& config, TorchScript* script) {
  Celo2Source(config, AsCelo2(ReadOptions<Celo2BaseOptions>(config)), false, script);
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

void WriteScript(const Config& config, TorchScript* script);

// Begins the script of an optimizer that changes the steps of another one with the methods of that,
// their names behind "optimizer_", and of its buffers behind `buffers`.
void BeginWith(const Config& optimizer, const std::string& buffers, TorchScript* script) {
  TorchScript other;
  WriteScript(optimizer, &other);
  for (const auto& [name, array] : other.buffers) script->buffers.Set(buffers + name, array);
  std::string source = std::move(other.source);
  for (const auto& [what, with] : {std::pair(R"(self\.(\w+)\b(?!\())", "self." + buffers + "$1"),
                                   std::pair(R"(self\.(\w+)\()", std::string("self.optimizer_$1(")),
                                   std::pair(R"(def (\w+))", std::string("def optimizer_$1"))}) {
    source = std::regex_replace(source, std::regex(what), with);
  }
  script->source = source;
}

// A matrix in torch's order is that of the rule transposed, its rows in another order, and so is
// what Newton-Schulz makes of it.
void Orthogonal(const Config& config, TorchScript* script) {
  const auto options = ReadOptions<OrthogonalStepsOptions>(config);
  BeginWith(options.optimizer, "", script);
  script->source += kNewtonSchulz + std::string(R"(
def init_state(self, param: Tensor) -> Tensor:
    return self.optimizer_init_state(param)
)") + kUpdate + R"(    p = param.float()
    after, state = self.optimizer_update(p, grad.float(), state, step, num_steps)
    change = p - after
    if change.dim() >= 2 and change.numel() > 0:
        x = change.reshape([change.size(0), -1])
        still = x.square().sum() == 0.0
        x = x.masked_fill(still, 1.0)  # so that there are derivatives
        size = x.square().sum().sqrt()
        x = self.newton_schulz(x / size)
        x = x * (size / x.square().sum().sqrt())
        change = torch.where(still, change, x.reshape(change.size()))
    return param - change.to(param.dtype), state
)";
}

void Scheduler(const Config& config, TorchScript* script) {
  const auto options = ReadOptions<LearnedSchedulerOptions>(config);
  BeginWith(options.optimizer, "optimizer_", script);
  script->source += fmt::format(
      R"(
def init_state(self, param: Tensor) -> Tensor:
    state = self.optimizer_init_state(param).reshape([-1])
    return torch.cat([state, state.new_zeros([param.numel() + 5])])

def cosine(self, xy: Tensor, xx: Tensor, yy: Tensor) -> Tensor:
    zero = torch.logical_or(xx == 0.0, yy == 0.0)
    norm = xx.masked_fill(zero, 1.0).sqrt() * yy.masked_fill(zero, 1.0).sqrt()
    return (xy / norm).masked_fill(zero, 0.0)
{update}{need}    n = param.numel()
    if n == 0:
        return param, state
    p = param.float()
    g = grad.float()
    of_optimizer = state[:-n - 5].view(self.optimizer_init_state(p).size())
    after, of_optimizer = self.optimizer_update(p, g, of_optimizer, step, num_steps)
    s = p - after
    last = state[-n - 5:-5].view(p.size())
    x = torch.stack([g, last, s, p]).view([4, n]).double()
    x = x @ x.t()
    to_last = self.cosine(x[0, 1], x[0, 0], x[1, 1])
    to_step = self.cosine(x[0, 2], x[0, 0], x[2, 2])
    square = (x[0, 0] / n).clamp(max=1e30)
    decays = torch.tensor([0.9, 0.99, 0.9, 0.999, 0.9], dtype=x.dtype, device=x.device)
    values = torch.stack([to_last, to_last, to_step, square, square])
    means = (decays * state[-5:].double() + (1.0 - decays) * values).float()
    m = means.double() / (1.0 - decays ** (step + 1))
    none = torch.logical_or(m[3] == 0.0, m[4] == 0.0)
    growth = torch.log(m[4].masked_fill(none, 1.0) / m[3].masked_fill(none, 1.0)) / 2.0
    growth = growth.clamp(-20.0, 3.0).masked_fill(none, -20.0)
    size = torch.log((x[3, 3] / n).clamp(min=1e-8)) / 2.0
    columns = param.size(0) if param.dim() > 0 else 1
    rows = n // columns
    of_run = [2.0 * step / num_steps - 1.0, (torch.log(num_steps) - 5.5) / 2.0,
              torch.exp(-step / 10.0)]
    of_shape = [(torch.log(rows) - 3.0) / 2.0, (torch.log(columns) - 3.0) / 2.0,
                1.0 if param.dim() >= 2 else -1.0]
    f = torch.cat([torch.tensor(of_run, dtype=x.dtype, device=x.device),
                   torch.stack([3.0 * m[0], 5.0 * m[1], 3.0 * m[2] - 1.0, growth,
                                (size + 2.0) / 2.0]),
                   torch.tensor(of_shape, dtype=x.dtype, device=x.device)])
    h = torch.tanh(f @ self.scheduler_hidden_w.double() + self.scheduler_hidden_b.double())
    f = torch.cat([f, h])
    o = f @ self.scheduler_out_w.double() + self.scheduler_out_b.double()
    factor = {factor}
    length = {step_size} * factor * torch.exp(o[0].clamp(max=10.0)) / torch.sqrt(max(rows, columns))
    still = x[2, 2] == 0.0
    rms = (x[2, 2] / n).masked_fill(still, 1.0).sqrt()
    last = (length / rms).masked_fill(still, 0.0).float() * s
    decay = {weight_decay} * factor * torch.exp((2.0 * o[1]).clamp(max=10.0))
    change = last + decay.clamp(max=1.0).float() * p
    state = torch.cat([of_optimizer.reshape([-1]), last.reshape([-1]), means])
    return param - change.to(param.dtype), state
)",
      fmt::arg("update", kUpdate), fmt::arg("need", RequireNumSteps(config.Type())),
      fmt::arg("factor", Factor(options.schedule)), fmt::arg("step_size", options.step_size),
      fmt::arg("weight_decay", options.weight_decay));
}

const std::map<std::string, void (*)(const Config&, TorchScript*)>& Scripts() {
  static const std::map<std::string, void (*)(const Config&, TorchScript*)> scripts = {
      {"MLPLOpt", MlpLopt},
      {"AdafacMLPLOpt", AdafacMlpLopt},
      {"Celo2", Celo2Script},
      {"Celo2Base", Celo2BaseScript},
      {"OrthogonalSteps", Orthogonal},
      {"LearnedScheduler", Scheduler},
      {"LearnableSGD", Sgd},
      {"LearnableSGDM", Sgdm},
      {"LearnableAdam", Adam}};
  return scripts;
}

// The source, and the buffers of constants.
void WriteScript(const Config& config, TorchScript* script) {
  const std::string type = config.Type();
  const auto found = Scripts().find(type);
  Require(found != Scripts().end(), "TorchScript: a {} cannot be exported{}; types that can: {}",
          type, type == "RNNMLPLOpt" ? ", for it sees all tensors and a script sees one" : "",
          fmt::join(TypesWithTorchScript(), ", "));
  found->second(config, script);
}

}  // namespace

std::vector<std::string> TypesWithTorchScript() {
  std::vector<std::string> types;
  for (const auto& [name, unused] : Scripts()) types.push_back(name);
  return types;
}

std::string BufferName(std::string_view tensor) {
  std::string name(tensor);
  std::ranges::replace(name, '/', '_');
  return name;
}

TorchScript MakeTorchScript(const ThetaFile& theta_file) {
  TorchScript script;
  WriteScript(theta_file.learned_optimizer, &script);
  const auto optimizer = OptimizerRegistry().Make(theta_file.learned_optimizer);
  const std::span<const float> theta(theta_file.theta.data(),
                                     static_cast<size_t>(theta_file.theta.size()));
  for (const auto& [name, array] : ArraysFromRow(optimizer->theta_layout(), theta)) {
    script.buffers.Set(BufferName(name), array);
  }
  return script;
}

}  // namespace lopt
