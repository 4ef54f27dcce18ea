#include "lopt/estimators/given_gradients.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "lopt/estimators/device_launch.h"
#include "lopt/estimators/lopt_state.h"
#include "lopt/estimators/window_steps.h"

namespace lopt {
namespace {

std::span<float> AllFloats(Array& array) {
  return {FloatsOf(array.buffer()), static_cast<size_t>(array.size())};
}

// The task's evaluations of all replicas of a window.
class GivenEvaluations {
 public:
  GivenEvaluations(const DeviceProgram& program, int64_t replicas)
      : problem_(program.problem()),
        device_(program.device()),
        replicas_(replicas),
        losses_(DType::kFloat32, {replicas}, device_.memory()),
        aux_(DType::kFloat32, {replicas, problem_.AuxSize()}, device_.memory()) {}

  // Losses of the last, [B], on the device.
  float* losses() { return FloatsOf(losses_.buffer()); }

  // Makes one: `e` with what all have in common.
  void Make(TaskEvaluation e) {
    e.rows = replicas_;
    e.losses = AllFloats(losses_);
    e.aux = AllFloats(aux_);
    e.device = &device_;
    WorkspacePool::Lease lease(problem_.workspaces());
    problem_.task().Evaluate(e, *lease);
  }

  // The losses [B] and the aux outputs [B, A] of the last; either may be empty if it is not wanted.
  void GetResults(std::span<float> losses, std::span<float> aux) const {
    if (!losses.empty()) CopyToHost(losses_, losses);
    if (!aux.empty()) CopyToHost(aux_, aux);
  }

 private:
  static void CopyToHost(const Array& from, std::span<float> to) {
    std::ranges::copy(from.To(HostMemory()).As<float>(), to.begin());
  }

  const LoptProblem& problem_;
  const Device& device_;
  int64_t replicas_;
  Array losses_;
  Array aux_;  // [B, A], [B, 0] if not wanted
};

class GivenGradientExecutor final : public StepExecutor {
 public:
  GivenGradientExecutor(const DeviceProgram& program, const Window& window);

  const LoptCounters& counters() const { return counters_; }
  std::span<const float> config() const { return config_; }

  void EvaluateTraining(const StepBatches& batches) override;
  void EvaluateMetaLoss(Split split, const StepBatches& batches) override;
  void GetResults(std::span<float> losses, std::span<float> aux) override {
    evaluations_.GetResults(losses, aux);
  }
  void Update(std::span<const ReplicaStep> steps) override;
  // The kernel makes each step's row of theta from its name.
  void ChangeTheta(int64_t /*r*/, const WindowStep& /*at*/) override {}
  LoptProblem::Episode BeginEpisode(int64_t b, Key key) override;

 private:
  // Row b of an array on the device.
  void SetRow(int64_t b, const Buffer& row, Array* array) {
    array->buffer().CopyFrom(row, 0, static_cast<size_t>(b) * row.size(), row.size());
  }

