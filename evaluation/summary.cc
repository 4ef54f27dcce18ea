#include "lopt/evaluation/summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lopt/base/error.h"
#include "lopt/evaluation/trials.h"

namespace lopt {
namespace {

constexpr int64_t kResamples = 2000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Interval kNoInterval = {.low = kNan, .high = kNan};

// One optimizer's results on one task, by seed.
struct OptimizerRuns {
  std::string optimizer;
  std::vector<const RunResult*> runs;
};

struct Task {
  std::string name;
  std::vector<int64_t> steps;
  std::vector<OptimizerRuns> optimizer_runs;

  // Null if it was not trained by that optimizer.
  const OptimizerRuns* Find(const std::string& optimizer) const {
    const auto found = std::ranges::find(optimizer_runs, optimizer, &OptimizerRuns::optimizer);
    return found == optimizer_runs.end() ? nullptr : &*found;
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
    if (task.optimizer_runs.empty()) task.steps = result.steps;
    Require(task.steps == result.steps,
            "results of task '{}': {} with seed {} was judged after {} steps, others after {}",
            result.task, result.optimizer, result.seed, fmt::join(result.steps, ", "),
            fmt::join(task.steps, ", "));
    FindOrAdd(&task.optimizer_runs, &OptimizerRuns::optimizer, result.optimizer)
        .runs.push_back(&result);
  }
  for (Task& task : tasks) {
    for (OptimizerRuns& entry : task.optimizer_runs) {
      std::ranges::sort(entry.runs, {}, &RunResult::seed);
      const auto twice = std::ranges::adjacent_find(entry.runs, {}, &RunResult::seed);
      Require(twice == entry.runs.end(),
              "results of task '{}': there are several of {} with seed {}", task.name,
              entry.optimizer, twice == entry.runs.end() ? 0 : (*twice)->seed);
    }
  }
  return tasks;
}

using RunFigure = std::vector<double> RunResult::*;
constexpr RunFigure kComparedLosses[] = {&RunResult::final_train_loss, &RunResult::test_loss};

// One loss of each seed after the i-th number of steps.
std::vector<double> Losses(const OptimizerRuns& entry, RunFigure loss, size_t i) {
  std::vector<double> losses;
  for (const RunResult* run : entry.runs) {
    losses.push_back(run->Diverged(i) ? kInfinity : (run->*loss)[i]);
  }
  return losses;
}

// Empty for tasks without accuracy.
std::vector<double> Accuracies(const OptimizerRuns& entry, RunFigure accuracy, size_t i) {
  std::vector<double> accuracies;
  bool has_accuracy = false;
  for (const RunResult* run : entry.runs) {
    const double value = (run->*accuracy)[i];
    has_accuracy |= !std::isnan(value);
    accuracies.push_back(run->Diverged(i) || std::isnan(value) ? 0 : value);
  }
  if (!has_accuracy) accuracies.clear();
  return accuracies;
}

// Test losses of each seed after the i-th number of steps, by the parts of the test split.
Sample TestSample(const OptimizerRuns& entry, size_t i) {
  const RunResult& first = *entry.runs.front();
  const size_t parts = first.test_part_loss.size() / first.steps.size();
  if (parts == 0) return {.values = Losses(entry, &RunResult::test_loss, i)};
  Sample sample{.columns = static_cast<int64_t>(parts)};
  for (const RunResult* run : entry.runs) {
    Require(run->test_part_loss.size() == first.test_part_loss.size(),
            "results of task '{}': {} has {} losses of parts of the test split with seed {}, {} "
            "with seed {}",
            run->task, run->optimizer, run->test_part_loss.size(), run->seed,
            first.test_part_loss.size(), first.seed);
    for (size_t part = i * parts; part < (i + 1) * parts; ++part) {
      sample.values.push_back(run->Diverged(i) ? kInfinity : double{run->test_part_loss[part]});
    }
  }
  return sample;
}

std::vector<double> Resampled(const Sample& sample, int64_t resamples = kResamples) {
  return CrossedBootstrap(sample, resamples, KeyFromSeed(0));
}

// A figure of each seed, [seeds], and its resamples.
Estimate EstimateOf(const std::vector<double>& values, const std::vector<double>& resampled) {
  return {.value = InterquartileMean(values),
          .interval =
              std::ssize(values) < kIntervalSeeds ? kNoInterval : PercentileInterval(resampled)};
}

Estimate EstimateOf(const std::vector<double>& values) {
  return EstimateOf(values, Resampled({.values = values}));
}

std::optional<Estimate> EstimateOfAny(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(EstimateOf(values));
}

std::vector<double> Seconds(const OptimizerRuns& entry, size_t i) {
  std::vector<double> seconds;
  for (const RunResult* run : entry.runs) seconds.push_back(run->seconds[i]);
  return seconds;
}

void AddTimeToAdam(const Task& task, const OptimizerRuns& entry, size_t i, SummaryRow* row) {
  std::vector<double> steps;
  std::vector<double> seconds;
  for (const RunResult* run : entry.runs) {
    if (run->steps_to_adam.empty()) return;
    const int64_t needed = run->steps_to_adam[i];
    steps.push_back(needed == 0 ? kInfinity : static_cast<double>(needed));
    seconds.push_back(run->seconds[i] * steps.back() / static_cast<double>(run->steps[i]));
  }
  row->steps_to_adam = InterquartileMean(steps);
  row->seconds_to_adam = InterquartileMean(seconds);
  row->speedup = static_cast<double>(row->steps) / *row->steps_to_adam;
  if (const OptimizerRuns* adam = task.Find(kReferenceBaseline)) {
    row->seconds_speedup = InterquartileMean(Seconds(*adam, i)) / *row->seconds_to_adam;
  }
}

// A row in the making.
struct Judged {
  SummaryRow row = {};
  std::vector<int64_t> seeds = {};
  std::vector<double> train = {};          // resampled losses, [kResamples]
  std::vector<double> test = {};           // likewise, at least so many
  std::optional<double> tuning_loss = {};  // of baselines
};

Judged JudgedOf(const Task& task, const OptimizerRuns& entry, size_t i, int64_t resamples) {
  const std::vector<double> train_losses = Losses(entry, &RunResult::final_train_loss, i);
  Judged judged{.train = Resampled({.values = train_losses}),
                .test = Resampled(TestSample(entry, i), resamples)};
  SummaryRow& row = judged.row;
  row = {.task = task.name,
         .optimizer = entry.optimizer,
         .steps = task.steps[i],
         .seeds = std::ssize(entry.runs),
         .train_loss = EstimateOf(train_losses, judged.train),
         .test_loss = EstimateOf(Losses(entry, &RunResult::test_loss, i), judged.test),
         .mean_train_loss = EstimateOf(Losses(entry, &RunResult::mean_train_loss, i)),
         .train_accuracy = EstimateOfAny(Accuracies(entry, &RunResult::final_train_accuracy, i)),
         .test_accuracy = EstimateOfAny(Accuracies(entry, &RunResult::test_accuracy, i))};
  for (const RunResult* run : entry.runs) {
    judged.seeds.push_back(run->seed);
    row.diverged += run->Diverged(i) ? 1 : 0;
    row.blown_up += run->blew_up[i] ? 1 : 0;
    row.seconds += run->seconds[i] / static_cast<double>(entry.runs.size());
  }
  const RunResult& first = *entry.runs.front();
  if (!first.learning_rate.empty()) {  // a baseline
    row.learning_rate = first.learning_rate[i];
    if (!first.tuning_loss.empty()) judged.tuning_loss = first.tuning_loss[i];
  }
  row.tuned = !first.tuning_loss.empty();
  const auto multiplier = first.hyperparameters.find(kStepMultiplier);
  if (multiplier != first.hyperparameters.end()) row.step_multiplier = multiplier->second[i];
  if (!first.at_edge.empty()) row.at_edge = first.at_edge[i];
  AddTimeToAdam(task, entry, i, &row);
  return judged;
}

// None if it is not known.
std::optional<bool> HasTrainedOn(const std::vector<OptimizerInfo>& infos, const SummaryRow& row) {
  const auto info = std::ranges::find(infos, row.optimizer, &OptimizerInfo::name);
  if (info == infos.end() || !info->trained_on) return std::nullopt;
  const auto task = info->trained_on->find(row.task);
  const bool trained = task != info->trained_on->end() &&
                       std::ranges::find(task->second, row.steps) != task->second.end();
  return trained || !info->trained_before.value_or(false) ? std::optional(trained) : std::nullopt;
}

// Of two optimizers' resampled losses; 0 where both are infinite.
std::vector<double> Differences(const std::vector<double>& losses,
                                const std::vector<double>& others) {
  std::vector<double> differences(losses.size());
  std::ranges::transform(losses, others, differences.begin(),
                         [](double a, double b) { return a == b ? 0 : a - b; });
  return differences;
}

Verdict VerdictOn(const std::vector<double>& differences) {
  const Interval interval = PercentileInterval(differences);
  if (interval.high < 0) return Verdict::kBetter;
  if (interval.low > 0) return Verdict::kWorse;
  return Verdict::kUnclear;
}

// Whether `least` pairs or more of the same seeds can be made of two different optimizers.
bool ArePaired(const Judged& a, const Judged& b, int64_t least) {
  return &a != &b && a.seeds == b.seeds && a.row.seeds >= least;
}

// Null where fewer than two baselines are tuned.
Judged* BestBaseline(std::vector<Judged>* all) {
  Judged* best = nullptr;
  int64_t tuned = 0;
  for (Judged& judged : *all) {
    if (!judged.tuning_loss) continue;
    ++tuned;
    if (best == nullptr || *judged.tuning_loss < *best->tuning_loss) best = &judged;
  }
  return tuned < 2 ? nullptr : best;
}

// Whether losses can be fractions of this one.
bool IsUnit(double loss) { return loss > 0 && std::isfinite(loss); }

// 1 also where both are 0 or infinite.
double Fraction(double loss, double unit) { return loss == unit ? 1 : loss / unit; }

// Whether less is better in the fraction and 1 is where they are equal.
bool HaveFraction(double loss, double unit) { return loss == unit || (loss > 0 && unit > 0); }

// The test loss as a fraction of the unit's; none where fractions of it say nothing.
std::optional<Estimate> FractionOf(const Judged& judged, const Judged& unit) {
  if (&judged == &unit) return Estimate{.value = 1, .interval = {.low = 1, .high = 1}};
  const double loss = judged.row.test_loss.value;
  const double unit_loss = unit.row.test_loss.value;
  if (loss != unit_loss && !(loss > 0 && IsUnit(unit_loss))) return std::nullopt;
  Estimate fraction{.value = Fraction(loss, unit_loss), .interval = kNoInterval};
  if (!ArePaired(judged, unit, kIntervalSeeds) ||
      !std::ranges::equal(judged.test, unit.test, HaveFraction)) {
    return fraction;
  }
  std::vector<double> fractions(judged.test.size());
  std::ranges::transform(judged.test, unit.test, fractions.begin(), Fraction);
  fraction.interval = PercentileInterval(std::move(fractions));
  return fraction;
}

// `all`: of one task and number of steps.
void AddVerdicts(std::vector<Judged>* all) {
  const auto adam = std::ranges::find_if(
      *all, [](const Judged& judged) { return judged.row.optimizer == kReferenceBaseline; });
  Judged* best = BestBaseline(all);
  if (best != nullptr) best->row.best_baseline = true;
  const Judged* unit = best != nullptr ? best : adam != all->end() ? &*adam : nullptr;
  for (Judged& judged : *all) {
    if (unit != nullptr) judged.row.test_ratio = FractionOf(judged, *unit);
    if (adam != all->end() && ArePaired(judged, *adam, kVerdictSeeds)) {
      judged.row.train_verdict = VerdictOn(Differences(judged.train, adam->train));
      judged.row.test_verdict = VerdictOn(Differences(judged.test, adam->test));
    }
    if (best != nullptr && ArePaired(judged, *best, kVerdictSeeds)) {
      const std::vector<double> differences = Differences(judged.test, best->test);
      judged.row.best_verdict = VerdictOn(differences);
      judged.row.best_p_value = BootstrapPValue(differences);
    }
  }
}

// The geometric mean of losses as fractions of others, from their logarithms.
class MeanOfFractions {
 public:
  void Add(const Judged& judged, const Judged& unit) {
    ++count_;
    fewest_seeds_ = std::min({fewest_seeds_, judged.row.seeds, unit.row.seeds});
    log_sum_ += std::log(judged.row.test_loss.value / unit.row.test_loss.value);
    have_fractions_ = have_fractions_ && std::ranges::equal(judged.test, unit.test, HaveFraction);
    for (size_t r = 0; r < resampled_.size(); ++r) {
      // 1 where both are infinite, as FractionOf has it.
      if (judged.test[r] != unit.test[r]) resampled_[r] += std::log(judged.test[r] / unit.test[r]);
    }
  }

