#include "lopt/estimators/differentiable_problem.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lopt/base/device.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/base/progress.h"
#include "lopt/estimators/lopt_state.h"
#include "lopt/estimators/replica_keys.h"
#include "lopt/lopt/use/torch_script.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

class TorchScriptRule : public UpdateRule {
 public:
  TorchScriptRule(const Layout& params, std::unique_ptr<DifferentiableRule> rule)
      : UpdateRule(params, rule->state_layout()), rule_(std::move(rule)) {}

 private:
  void DoInitState(const StepInfo&, std::span<const float> params,
                   std::span<float> state) const override {
    rule_->InitState(params, state);
  }
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace&) const override {
    rule_->Update({info.step, info.num_steps}, gradient, params, state);
  }

  std::unique_ptr<DifferentiableRule> rule_;
};

// An optimizer whose updates are computed by its script.
class TorchScriptOptimizer : public LearnedOptimizer {
 public:
  TorchScriptOptimizer(std::shared_ptr<const LearnedOptimizer> plain,
                       std::shared_ptr<const DifferentiableOptimizer> script)
      : LearnedOptimizer(plain->theta_layout(), plain->needs_num_steps()),
        plain_(std::move(plain)),
        script_(std::move(script)) {}

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override {
    const Eigen::VectorXf drawn = plain_->InitTheta(key);
    std::copy(drawn.begin(), drawn.end(), theta.begin());
  }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override {
    return std::make_unique<TorchScriptRule>(params, script_->Bind(params, theta));
  }

  std::shared_ptr<const LearnedOptimizer> plain_;
  std::shared_ptr<const DifferentiableOptimizer> script_;
};

ScriptModule ScriptOf(const std::string& who, const LearnedOptimizer& optimizer) {
  Require(!optimizer.config().empty(),
          "{}: the learned optimizer is not one that a config names, so it has no script to "
          "differentiate",
          who);
  Require(!optimizer.needs_loss(),
          "{}: a {} also sees the loss, of which exact gradients know nothing; wanted an optimizer "
          "that sees gradients alone, or an estimator by evolution strategies",
          who, optimizer.config().Type());
  const std::string objection = ObjectionToExactGradients(optimizer.config());
  Require(objection.empty(), "{}: {}", who, objection);
  return MakeTorchScript({.learned_optimizer = optimizer.config(),
                          .theta = Eigen::VectorXf::Zero(optimizer.theta_layout().size())});
}

// Params of a layout before and after a few updates.
struct Moved {
  std::vector<float> before;
  std::vector<float> after;
};

Moved Move(const LearnedOptimizer& optimizer, const Layout& params, std::span<const float> theta) {
  constexpr int64_t kSteps = 3;
  std::vector<float> values(static_cast<size_t>(params.size()));
  std::vector<float> gradient(values.size());
  Normal(KeyFromSeed(0), values);
  Moved moved = {.before = values, .after = {}};
  const auto rule = optimizer.Bind(params, theta);
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  Workspace scratch;
  rule->InitState({.num_steps = kSteps}, values, state);
  for (int64_t step = 0; step < kSteps; ++step) {
    Normal(KeyFromSeed(static_cast<uint64_t>(step) + 1), gradient);
    rule->Update({.step = step, .num_steps = kSteps}, gradient, values, state, scratch);
  }
  moved.after = std::move(values);
  return moved;
}

// A script steps one tensor and does not see its name, by which some rules go.
void CheckScript(const std::string& who, const LearnedOptimizer& plain,
                 const LearnedOptimizer& script, const Layout& params) {
  const Eigen::VectorXf theta = plain.InitTheta(KeyFromSeed(0));
  const auto [before, wanted] = Move(plain, params, AsSpan(theta));
  const std::vector<float> got = Move(script, params, AsSpan(theta)).after;
  // Relative to the steps, which may be far smaller than the params and, computed in bf16, apart by
  // 2e-3; beside them each param is rounded.
  float largest_step = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    largest_step = std::max(largest_step, std::abs(wanted[i] - before[i]));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float rounding = 0x1p-22F * std::max(std::abs(before[i]), std::abs(wanted[i]));
    Require(!(std::abs(got[i] - wanted[i]) > 1e-2F * largest_step + rounding),
            "{}: the script of {}, which is differentiated, does not step the params of this task "
            "as the optimizer itself does: a script does not see the names of tensors",
            who, plain.config().Type());
  }
}

