#include "lopt/estimators/device_program.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/progress.h"
#include "lopt/estimators/device_launch.h"
#include "lopt/estimators/given_gradients.h"
#include "lopt/estimators/lopt_state.h"
#include "lopt/estimators/replica_keys.h"
#include "lopt/lopt/device_rules.h"
#include "lopt/tasks/device_tasks.h"

namespace lopt {
namespace {

constexpr int kWarp = 32;

// "lopt::ImageConv".
std::string NameOf(const std::type_info& type) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), &std::free);
  return name == nullptr ? type.name() : name.get();
}

DeviceTask DeviceTaskOf(const TaskFamily& family, const Device& device, int64_t room,
                        DeviceConstants* constants) {
  if (const auto args = QuadraticArgs(family)) return DeviceFunctions<QuadraticDevice>{*args};
  if (const auto args = ImageMlpArgs(family, room, constants)) {
    return DeviceFunctions<ImageMlpDevice>{*args};
  }
  if (family.EvaluatesOn(device)) return DeviceFunctions<GivenGradientDevice>{};
  Fail(
      "device: the task {} has no functions for a device; those that have are ImageMLP and the "
      "quadratics, and torch tasks need none",
      NameOf(typeid(family)));
}

// Sets the rule to these functions if they are of the optimizer's type and wide enough, and nothing
// narrower was.
template <class Functions, class ArgsOf>
void TryRule(const ArgsOf& args_of, const LearnedOptimizer& optimizer, const Layout& params,
             DeviceConstants* constants, std::optional<DeviceRule>* rule) {
  if (*rule) return;
  const auto args = args_of(optimizer, params, Functions::kGroup, constants);
  if (args && args->network.hidden <= Functions::kMostHidden) {
    *rule = DeviceFunctions<Functions>{*args};
  }
}

DeviceRule DeviceRuleOf(const LearnedOptimizer& optimizer, const Layout& params,
                        DeviceConstants* constants) {
  std::optional<DeviceRule> rule;
  TryRule<MlpLoptDevice<16>>(MlpLoptArgsOf, optimizer, params, constants, &rule);
  TryRule<MlpLoptDevice<32>>(MlpLoptArgsOf, optimizer, params, constants, &rule);
  TryRule<MlpLoptDevice<64>>(MlpLoptArgsOf, optimizer, params, constants, &rule);
  TryRule<AdafacMlpLoptDevice<4>>(AdafacArgsOf, optimizer, params, constants, &rule);
  TryRule<AdafacMlpLoptDevice<32>>(AdafacArgsOf, optimizer, params, constants, &rule);
  TryRule<AdafacMlpLoptDevice<64>>(AdafacArgsOf, optimizer, params, constants, &rule);
  TryRule<Celo2Device>(Celo2ArgsOf, optimizer, params, constants, &rule);
  Require(rule.has_value(),
          "device: the optimizer {} has no functions for a device; those that have are MLPLOpt and "
          "AdafacMLPLOpt of up to 64 hidden units, Celo2Base and Celo2",
          optimizer.config().empty() ? NameOf(typeid(optimizer)) : optimizer.config().Type());
  return *rule;
}

// Floats, up to the next multiple of 4.
int64_t Padded(int64_t floats) { return (floats + 3) / 4 * 4; }

// Of the loss and the aux output.
constexpr int64_t kResult = 4;

}  // namespace

DeviceProgram::DeviceProgram(const LoptProblem& problem, const Device& device)
    : problem_(problem),
      device_(device),
      constants_(device.memory()),
      rule_(DeviceRuleOf(problem.optimizer(), problem.task().params_layout(), &constants_)),
      task_(DeviceTaskOf(problem.task(), device, RoomForTask(), &constants_)) {
  Require(GivesGradients() || problem.task().model_state_layout().size() == 0,
          "device: this task keeps a model state, which device functions do not");
  Require(
      GivesGradients() || (problem.task_notes().empty() && problem.optimizer_notes().empty()),
      "device: with_metrics is true, and kernels note nothing; choose the device 'cpu', a torch "
      "task, or with_metrics false");
  const auto warps = (problem.task().params_layout().size() + kWarp - 1) / kWarp;
  threads_ = static_cast<int>(std::clamp<int64_t>(warps * kWarp, kWarp, kMostThreads));
  Plan();
}