  // None without any.
  std::optional<GeometricMean> Get() const {
    if (count_ == 0) return std::nullopt;
    const auto mean = [&](double sum) { return std::exp(sum / static_cast<double>(count_)); };
    std::vector<double> means(resampled_.size());
    std::ranges::transform(resampled_, means.begin(), mean);
    return GeometricMean{.count = count_,
                         .estimate = {.value = mean(log_sum_),
                                      .interval = fewest_seeds_ < kIntervalSeeds || !have_fractions_
                                                      ? kNoInterval
                                                      : PercentileInterval(std::move(means))}};
  }

 private:
  int64_t count_ = 0;
  int64_t fewest_seeds_ = std::numeric_limits<int64_t>::max();
  bool have_fractions_ = true;  // in every resample
  double log_sum_ = 0;
  std::vector<double> resampled_ = std::vector<double>(kResamples);
};

// The rows of one optimizer against the best baselines. `sections`: of one task and number of steps
// each.
void AddAgainstBest(const std::vector<std::vector<Judged>>& sections, AggregateRow* aggregate) {
  std::vector<double> p_values;
  std::vector<bool> lower;
  MeanOfFractions all;
  MeanOfFractions trained;
  MeanOfFractions transfer;
  for (const std::vector<Judged>& section : sections) {
    const auto best = std::ranges::find_if(
        section, [](const Judged& judged) { return judged.row.best_baseline; });
    const auto judged = std::ranges::find_if(
        section, [&](const Judged& other) { return other.row.optimizer == aggregate->optimizer; });
    if (best == section.end() || judged == section.end()) continue;
    const double loss = judged->row.test_loss.value;
    const double unit = best->row.test_loss.value;
    if (judged->row.best_p_value) {
      p_values.push_back(*judged->row.best_p_value);
      lower.push_back(loss < unit);
    }
    if (!(loss > 0 && IsUnit(unit))) continue;
    all.Add(*judged, *best);
    if (!judged->row.trained_on) continue;
    (*judged->row.trained_on ? trained : transfer).Add(*judged, *best);
  }
  if (const auto mean = all.Get()) {
    aggregate->best_ratio = mean->estimate;
    aggregate->best_compared = mean->count;
  }
  aggregate->best_ratio_trained = trained.Get();
  aggregate->best_ratio_transfer = transfer.Get();
  const std::vector<bool> rejected = HolmRejections(p_values, 0.05);
  for (size_t i = 0; i < p_values.size(); ++i) {
    ++(!rejected[i] ? aggregate->best_unclear
       : lower[i]   ? aggregate->best_better
                    : aggregate->best_worse);
  }
}

// Whether losses on this task after the i-th number of steps can be fractions of Adam's.
bool IsComparable(const OptimizerRuns& adam, size_t i) {
  return std::ranges::all_of(kComparedLosses, [&](RunFigure loss) {
    return IsUnit(InterquartileMean(Losses(adam, loss, i)));
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
        ratios.push_back(Fraction(seed->losses[i], unit));
      }
    }
  }
  return InterquartileMean(ratios);
}

Estimate RatioToAdam(const std::vector<Task>& tasks, const std::string& optimizer, RunFigure loss) {
  std::vector<std::vector<Seed>> strata;
  size_t compared = 0;
  for (const Task& task : tasks) {
    const OptimizerRuns* entry = task.Find(optimizer);
    const OptimizerRuns* adam = task.Find(kReferenceBaseline);
    if (entry == nullptr || adam == nullptr) continue;
    std::vector<size_t> counted;
    for (size_t i = 0; i < task.steps.size(); ++i) {
      if (IsComparable(*adam, i)) counted.push_back(i);
    }
    if (counted.empty()) continue;
    const auto add = [&](const OptimizerRuns& of, bool is_unit) {
      std::vector<Seed>& stratum =
          strata.emplace_back(of.runs.size(), Seed{.task = compared, .is_unit = is_unit});
      for (const size_t i : counted) {
        const std::vector<double> losses = Losses(of, loss, i);
        for (size_t s = 0; s < losses.size(); ++s) stratum[s].losses.push_back(losses[s]);
      }
    };
    if (entry != adam) add(*entry, /*is_unit=*/false);
    add(*adam, /*is_unit=*/true);
    ++compared;
  }
  if (strata.empty()) return {.value = kNan, .interval = kNoInterval};
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
  const bool few = std::ranges::any_of(
      strata, [](const auto& stratum) { return std::ssize(stratum) < kIntervalSeeds; });
  return {
      .value = MeanRatio(all, compared),
      .interval = few ? kNoInterval
                      : StratifiedBootstrapInterval(places, statistic, kResamples, KeyFromSeed(0))};
}

AggregateRow AggregateOf(const std::vector<Task>& tasks, const std::vector<SummaryRow>& rows,
                         const std::string& optimizer) {
  AggregateRow aggregate{.optimizer = optimizer,
                         .train_ratio = RatioToAdam(tasks, optimizer, &RunResult::final_train_loss),
                         .test_ratio = RatioToAdam(tasks, optimizer, &RunResult::test_loss)};
  for (const Task& task : tasks) {
    const OptimizerRuns* adam = task.Find(kReferenceBaseline);
    if (adam == nullptr || task.Find(optimizer) == nullptr) continue;
    for (size_t i = 0; i < task.steps.size(); ++i) {
      ++(IsComparable(*adam, i) ? aggregate.compared : aggregate.left_out);
    }
  }
  std::vector<double> speedups;
  for (const SummaryRow& row : rows) {
    if (row.optimizer != optimizer) continue;
    if (row.speedup) speedups.push_back(*row.speedup);
    aggregate.diverged += row.diverged;
    aggregate.blown_up += row.blown_up;
    aggregate.better += row.test_verdict == Verdict::kBetter ? 1 : 0;
    aggregate.worse += row.test_verdict == Verdict::kWorse ? 1 : 0;
    aggregate.unclear += row.test_verdict == Verdict::kUnclear ? 1 : 0;
  }
  if (!speedups.empty()) aggregate.speedup = InterquartileMean(speedups);
  return aggregate;
}

}  // namespace

