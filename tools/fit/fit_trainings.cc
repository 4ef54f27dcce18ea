#include "lopt/tools/fit/fit_trainings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "lopt/base/environment.h"
#include "lopt/base/parallel.h"

namespace lopt {

std::vector<double> FitTrainings::Losses(const Rules& rules, int64_t steps, int64_t seeds, Key key,
                                         const std::function<void(double)>& on_trained) {
  const bool together = task_->PreferredRows() == TaskFamily::kAllRows;
  const int64_t at_once = together ? seeds : 1;
  const int64_t groups = std::ssize(rules) * seeds / at_once;
  std::vector<double> losses(static_cast<size_t>(std::ssize(rules) * seeds));
  std::mutex mutex;
  int64_t trained = 0;
  std::atomic<bool> stopped = false;
  const auto train = [&](int64_t group) {
    const int64_t first = group * at_once;
    std::vector<TrainingSource> sources;
    for (int64_t i = first; i < first + at_once; ++i) {
      sources.push_back({.key = FoldIn(key, static_cast<uint64_t>(i % seeds))});
    }
    WorkspacePool::Lease scratch(workspaces_);
    const std::vector<TrainingCurve> curves =
        TrainTasks(*task_, *rules[static_cast<size_t>(first / seeds)], {&steps, 1},
                   Split::kInnerValid, sources, *scratch, stop_);
    if (curves.empty()) {
      stopped = true;
      return;
    }
    for (size_t i = 0; i < curves.size(); ++i) {
      losses[static_cast<size_t>(first) + i] = curves[i].judged[0].loss;
    }
    const std::lock_guard lock(mutex);
    on_trained(static_cast<double>(++trained) / static_cast<double>(groups));
  };
  ThreadPool(threads_).Run([&] { ParallelFor(groups, train); });
  if (stopped) return {};

  std::vector<double> means;
  for (size_t r = 0; r < rules.size(); ++r) {
    double sum = 0;
    for (int64_t s = 0; s < seeds; ++s) {
      const double loss = losses[r * static_cast<size_t>(seeds) + static_cast<size_t>(s)];
      sum += std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
    }
    means.push_back(sum / static_cast<double>(seeds));
  }
  return means;
}

FitTrainings::Measured FitTrainings::MeasureOnce(const UpdateRule& rule, int64_t steps,
                                                 int64_t measured, int64_t trainings, Key key) {
  std::vector<TrainingCurve> curves(static_cast<size_t>(trainings));
  const auto start = SteadyClock::now();
  ThreadPool(threads_).Run([&] {
    ParallelFor(trainings, [&](int64_t i) {
      WorkspacePool::Lease scratch(workspaces_);
      curves[static_cast<size_t>(i)] =
          TrainTask(*task_, rule, {&measured, 1}, Split::kInnerValid,
                    {.key = FoldIn(key, static_cast<uint64_t>(i))}, *scratch);
    });
  });
  Measured all{.spent = SecondsBetween(start, SteadyClock::now())};
  double training = 0;
  for (const TrainingCurve& curve : curves) training += curve.seconds / threads_;
  const double judging = std::max(0.0, all.spent - training);
  const double longer = static_cast<double>(steps) / static_cast<double>(measured);
  all.seconds = (training * longer + judging) / static_cast<double>(trainings);
  all.curve = std::move(curves.front());
  return all;
}

FitTrainings::Speed FitTrainings::Measure(const UpdateRule& rule, int64_t steps, Key key,
                                          double enough_seconds) {
  constexpr int64_t kLonger = 4;
  int64_t measured = std::min(kMeasuredSteps, steps);
  int64_t trainings = threads_;
  Measured last = MeasureOnce(rule, steps, measured, trainings, key);
  const auto positive = [](float loss) { return loss > 0; };
  const bool all_positive =
      positive(last.curve.judged[0].loss) && std::ranges::all_of(last.curve.train_loss, positive);
  while (last.spent < enough_seconds) {
    if (measured < steps) {
      measured = std::min(steps, kLonger * measured);
    } else {
      trainings *= kLonger;
    }
    last = MeasureOnce(rule, steps, measured, trainings, key);
  }
  return {.seconds = last.seconds, .positive_loss = all_positive};
}

}  // namespace lopt