// Floats of a block.
int64_t DeviceProgram::Room() const {
  return static_cast<int64_t>(device_.shared_memory() / sizeof(float));
}

int64_t DeviceProgram::Weights() const {
  return Padded(std::visit(
      [](const auto& rule) {
        return std::decay_t<decltype(rule)>::Functions::WeightFloats(rule.args);
      },
      rule_));
}

// Of a resident replica.
int64_t DeviceProgram::Arrays() const {
  const int64_t state = std::visit(
      [](const auto& rule) {
        return std::decay_t<decltype(rule)>::Functions::StateFloats(rule.args);
      },
      rule_);
  return 2 * Padded(problem_.task().params_layout().size()) + Padded(state);
}

// Scratch memory for the task: what a resident replica's arrays leave, unless that is too little to
// work with.
int64_t DeviceProgram::RoomForTask() const {
  constexpr int64_t kEnough = 12 * 1024;
  const int64_t room = Room() - kResult - Weights();
  return room - Arrays() >= kEnough ? room - Arrays() : room;
}

void DeviceProgram::Plan() {
  const auto functions_scratch = [&](const auto& of) {
    return std::decay_t<decltype(of)>::Functions::ScratchFloats(of.args, threads_);
  };
  const int64_t scratch =
      Padded(std::max(std::visit(functions_scratch, task_), std::visit(functions_scratch, rule_)));
  const int64_t always = kResult + Weights() + scratch;
  Require(always <= Room(),
          "device '{}': weights and scratch memory of one replica take {} bytes of the {} that a "
          "block has",
          device_.name(), always * sizeof(float), device_.shared_memory());
  plan_.resident = !GivesGradients() && always + Arrays() <= Room();
  int64_t at = 0;
  const auto place = [&at](int64_t floats) {
    return static_cast<int>(std::exchange(at, at + floats));
  };
  if (plan_.resident) {
    const int64_t params = Padded(problem_.task().params_layout().size());
    plan_.params = place(params);
    plan_.gradient = place(params);
    plan_.state = place(Arrays() - 2 * params);
  }
  plan_.result = place(kResult);
  plan_.weights = place(Weights());
  plan_.scratch = place(scratch);
  plan_.total = static_cast<int>(at);
}