bool AllZero(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

void AddTo(std::vector<float>* sum, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) (*sum)[i] += values[i];
}

}  // namespace

// dJ by the params, model state and optimizer state of one replica between two steps.
struct DifferentiableProblem::Adjoint {
  explicit Adjoint(const LoptProblem& problem)
      : params(problem.task().params_layout().size()),
        model_state(problem.task().model_state_layout().size()),
        optimizer_state(problem.optimizer_state_layout().size()),
        theta(problem.theta_layout().size()) {}

  bool IsZero() const {
    return AllZero(params) && AllZero(model_state) && AllZero(optimizer_state);
  }
  void Clear() {
    std::ranges::fill(params, 0);
    std::ranges::fill(model_state, 0);
    std::ranges::fill(optimizer_state, 0);
  }

  std::vector<float> params;           // [P]
  std::vector<float> model_state;      // [M]
  std::vector<float> optimizer_state;  // [S]
  std::vector<double> theta;           // [D], of the steps so far
};

namespace {

const TaskResources& WithoutDevice(const std::string& who, const TaskResources& resources) {
  if (const Device* device = resources.UseDevice()) {
    Fail(
        "{} differentiates its windows, which no device does, and the device is '{}'; choose the "
        "device 'cpu', or an estimator that only runs windows, such as TruncatedPES",
        who, device->name());
  }
  return resources;
}

}  // namespace

DifferentiableProblem::DifferentiableProblem(
    const std::string& who, const Config& task,
    const std::shared_ptr<const LearnedOptimizer>& optimizer,
    std::shared_ptr<const TruncationSchedule> schedule, const LoptProblemOptions& options,
    const TaskResources& resources)
    : task_(MakeTaskDerivatives(who, task, WithoutDevice(who, resources))),
      optimizer_(MakeDifferentiableOptimizer(who, ScriptOf(who, *optimizer))),
      problem_(std::make_shared<LoptProblem>(
          TaskRegistry().Make(task, resources),
          std::make_shared<TorchScriptOptimizer>(optimizer, optimizer_), std::move(schedule),
          options)) {
  CheckScript(who, *optimizer, problem_->optimizer(), problem_->task().params_layout());
}

Eigen::MatrixXd DifferentiableProblem::Run(const Window& window, const LossWeights& weights) const {
  Require(window.theta.perturbations == nullptr,
          "differentiable problem: theta is perturbed, wanted one theta for all replicas");
  const int64_t replicas = window.theta.rows;
  const auto piece_steps =
      static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(window.steps))));
  const auto run = [&](int64_t steps, UnrollState* state, UnrollTrace* trace) {
    Window piece = window;
    piece.steps = steps;
    piece.state = state;
    piece.trace = trace;
    problem_->Run(piece);
  };

  UnrollTrace& trace = *window.trace;
  trace.Resize(window.steps, replicas);
  std::vector<UnrollState> starts;  // of the pieces
  UnrollTrace part;
  for (int64_t first = 0; first < window.steps; first += piece_steps) {
    const int64_t steps = std::min(piece_steps, window.steps - first);
    starts.push_back(*window.state);
    run(steps, window.state, &part);
    trace.loss.middleRows(first, steps) = part.loss;
    trace.is_last.middleRows(first, steps) = part.is_last;
    trace.non_finite.middleRows(first, steps) = part.non_finite;
    trace.iteration.middleRows(first, steps) = part.iteration;
    for (size_t i = 0; i < part.noted.size(); ++i) {
      if (first == 0) {
        trace.noted.push_back({part.noted[i].name, Eigen::ArrayXXf(window.steps, replicas)});
      }
      trace.noted[i].values.middleRows(first, steps) = part.noted[i].values;
    }
  }

  const Eigen::ArrayXXd weight = weights(trace);
  const auto rule = optimizer_->Bind(problem_->task().params_layout(), window.theta.theta);
  std::vector<Adjoint> adjoints(static_cast<size_t>(replicas), Adjoint(*problem_));
  while (!starts.empty()) {
    const int64_t first = (std::ssize(starts) - 1) * piece_steps;
    const int64_t last = std::min(first + piece_steps, window.steps) - 1;
    std::vector<UnrollState> states;  // before each step
    states.push_back(std::move(starts.back()));
    starts.pop_back();
    for (int64_t k = first; k < last; ++k) {
      states.push_back(states.back());
      run(1, &states.back(), &part);
    }
    ParallelFor(replicas, [&](int64_t b) {
      Adjoint& adjoint = adjoints[static_cast<size_t>(b)];
      for (int64_t k = last; k >= first; --k) {
        if (trace.is_last(k, b)) adjoint.Clear();  // what follows is another episode
        if (weight(k, b) == 0 && adjoint.IsZero()) continue;
        StepBack(*rule, window, b, &states[static_cast<size_t>(k - first)], weight(k, b), &adjoint);
        NoteProgress();
      }
    });
  }

  Eigen::MatrixXd d_theta(problem_->theta_layout().size(), replicas);
  for (int64_t b = 0; b < replicas; ++b) {
    const std::vector<double>& theta = adjoints[static_cast<size_t>(b)].theta;
    d_theta.col(b) = Eigen::Map<const Eigen::VectorXd>(theta.data(), std::ssize(theta));
  }
  return d_theta;
}

