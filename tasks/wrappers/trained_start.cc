#include "lopt/tasks/wrappers/trained_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/denormals.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/progress.h"
#include "lopt/tasks/wrappers/delayed_gradients.h"
#include "lopt/tasks/wrappers/reparam_weights.h"
#include "lopt/tasks/wrappers/sampled_family.h"

namespace lopt {
namespace {

constexpr const char* kTrainedStartWho = "TrainedStart";

// Purposes of its own key.
enum EarlierDraw : uint64_t {
  kEarlierTask = 0,
  kEarlierParams = 1,
  kEarlierBatches = 2,
  kEarlierOrder = 3
};

// Adam on params [P], its moments in scratch.
class EarlierAdam {
 public:
  EarlierAdam(double learning_rate, int64_t size, Workspace& scratch)
      : learning_rate_(learning_rate),
        m_(scratch.Take<double>(size)),
        v_(scratch.Take<double>(size)) {
    std::ranges::fill(m_, 0.0);
    std::ranges::fill(v_, 0.0);
  }

  void Step(std::span<const float> gradient, std::span<float> params) {
    const FlushDenormals flush;  // moments of what gets no gradient any more
    ++step_;
    const double root = std::sqrt(1 - std::pow(kBeta2, step_));
    const double rate = learning_rate_ * root / (1 - std::pow(kBeta1, step_));
    for (size_t i = 0; i < params.size(); ++i) {
      const double g = gradient[i];
      m_[i] = kBeta1 * m_[i] + (1 - kBeta1) * g;
      v_[i] = kBeta2 * v_[i] + (1 - kBeta2) * g * g;
      params[i] -= static_cast<float>(rate * m_[i] / (std::sqrt(v_[i]) + kEpsilon * root));
    }
  }

 private:
  static constexpr double kBeta1 = 0.9;
  static constexpr double kBeta2 = 0.999;
  static constexpr double kEpsilon = 1e-8;