  const DeviceProgram& program_;
  const LoptProblem& problem_;
  const TaskFamily& task_;
  const Window& window_;
  const int64_t replicas_;  // B
  LoptCounters counters_;
  std::span<float> config_;  // [B, C], on the host
  Array& params_;            // [B, P]; these three of the window's state, on the device
  Array& model_state_;       // [B, M]
  Array& optimizer_state_;   // [B, S]
  GivenEvaluations evaluations_;
  DeviceLaunch launch_;
  // A replica's share of what the kernel is given for a step, one stretch each.
  Buffer stretches_;            // [B], on the host
  Buffer stretches_on_device_;  // the same
  Buffer first_params_;         // one row each, on the host: what an episode begins with
  Buffer first_model_state_;
  Buffer first_optimizer_state_;
};

size_t RowBytes(const Layout& layout) { return static_cast<size_t>(layout.size()) * sizeof(float); }

std::span<float> HostFloats(Buffer& buffer) {
  return {FloatsOf(buffer), buffer.host().size() / sizeof(float)};
}

GivenGradientExecutor::GivenGradientExecutor(const DeviceProgram& program, const Window& window)
    : program_(program),
      problem_(program.problem()),
      task_(problem_.task()),
      window_(window),
      replicas_(window.theta.rows),
      counters_(replicas_, window.state),
      config_(FloatsIn(*window.state, "config", replicas_, task_.config_layout()).As<float>()),
      params_(ArrayOn(program.device().memory(), window.state, "params", replicas_,
                      task_.params_layout())),
      model_state_(ArrayOn(program.device().memory(), window.state, "model_state", replicas_,
                           task_.model_state_layout())),
      optimizer_state_(ArrayOn(program.device().memory(), window.state, "optimizer_state",
                               replicas_, problem_.optimizer_state_layout())),
      evaluations_(program, replicas_),
      launch_(program, window.theta, {}),
      stretches_(static_cast<size_t>(replicas_) * sizeof(DeviceStretch)),
      stretches_on_device_(stretches_.size(), program.device().memory()),
      first_params_(RowBytes(task_.params_layout())),
      first_model_state_(RowBytes(task_.model_state_layout())),
      first_optimizer_state_(RowBytes(problem_.optimizer_state_layout())) {
  std::vector<int64_t> first_stretch(static_cast<size_t>(replicas_) + 1);
  std::iota(first_stretch.begin(), first_stretch.end(), 0);
  DeviceWindow& to = launch_.window();
  to.steps = 1;
  to.before_update = true;  // the kernel's only evaluation is the one that it is given
  to.meta_split = -1;
  to.aux = false;
  to.params = FloatsOf(params_.buffer());
  to.state = FloatsOf(optimizer_state_.buffer());
  to.losses = evaluations_.losses();
  to.stretches = reinterpret_cast<const DeviceStretch*>(stretches_on_device_.data());
  to.first_stretch = launch_.inputs().Keep(first_stretch);
}

void GivenGradientExecutor::EvaluateTraining(const StepBatches& batches) {
  evaluations_.Make(
      {.config = config_,
       .params = AllFloats(params_),
       .model_state = AllFloats(model_state_),
       .keys = batches.keys,
       .steps = batches.steps,
       .gradients = {launch_.window().gradient, static_cast<size_t>(params_.size())}});
}

void GivenGradientExecutor::Update(std::span<const ReplicaStep> steps) {
  auto* stretches = reinterpret_cast<DeviceStretch*>(stretches_.host().data());
  for (int64_t b = 0; b < replicas_; ++b) {
    const ReplicaStep& of = steps[static_cast<size_t>(b)];
    stretches[b] = {.keys = of.keys,
                    .step = of.step,
                    .count = 1,
                    .num_steps = of.num_steps,
                    .start = -1,
                    .restarts = of.restarts};
  }
  stretches_on_device_.CopyFrom(stretches_, 0, 0, stretches_.size());
  RunWindowKernel(program_.device(), DeviceFunctions<GivenGradientDevice>{{evaluations_.losses()}},
                  program_.rule(), launch_.window());
}

void GivenGradientExecutor::EvaluateMetaLoss(Split split, const StepBatches& batches) {
  Array discarded = model_state_;
  evaluations_.Make({.config = config_,
                     .params = AllFloats(params_),
                     .model_state = AllFloats(discarded),
                     .split = split,
                     .keys = batches.keys,
                     .steps = batches.steps});
}

LoptProblem::Episode GivenGradientExecutor::BeginEpisode(int64_t b, Key key) {
  const LoptProblem::Episode episode =
      problem_.DrawEpisode(key, window_.outer,
                           {.config = RowsOf(config_, b, task_.config_layout().size()),
                            .params = HostFloats(first_params_),
                            .model_state = HostFloats(first_model_state_),
                            .optimizer_state = {}});
  SetRow(b, first_params_, &params_);
  SetRow(b, first_model_state_, &model_state_);
  SetRow(b, first_optimizer_state_, &optimizer_state_);
  return episode;
}

}  // namespace

void RunGivenGradients(const DeviceProgram& program, const Window& window) {
  GivenGradientExecutor executor(program, window);
  WorkspacePool::Lease lease(program.problem().workspaces());
  WindowSteps(program.problem(), window, executor.counters(), executor.config(), /*first=*/0,
              window.theta.rows, *lease)
      .Run(&executor);
}

void MetaLossOfGiven(const DeviceProgram& program, int64_t replicas, std::span<const Key> keys,
                     const UnrollState& state, std::span<double> loss) {
  const LoptProblem& problem = program.problem();
  const TaskFamily& task = problem.task();
  const Memory& memory = program.device().memory();
  const std::span<const float> config =
      FloatsIn(state, "config", replicas, task.config_layout()).As<float>();
  Array params = FloatsIn(state, "params", replicas, task.params_layout()).To(memory);
  Array discarded = FloatsIn(state, "model_state", replicas, task.model_state_layout()).To(memory);
  GivenEvaluations evaluations(program, replicas);
  evaluations.Make({.config = config,
                    .params = AllFloats(params),
                    .model_state = AllFloats(discarded),
                    .split = problem.meta_loss_split().value_or(Split::kTrain),
                    .keys = keys});
  const bool of_aux = problem.meta_loss_aux().has_value();
  std::vector<float> losses(static_cast<size_t>(of_aux ? 0 : replicas));
  std::vector<float> aux(static_cast<size_t>(of_aux ? replicas * problem.AuxSize() : 0));
  evaluations.GetResults(losses, aux);
  for (int64_t b = 0; b < replicas; ++b) {
    bool non_finite = false;
    loss[b] = problem.UnscaledLoss(RowsOf(config, b, task.config_layout().size()),
                                   RawMetaLoss(problem, losses, aux, b), &non_finite);
  }
}

}  // namespace lopt
