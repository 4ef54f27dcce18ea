#include "evaluation/summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace lopt {
namespace {

constexpr int64_t kResamples = 2000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One optimizer's results on one task, by seed.
struct Entrant {
  std::string optimizer;
  std::vector<const RunResult*> runs;
};

struct Task {
  std::string name;
  std::vector<int64_t> steps;
  std::vector<Entrant> entrants;

  // Null if it was not trained by that optimizer.
  const Entrant* Find(const std::string& optimizer) const {
    const auto found = std::ranges::find(entrants, optimizer, &Entrant::optimizer);
    return found == entrants.end() ? nullptr : &*found;
  }
};

template <class Element>
Element& FindOrAdd(std::vector<Element>* elements, std::string Element::*name,
                   const std::string& value) {
  const auto found = std::ranges::find(*elements, value, name);
  if (found != elements->end()) return *found;
  Element& added = elements->emplace_back();
  added.*name = value;
  return added;
}

std::vector<Task> GroupByTask(const std::vector<RunResult>& results) {
  std::vector<Task> tasks;
  for (const RunResult& result : results) {
    Task& task = FindOrAdd(&tasks, &Task::name, result.task);
    if (task.entrants.empty()) task.steps = result.steps;
    Require(task.steps == result.steps,
            "results of task '{}': {} with seed {} was judged after {} steps, others after {}",
            result.task, result.optimizer, result.seed, fmt::join(result.steps, ", "),
            fmt::join(task.steps, ", "));
    FindOrAdd(&task.entrants, &Entrant::optimizer, result.optimizer).runs.push_back(&result);
  }
  for (Task& task : tasks) {
    for (Entrant& entrant : task.entrants) {
      std::ranges::sort(entrant.runs, {}, &RunResult::seed);
      const auto twice = std::ranges::adjacent_find(entrant.runs, {}, &RunResult::seed);
      Require(twice == entrant.runs.end(),
              "results of task '{}': there are several of {} with seed {}", task.name,
              entrant.optimizer, twice == entrant.runs.end() ? 0 : (*twice)->seed);
    }
  }
  return tasks;
}

using RunFigure = std::vector<double> RunResult::*;
constexpr RunFigure kComparedLosses[] = {&RunResult::final_train_loss, &RunResult::test_loss};

// One loss of each seed after the i-th number of steps.
std::vector<double> Losses(const Entrant& entrant, RunFigure loss, size_t i) {
  std::vector<double> losses;
  for (const RunResult* run : entrant.runs) {
    losses.push_back(run->Diverged(i) ? kInfinity : (run->*loss)[i]);
  }
  return losses;
}

// Empty for tasks without accuracy.
std::vector<double> Accuracies(const Entrant& entrant, RunFigure accuracy, size_t i) {
  std::vector<double> accuracies;
  bool has_accuracy = false;
  for (const RunResult* run : entrant.runs) {
    const double value = (run->*accuracy)[i];
    has_accuracy |= !std::isnan(value);
    accuracies.push_back(run->Diverged(i) || std::isnan(value) ? 0 : value);
  }
  if (!has_accuracy) accuracies.clear();
  return accuracies;
}

Estimate EstimateOf(const std::vector<double>& values) {
  return {.value = InterquartileMean(values),
          .interval =
              StratifiedBootstrapInterval({values}, InterquartileMean, kResamples, KeyFromSeed(0))};
}

std::optional<Estimate> EstimateOfAny(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(EstimateOf(values));
}

std::vector<double> Seconds(const Entrant& entrant, size_t i) {
  std::vector<double> seconds;
  for (const RunResult* run : entrant.runs) seconds.push_back(run->seconds[i]);
  return seconds;
}

void AddTimeToAdam(const Task& task, const Entrant& entrant, size_t i, SummaryRow* row) {
  std::vector<double> steps;
  std::vector<double> seconds;
  for (const RunResult* run : entrant.runs) {
    if (run->steps_to_adam.empty()) return;
    const int64_t needed = run->steps_to_adam[i];
    steps.push_back(needed == 0 ? kInfinity : static_cast<double>(needed));
    seconds.push_back(run->seconds[i] * steps.back() / static_cast<double>(run->steps[i]));
  }
  row->steps_to_adam = InterquartileMean(steps);
  row->seconds_to_adam = InterquartileMean(seconds);
  row->speedup = static_cast<double>(row->steps) / *row->steps_to_adam;
  if (const Entrant* adam = task.Find(kReferenceBaseline)) {
    row->seconds_speedup = InterquartileMean(Seconds(*adam, i)) / *row->seconds_to_adam;
  }
}

SummaryRow RowOf(const Task& task, const Entrant& entrant, size_t i) {
  SummaryRow row{
      .task = task.name,
      .optimizer = entrant.optimizer,
      .steps = task.steps[i],
      .seeds = std::ssize(entrant.runs),
      .train_loss = EstimateOf(Losses(entrant, &RunResult::final_train_loss, i)),
      .test_loss = EstimateOf(Losses(entrant, &RunResult::test_loss, i)),
      .mean_train_loss = EstimateOf(Losses(entrant, &RunResult::mean_train_loss, i)),
      .train_accuracy = EstimateOfAny(Accuracies(entrant, &RunResult::final_train_accuracy, i)),
      .test_accuracy = EstimateOfAny(Accuracies(entrant, &RunResult::test_accuracy, i))};
  for (const RunResult* run : entrant.runs) {
    row.diverged += run->Diverged(i) ? 1 : 0;
    row.blown_up += run->blew_up[i] ? 1 : 0;
    row.seconds += run->seconds[i] / static_cast<double>(entrant.runs.size());
  }
  const RunResult& first = *entrant.runs.front();
  if (!first.learning_rate.empty()) {
    row.learning_rate = first.learning_rate[i];
    row.learning_rate_at_edge = first.learning_rate_at_edge[i];
  }
  AddTimeToAdam(task, entrant, i, &row);
  return row;
}

Verdict Compare(const Interval& loss, const Interval& adam) {
  if (loss.high < adam.low) return Verdict::kBetter;
  if (loss.low > adam.high) return Verdict::kWorse;
  return Verdict::kUnclear;
}

// The rows of one task and number of steps.
void AddVerdicts(std::span<SummaryRow> rows) {
  const auto adam = std::ranges::find(rows, kReferenceBaseline, &SummaryRow::optimizer);
  if (adam == rows.end() || adam->seeds < kVerdictSeeds) return;
  for (SummaryRow& row : rows) {
    if (&row == &*adam || row.seeds < kVerdictSeeds) continue;
    row.train_verdict = Compare(row.train_loss.interval, adam->train_loss.interval);
    row.test_verdict = Compare(row.test_loss.interval, adam->test_loss.interval);
  }
}

// Whether losses on this task after the i-th number of steps can be fractions of Adam's.
bool IsComparable(const Entrant& adam, size_t i) {
  return std::ranges::all_of(kComparedLosses, [&](RunFigure loss) {
    const double unit = InterquartileMean(Losses(adam, loss, i));
    return unit > 0 && std::isfinite(unit);
  });
}

// One seed of an optimizer on one task, as the bootstrap draws it.
struct Seed {
  size_t task = 0;
  bool is_unit = false;             // of Adam, whose losses the others are fractions of
  std::vector<double> losses = {};  // for each number of steps that counts
};

// The interquartile mean of the drawn seeds' losses as fractions of that of the drawn seeds of Adam
// on the same task and steps.
double MeanRatio(const std::vector<const Seed*>& seeds, size_t tasks) {
  std::vector<std::vector<const Seed*>> units(tasks);
  std::vector<std::vector<const Seed*>> judged(tasks);
  for (const Seed* seed : seeds) (seed->is_unit ? units : judged)[seed->task].push_back(seed);
  std::vector<double> ratios;
  std::vector<double> losses;
  for (size_t t = 0; t < tasks; ++t) {
    for (size_t i = 0; i < units[t].front()->losses.size(); ++i) {
      losses.clear();
      for (const Seed* seed : units[t]) losses.push_back(seed->losses[i]);
      const double unit = InterquartileMean(losses);
      // Of Adam itself the same draw is both.
      for (const Seed* seed : judged[t].empty() ? units[t] : judged[t]) {
        ratios.push_back(seed->losses[i] / unit);
      }
    }
  }
  return InterquartileMean(ratios);
}

Estimate RatioToAdam(const std::vector<Task>& tasks, const std::string& optimizer, RunFigure loss) {
  std::vector<std::vector<Seed>> strata;
  size_t compared = 0;
  for (const Task& task : tasks) {
    const Entrant* entrant = task.Find(optimizer);
    const Entrant* adam = task.Find(kReferenceBaseline);
    if (entrant == nullptr || adam == nullptr) continue;
    std::vector<size_t> counted;
    for (size_t i = 0; i < task.steps.size(); ++i) {
      if (IsComparable(*adam, i)) counted.push_back(i);
    }
    if (counted.empty()) continue;
    const auto add = [&](const Entrant& of, bool is_unit) {
      std::vector<Seed>& stratum =
          strata.emplace_back(of.runs.size(), Seed{.task = compared, .is_unit = is_unit});
      for (const size_t i : counted) {
        const std::vector<double> losses = Losses(of, loss, i);
        for (size_t s = 0; s < losses.size(); ++s) stratum[s].losses.push_back(losses[s]);
      }
    };
    if (entrant != adam) add(*entrant, /*is_unit=*/false);
    add(*adam, /*is_unit=*/true);
    ++compared;
  }
  if (strata.empty()) return {.value = kNan, .interval = {.low = kNan, .high = kNan}};
  // What is drawn are places of seeds.
  std::vector<const Seed*> all;
  std::vector<std::vector<double>> places;
  for (const std::vector<Seed>& stratum : strata) {
    places.emplace_back();
    for (const Seed& seed : stratum) {
      places.back().push_back(static_cast<double>(all.size()));
      all.push_back(&seed);
    }
  }
  const auto statistic = [&](std::span<const double> drawn) {
    std::vector<const Seed*> seeds;
    for (const double place : drawn) seeds.push_back(all[static_cast<size_t>(place)]);
    return MeanRatio(seeds, compared);
  };
  return {.value = MeanRatio(all, compared),
          .interval = StratifiedBootstrapInterval(places, statistic, kResamples, KeyFromSeed(0))};
}

AggregateRow AggregateOf(const std::vector<Task>& tasks, const std::vector<SummaryRow>& rows,
                         const std::string& optimizer) {
  AggregateRow aggregate{.optimizer = optimizer,
                         .train_ratio = RatioToAdam(tasks, optimizer, &RunResult::final_train_loss),
                         .test_ratio = RatioToAdam(tasks, optimizer, &RunResult::test_loss)};
  for (const Task& task : tasks) {
    const Entrant* adam = task.Find(kReferenceBaseline);
    if (adam == nullptr || task.Find(optimizer) == nullptr) continue;
    for (size_t i = 0; i < task.steps.size(); ++i) {
      ++(IsComparable(*adam, i) ? aggregate.compared : aggregate.left_out);
    }
  }
  for (const SummaryRow& row : rows) {
    if (row.optimizer != optimizer) continue;
    aggregate.diverged += row.diverged;
    aggregate.blown_up += row.blown_up;
    aggregate.better += row.test_verdict == Verdict::kBetter ? 1 : 0;
    aggregate.worse += row.test_verdict == Verdict::kWorse ? 1 : 0;
    aggregate.unclear += row.test_verdict == Verdict::kUnclear ? 1 : 0;
  }
  return aggregate;
}

}  // namespace

Summary Summarize(const std::vector<RunResult>& results) {
  const std::vector<Task> tasks = GroupByTask(results);
  Summary summary;
  std::vector<std::string> optimizers;
  for (const Task& task : tasks) {
    for (size_t i = 0; i < task.steps.size(); ++i) {
      const size_t first = summary.rows.size();
      for (const Entrant& entrant : task.entrants) summary.rows.push_back(RowOf(task, entrant, i));
      AddVerdicts(std::span(summary.rows).subspan(first));
    }
    for (const Entrant& entrant : task.entrants) {
      if (std::ranges::find(optimizers, entrant.optimizer) == optimizers.end()) {
        optimizers.push_back(entrant.optimizer);
      }
    }
  }
  if (std::ranges::find(optimizers, kReferenceBaseline) == optimizers.end()) return summary;
  for (const std::string& optimizer : optimizers) {
    summary.aggregate.push_back(AggregateOf(tasks, summary.rows, optimizer));
  }
  return summary;
}

}  // namespace lopt