  double learning_rate_;
  int64_t step_ = 0;
  std::span<double> m_;
  std::span<double> v_;
};

// Of the first `tensors`.
Layout FirstTensors(const Layout& layout, int64_t tensors) {
  std::vector<std::pair<std::string, Shape>> first;
  for (int64_t i = 0; i < tensors; ++i) {
    first.emplace_back(layout.entries()[i].name, layout.entries()[i].shape);
  }
  return Layout(std::move(first));
}

// Throws Error where the numbers that a family trains are not those of a network's weights, but of
// these in units of a task's own, or where its model state means other things in each task.
void RequirePlain(const TaskFamily& family, const char* which) {
  Require(dynamic_cast<const ReparamWeights*>(&family) == nullptr &&
              dynamic_cast<const DelayedGradients*>(&family) == nullptr,
          "{}: wanted {} without ReparamWeights or DelayedGradients; put these around {}",
          kTrainedStartWho, which, kTrainedStartWho);
  Require(dynamic_cast<const SampledFamily*>(&family) == nullptr ||
              family.model_state_layout().size() == 0,
          "{}: wanted {} that is no SampledFamily with a model state, whose members may each mean "
          "something else by it",
          kTrainedStartWho, which);
  if (const auto* over = dynamic_cast<const FamilyOverFamilies*>(&family)) {
    for (const TaskFamily* inside : over->inside()) RequirePlain(*inside, which);
  }
}

// Throws Error where the two cannot be trained one after the other. The number of params kept.
int64_t KeptParams(const TaskFamily& task, const TaskFamily& earlier, int64_t fresh) {
  RequirePlain(task, "a task");
  RequirePlain(earlier, "an earlier task");
  const Layout& params = task.params_layout();
  const auto tensors = std::ssize(params.entries());
  const auto of_earlier = std::ssize(earlier.params_layout().entries());
  Require(fresh <= tensors,
          "{}: wanted fresh_tensors of at most the {} tensors of the params, got {}",
          kTrainedStartWho, tensors, fresh);
  Require(of_earlier == tensors, "{}: the task has {} tensors, but earlier has {}; wanted as many",
          kTrainedStartWho, tensors, of_earlier);
  const Layout kept = FirstTensors(params, tensors - fresh);
  const Layout trained = FirstTensors(earlier.params_layout(), tensors - fresh);
  const auto [here, there] = FirstDifference(kept, trained);
  Require(kept == trained,
          "{}: the params that are not fresh must be the same; the task has {} where earlier has "
          "{}",
          kTrainedStartWho, here, there);
  const Layout& state = task.model_state_layout();
  const Layout& state_there = earlier.model_state_layout();
  const auto [state_words, there_words] = FirstDifference(state, state_there);
  Require(state == state_there || state.size() + state_there.size() == 0,
          "{}: the model state must be the same; the task has {} where earlier has {}",
          kTrainedStartWho, state_words, there_words);
  return kept.size();
}

}  // namespace

void TrainedStartOptions::Visit(FieldVisitor& v) {
  v.Field("steps", &steps, Between(0, 10000000), "Steps of Adam on the earlier task.");
  v.Field("learning_rate", &learning_rate, Between(1e-12, 1e12), "Adam's, constant.");
  v.Field("fresh_tensors", &fresh_tensors, Between(0, 1000000),
          "The last tensors of the params, which start as the task's do: 2 are a new last layer. "
          "In earlier they may have other shapes.");
}

TrainedStart::TrainedStart(const std::shared_ptr<const TaskFamily>& task,
                           std::shared_ptr<const TaskFamily> earlier,
                           const TrainedStartOptions& options)
    : TaskWrapper(task, PartsOf(*task)),
      earlier_(std::move(earlier)),
      options_(CheckOptions(kTrainedStartWho, options)),
      kept_(KeptParams(*task, *earlier_, options.fresh_tensors)) {}

void TrainedStart::TrainEarlier(Key key, std::span<float> params, std::span<float> model_state,
                                Workspace& scratch) const {
  const auto config = scratch.Take<float>(earlier_->config_layout().size());
  const auto gradient = scratch.Take<float>(std::ssize(params));
  earlier_->Sample(FoldIn(key, kEarlierTask), config);
  earlier_->Init(config, FoldIn(key, kEarlierParams), params, model_state);
  EarlierAdam adam(options_.learning_rate, std::ssize(params), scratch);
  const auto fail = [&](const char* what, int64_t step) {
    Fail("{}: {} of the earlier training is not finite at step {}; {}", kTrainedStartWho, what,
         step,
         step == 0
             ? "no step was made yet, so it is that of the earlier task's own start"
             : fmt::format("its learning_rate is {}, give a smaller one", options_.learning_rate));
  };
  for (int64_t step = 0; step < options_.steps; ++step) {
    const Key batch = FoldIn(FoldIn(key, kEarlierBatches), static_cast<uint64_t>(step));
    const EpisodeStep at{.order = FoldIn(key, kEarlierOrder), .step = step};
    float loss = 0;
    earlier_->Evaluate({.config = config,
                        .params = params,
                        .model_state = model_state,
                        .keys = {&batch, 1},
                        .steps = {&at, 1},
                        .losses = {&loss, 1},
                        .gradients = gradient},
                       scratch);
    if (!std::isfinite(loss)) fail("the loss", step);
    adam.Step(gradient, params);
    NoteProgress();
  }
  if (std::ranges::any_of(params, [](float x) { return !std::isfinite(x); })) {
    fail("a param", options_.steps);
  }
}

void TrainedStart::DoInit(std::span<const float> config, Key key, std::span<float> params,
                          std::span<float> model_state) const {
  WorkspacePool::Lease lease(workspaces_);
  Workspace& scratch = *lease;
  const Workspace::Frame frame(scratch);
  const auto trained = scratch.Take<float>(earlier_->params_layout().size());
  TrainEarlier(OwnKey(key), trained, model_state, scratch);
  TaskWrapper::DoInit(config, key, params, scratch.Take<float>(std::ssize(model_state)));
  std::copy_n(trained.begin(), kept_, params.begin());
}

}  // namespace lopt
