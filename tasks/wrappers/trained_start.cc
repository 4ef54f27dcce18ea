#include "lopt/tasks/wrappers/trained_start.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

constexpr const char* kTrainedStartWho = "TrainedStart";

// Purposes of its own key.
enum EarlierDraw : uint64_t { kEarlierTask = 0, kEarlierParams = 1, kEarlierBatches = 2 };

// Adam on params [P].
class EarlierAdam {
 public:
  EarlierAdam(double learning_rate, size_t size)
      : learning_rate_(learning_rate), m_(size), v_(size) {}

  void Step(std::span<const float> gradient, std::span<float> params) {
    ++step_;
    const double rate =
        learning_rate_ * std::sqrt(1 - std::pow(kBeta2, step_)) / (1 - std::pow(kBeta1, step_));
    const double epsilon = kEpsilon * std::sqrt(1 - std::pow(kBeta2, step_));
    for (size_t i = 0; i < params.size(); ++i) {
      m_[i] = kBeta1 * m_[i] + (1 - kBeta1) * gradient[i];
      v_[i] = kBeta2 * v_[i] + (1 - kBeta2) * gradient[i] * gradient[i];
      params[i] -= static_cast<float>(rate * m_[i] / (std::sqrt(v_[i]) + epsilon));
    }
  }

 private:
  static constexpr double kBeta1 = 0.9;
  static constexpr double kBeta2 = 0.999;
  static constexpr double kEpsilon = 1e-8;

  double learning_rate_;
  int64_t step_ = 0;
  std::vector<double> m_;
  std::vector<double> v_;
};

}  // namespace

void TrainedStartOptions::Visit(FieldVisitor& v) {
  v.Field("steps", &steps, Between(0, 10000000), "Steps of Adam on the earlier task.");
  v.Field("learning_rate", &learning_rate, Above(0), "Adam's, constant.");
  v.Field("fresh_tensors", &fresh_tensors, Between(0, 1000000),
          "The last tensors of the params, which start as the task's do: 2 are a new last layer.");
}

TrainedStart::TrainedStart(const std::shared_ptr<const TaskFamily>& task,
                           std::shared_ptr<const TaskFamily> earlier,
                           const TrainedStartOptions& options)
    : TaskWrapper(task, PartsOf(*task)),
      earlier_(std::move(earlier)),
      options_(CheckOptions(kTrainedStartWho, options)) {
  Require(earlier_->params_layout() == task->params_layout(),
          "{}: wanted an earlier task with the task's params, {} numbers; got others, {}",
          kTrainedStartWho, task->params_layout().size(), earlier_->params_layout().size());
  Require(earlier_->model_state_layout() == task->model_state_layout(),
          "{}: wanted an earlier task with the task's model state", kTrainedStartWho);
  const auto tensors = std::ssize(task->params_layout().entries());
  Require(options.fresh_tensors <= tensors, "{}: fresh_tensors is {}, but the params have {}",
          kTrainedStartWho, options.fresh_tensors, tensors);
}

void TrainedStart::DoInit(std::span<const float> config, Key key, std::span<float> params,
                          std::span<float> model_state) const {
  const Key own = OwnKey(key);
  std::vector<float> earlier_config(static_cast<size_t>(earlier_->config_layout().size()));
  std::vector<float> trained(params.size());
  std::vector<float> gradient(params.size());
  earlier_->Sample(FoldIn(own, kEarlierTask), earlier_config);
  earlier_->Init(earlier_config, FoldIn(own, kEarlierParams), trained, model_state);
  EarlierAdam adam(options_.learning_rate, params.size());
  Workspace scratch;
  for (int64_t step = 0; step < options_.steps; ++step) {
    const Key batch = FoldIn(FoldIn(own, kEarlierBatches), static_cast<uint64_t>(step));
    const EpisodeStep at{.order = FoldIn(own, kEarlierBatches), .step = step};
    float loss = 0;
    earlier_->Evaluate({.config = earlier_config,
                        .params = trained,
                        .model_state = model_state,
                        .keys = {&batch, 1},
                        .steps = {&at, 1},
                        .losses = {&loss, 1},
                        .gradients = gradient},
                       scratch);
    adam.Step(gradient, trained);
  }
  std::vector<float> fresh_state(model_state.size());
  TaskWrapper::DoInit(config, key, params, fresh_state);
  const std::vector<LayoutEntry>& entries = params_layout().entries();
  const int64_t fresh = options_.fresh_tensors;
  const int64_t kept = fresh == 0 ? params_layout().size()
                                  : entries[entries.size() - static_cast<size_t>(fresh)].offset;
  std::copy_n(trained.begin(), kept, params.begin());
}

}  // namespace lopt