void DifferentiableProblem::StepBack(const DifferentiableRule& rule, const Window& window,
                                     int64_t b, UnrollState* before, double weight,
                                     Adjoint* adjoint) const {
  const TaskFamily& task = problem_->task();
  const LoptState state(*problem_, window.theta.rows, before);
  const LoptProblem::ReplicaRow row = state.Row(*problem_, b);
  const DifferentiableRule::Step step = {.step = state.inner_step[b],
                                         .num_steps = state.NumSteps(b)};
  const EpisodeKeys keys = KeysOfEpisode(window.keys[b], state.episode[b], state.order[b]);
  const auto number = static_cast<uint64_t>(step.step);

  WorkspacePool::Lease lease(problem_->workspaces());
  Workspace& scratch = *lease;
  const Workspace::Frame frame(scratch);
  const auto gradient = scratch.Take<float>(std::ssize(row.params));
  const auto d_gradient = scratch.Take<float>(std::ssize(row.params));
  const auto d_params = scratch.Take<float>(std::ssize(row.params));
  const auto d_model_state = scratch.Take<float>(std::ssize(row.model_state));
  const auto new_model_state = scratch.Take<float>(std::ssize(row.model_state));
  std::ranges::copy(row.model_state, new_model_state.begin());

  const Key batch = FoldIn(keys.data, number);
  const EpisodeStep place = {keys.order, step.step};
  float loss = 0;
  TaskEvaluation training = {.rows = 1,
                             .config = row.config,
                             .params = row.params,
                             .model_state = new_model_state,
                             .split = Split::kTrain,
                             .keys = {&batch, 1},
                             .steps = {&place, 1},
                             .losses = {&loss, 1},
                             .gradients = gradient};
  task.Evaluate(training, scratch);

  if (!problem_->MetaLossIsBeforeUpdate()) {
    if (weight != 0) {
      const auto params = scratch.Take<float>(std::ssize(row.params));
      const auto optimizer_state = scratch.Take<float>(std::ssize(row.optimizer_state));
      std::ranges::copy(row.params, params.begin());
      std::ranges::copy(row.optimizer_state, optimizer_state.begin());
      rule.Update(step, gradient, params, optimizer_state);
      TaskEvaluation judged = training;
      judged.params = params;
      const Key meta_batch = FoldIn(keys.meta_data, number);
      const EpisodeStep meta_place = {keys.meta_order, step.step};
      if (const auto& split = problem_->meta_loss_split()) {
        judged.split = *split;
        judged.keys = {&meta_batch, 1};
        judged.steps = {&meta_place, 1};
      }
      task_->Differentiate(judged, {.loss = weight, .aux = problem_->meta_loss_aux()}, d_params,
                           d_model_state, scratch);
      AddTo(&adjoint->params, d_params);
      AddTo(&adjoint->model_state, d_model_state);
    }
    weight = 0;
  }
  rule.Differentiate(step, gradient, row.params, row.optimizer_state, adjoint->params,
                     adjoint->optimizer_state, d_gradient, adjoint->theta);
  training.model_state = row.model_state;
  task_->Differentiate(training,
                       {.loss = weight,
                        .aux = problem_->meta_loss_aux(),
                        .gradient = d_gradient,
                        .model_state = adjoint->model_state},
                       d_params, d_model_state, scratch);
  AddTo(&adjoint->params, d_params);
  std::ranges::copy(d_model_state, adjoint->model_state.begin());
}

}  // namespace lopt