void DeviceProgram::Run(const Window& window) const {
  if (GivesGradients()) {
    RunGivenGradients(*this, window);
    return;
  }
  const TaskFamily& task = problem_.task();
  const int64_t config_size = task.config_layout().size();
  const int64_t params_size = task.params_layout().size();
  UnrollState& state = *window.state;
  const LoptCounters counters(window.theta.rows, &state);
  const std::span<float> config =
      FloatsIn(state, "config", window.theta.rows, task.config_layout()).As<float>();
  DeviceLaunch launch(*this, window.theta, config);
  DeviceWindow& to = launch.window();
  const auto on_device = [&](const char* name, const Layout& layout) {
    return FloatsOf(ArrayOn(device_.memory(), &state, name, window.theta.rows, layout).buffer());
  };
  to.params = on_device("params", task.params_layout());
  to.state = on_device("optimizer_state", problem_.optimizer_state_layout());

  // The stretches, and what the episodes that begin inside the window begin with.
  std::vector<DeviceStretch> stretches;
  std::vector<int64_t> first_stretch = {0};
  std::vector<float> starts;
  const int64_t row_size = config_size + params_size;
  for (int64_t b = 0; b < window.theta.rows; ++b) {
    int64_t restarts = 0;
    const auto stretch = [&](int64_t start) {
      return DeviceStretch{.keys = counters.Keys(window.keys[b], b),
                           .step = counters.inner_step[b],
                           .count = 0,
                           .num_steps = counters.NumSteps(b),
                           .start = start,
                           .restarts = restarts};
    };
    stretches.push_back(stretch(-1));
    for (int64_t k = 0; k < window.steps; ++k) {
      ++stretches.back().count;
      if (!counters.CountStep(k, b, window.trace)) continue;
      const auto start = std::ssize(starts) / std::max<int64_t>(row_size, 1);
      starts.resize(starts.size() + static_cast<size_t>(row_size));
      const std::span<float> row = RowsOf(std::span(starts), start, row_size);
      counters.FollowWith(
          b, problem_.DrawEpisode(FoldIn2(window.keys[b], kRestartDraw, counters.episode[b]),
                                  window.outer,
                                  {.config = row.first(static_cast<size_t>(config_size)),
                                   .params = row.last(static_cast<size_t>(params_size)),
                                   .model_state = {},
                                   .optimizer_state = {}}));
      ++restarts;
      stretches.push_back(stretch(start));
    }
    first_stretch.push_back(std::ssize(stretches));
  }
  to.stretches = launch.inputs().Keep(stretches);
  to.first_stretch = launch.inputs().Keep(first_stretch);
  to.starts = launch.inputs().Keep(starts);
  const Array losses = launch.Run(window.steps);
  const std::span<const float> raw = losses.As<float>();
  NoteProgress();

  for (int64_t b = 0; b < window.theta.rows; ++b) {
    const std::span<float> now = RowsOf(config, b, config_size);
    int64_t k = 0;
    for (int64_t s = first_stretch[b]; s < first_stretch[b + 1]; ++s) {
      if (stretches[s].start >= 0) {
        const auto row = RowsOf(std::span(starts), stretches[s].start, row_size);
        std::ranges::copy(row.first(static_cast<size_t>(config_size)), now.begin());
      }
      for (int64_t i = 0; i < stretches[s].count; ++i, ++k) {
        window.trace->loss(k, b) =
            problem_.JudgeLoss(now, raw[b * window.steps + k], &window.trace->non_finite(k, b));
      }
    }
  }
}

void DeviceProgram::MetaLoss(const ThetaRows& theta, std::span<const Key> keys,
                             const UnrollState& state, std::span<double> loss) const {
  if (GivesGradients()) {
    MetaLossOfGiven(*this, theta.rows, keys, state, loss);
    return;
  }
  const TaskFamily& task = problem_.task();
  const std::span<const float> config =
      FloatsIn(state, "config", theta.rows, task.config_layout()).As<float>();
  DeviceLaunch launch(*this, theta, config);
  DeviceWindow& to = launch.window();
  const Array params =
      FloatsIn(state, "params", theta.rows, task.params_layout()).To(device_.memory());
  // An evaluation only reads the params, and the state not at all.
  to.params = const_cast<float*>(FloatsOf(params.buffer()));
  to.meta_split = static_cast<int>(problem_.meta_loss_split().value_or(Split::kTrain));
  to.evaluates = true;
  std::vector<DeviceStretch> stretches;
  std::vector<int64_t> first_stretch;
  for (int64_t b = 0; b < theta.rows; ++b) {
    stretches.push_back(
        {.keys = {.data = {}, .meta_data = keys[b], .order = {}, .meta_order = keys[b]},
         .count = 1});
    first_stretch.push_back(b);
  }
  first_stretch.push_back(theta.rows);
  to.stretches = launch.inputs().Keep(stretches);
  to.first_stretch = launch.inputs().Keep(first_stretch);
  const Array raw = launch.Run(1);
  for (int64_t b = 0; b < theta.rows; ++b) {
    bool non_finite = false;
    loss[b] = problem_.UnscaledLoss(RowsOf(config, b, task.config_layout().size()),
                                    raw.As<float>()[b], &non_finite);
  }
}

}  // namespace lopt
