#include "lopt/evaluation/held_out.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/evaluation/run_result.h"
#include "lopt/evaluation/task_pictures.h"
#include "lopt/tasks/image/fixed_task.h"

namespace lopt {
namespace {

// No run's key: those are of seeds that are not negative and below 2^63.
Key HeldOutKey(int64_t seed) {
  return FoldIn(KeyFromSeed(std::numeric_limits<uint64_t>::max()), static_cast<uint64_t>(seed));
}

// `loss` as a fraction of `first`; where that is not positive, 1 plus the change from it, as a
// fraction of its size where it has one. Lower is better in each.
double Ratio(double loss, double first) {
  if (!std::isfinite(loss) || !std::isfinite(first)) return std::numeric_limits<double>::infinity();
  if (first > 0) return loss / first;
  return first < 0 ? 1 + (loss - first) / -first : 1 + loss;
}

}  // namespace

HeldOutEvaluation::HeldOutEvaluation(std::shared_ptr<const LearnedOptimizer> optimizer,
                                     const TaskResources& resources, const HeldOutOptions& options)
    : optimizer_(std::move(optimizer)), steps_(options.steps), seeds_(options.seeds) {
  Require(!options.tasks.empty() && steps_ >= 1 && seeds_ >= 1,
          "a held-out evaluation needs a task, a step and a seed at least, got {} tasks, {} steps "
          "and {} seeds",
          options.tasks.size(), steps_, seeds_);
  for (const Config& task : options.tasks) {
    tasks_.push_back({.name = fmt::format("{}_{}", tasks_.size(), TaskLabel(task)),
                      .family = TaskRegistry().Make(task, resources)});
  }
}

HeldOutResult HeldOutEvaluation::Evaluate(const Eigen::VectorXf& theta) {
  std::vector<TrainingCurve> curves(tasks_.size() * static_cast<size_t>(seeds_));
  ParallelFor(std::ssize(curves), [&](int64_t i) {
    const TaskFamily& task = *tasks_[static_cast<size_t>(i / seeds_)].family;
    WorkspacePool::Lease lease(workspaces_);
    curves[static_cast<size_t>(i)] =
        TrainTask(task, *optimizer_->Bind(task.params_layout(), AsSpan(theta)), {&steps_, 1},
                  kHeldOutSplit, {.key = HeldOutKey(i % seeds_)}, *lease);
  });
  HeldOutResult result;
  Metrics& metrics = result.metrics;
  double sum = 0;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    double train = 0;
    double valid = 0;
    double ratio = 0;
    for (int64_t s = 0; s < seeds_; ++s) {
      const TrainingCurve& curve = curves[t * static_cast<size_t>(seeds_) + static_cast<size_t>(s)];
      const double loss = curve.judged[0].loss;
      train += FinalMean(curve.train_loss, steps_);
      valid += loss;
      ratio += Ratio(loss, double{curve.train_loss[0]});
    }
    const auto count = static_cast<double>(seeds_);
    metrics["eval_train_loss/" + tasks_[t].name] = train / count;
    metrics["eval_valid_loss/" + tasks_[t].name] = valid / count;
    metrics["eval_ratio/" + tasks_[t].name] = ratio / count;
    sum += ratio / count;
  }
  WorkspacePool::Lease lease(workspaces_);
  for (size_t t = 0; t < tasks_.size(); ++t) {
    const TrainingCurve& first = curves[t * static_cast<size_t>(seeds_)];
    for (Pictures& shown :
         ShowTraining(*tasks_[t].family, first, kHeldOutSplit, HeldOutKey(0), *lease)) {
      const std::string name = tasks_[t].name + "/" + shown.name;
      result.pictures[name] = std::move(shown);
    }
  }
  result.loss = sum / static_cast<double>(tasks_.size());
  metrics["eval_loss"] = result.loss;
  return result;
}

}  // namespace lopt