bool HasReference(const Summary& summary) {
  return std::ranges::find(summary.rows, kReferenceBaseline, &SummaryRow::optimizer) !=
         summary.rows.end();
}

bool HasBestBaseline(const Summary& summary) {
  return std::ranges::any_of(summary.aggregate,
                             [](const AggregateRow& row) { return row.best_ratio.has_value(); });
}

Summary Summarize(const std::vector<RunResult>& results, const std::vector<OptimizerInfo>& infos) {
  const std::vector<Task> tasks = GroupByTask(results);
  Summary summary{.optimizers = infos};
  std::vector<std::string> optimizers;
  std::vector<std::vector<Judged>> sections;
  int64_t comparisons = 0;
  for (const Task& task : tasks) comparisons += std::ssize(task.steps);
  // The least p-value, 2 / (resamples + 1), has to pass Holm's first step, 0.05 / comparisons.
  const int64_t resamples = std::max(kResamples, 40 * comparisons);
  for (const Task& task : tasks) {
    for (size_t i = 0; i < task.steps.size(); ++i) {
      std::vector<Judged>& section = sections.emplace_back();
      for (const OptimizerRuns& entry : task.optimizer_runs) {
        section.push_back(JudgedOf(task, entry, i, resamples));
        section.back().row.trained_on = HasTrainedOn(infos, section.back().row);
      }
      AddVerdicts(&section);
      for (Judged& judged : section) {
        judged.test.resize(kResamples);  // what else there is was for the p-values
        summary.rows.push_back(judged.row);
      }
    }
    for (const OptimizerRuns& entry : task.optimizer_runs) {
      if (std::ranges::find(optimizers, entry.optimizer) == optimizers.end()) {
        optimizers.push_back(entry.optimizer);
      }
    }
  }
  if (!HasReference(summary) && !std::ranges::any_of(summary.rows, &SummaryRow::best_baseline)) {
    return summary;
  }
  for (const std::string& optimizer : optimizers) {
    AggregateRow& row = summary.aggregate.emplace_back(AggregateOf(tasks, summary.rows, optimizer));
    AddAgainstBest(sections, &row);
  }
  return summary;
}

}  // namespace lopt
