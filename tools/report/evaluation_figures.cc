#include "lopt/tools/report/evaluation_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "lopt/evaluation/performance_profile.h"
#include "lopt/evaluation/statistics.h"
#include "lopt/evaluation/summary_text.h"
#include "lopt/tools/report/curves.h"

namespace lopt {

namespace {

using Evaluations = std::vector<EvaluationRecord>;

constexpr double kLogarithmicFrom = 5;  // the axis of learning curves
constexpr int64_t kPoints = 200;        // of a learning curve
constexpr int64_t kGreyPoints = 80;
constexpr size_t kThick = 4;   // learned optimizers
constexpr size_t kRivals = 3;  // baselines in color
constexpr const char* kForestAxis = "ratio; left of 1 is better";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string ForestCaption() {
  return fmt::format(
      "Lines: 95 % intervals. A triangle downwards marks what is better beyond chance (from {} "
      "seeds on), upwards what is worse; dashes lead to a ratio beyond the edge.",
      kVerdictSeeds);
}

// Of ascending losses; NaN unless it is finite.
double FiniteQuantile(const std::vector<double>& sorted, double fraction) {
  const double quantile = Quantile(sorted, fraction);
  return std::isfinite(quantile) ? quantile : kNaN;
}

// The running mean of one training's losses, from the first to the last step, at the steps of
// `at`; infinite from the first loss on that is not finite.
std::vector<double> SmoothedLosses(const std::vector<float>& losses, const std::vector<int64_t>& at,
                                   int64_t window) {
  std::vector<double> smoothed;
  const auto bad = std::ranges::find_if(losses, [](float loss) { return !std::isfinite(loss); });
  const int64_t finite = bad - losses.begin();
  for (const int64_t step : at) {
    const int64_t first = std::max<int64_t>(0, step - window / 2);
    const int64_t last = std::min(std::ssize(losses), step + window / 2 + 1);
    double sum = 0;
    for (int64_t k = first; k < last; ++k) sum += losses[static_cast<size_t>(k)];
    smoothed.push_back(last > finite ? kInfinity : sum / static_cast<double>(last - first));
  }
  return smoothed;
}

// Median and quartiles over the seeds, at no more than `most` steps.
Curve LearningCurve(const std::vector<const RunResult*>& seeds, int64_t window, int64_t most) {
  int64_t steps = std::ssize(seeds[0]->train_loss);
  for (const RunResult* run : seeds) steps = std::min(steps, std::ssize(run->train_loss));
  std::vector<int64_t> at;
  const auto points = std::min(steps, most);
  for (int64_t i = 0; i < points; ++i) {
    at.push_back(points == 1 ? 0 : i * (steps - 1) / (points - 1));
  }
  std::vector<std::vector<double>> losses;
  for (const RunResult* run : seeds) losses.push_back(SmoothedLosses(run->train_loss, at, window));
  Curve curve;
  for (size_t i = 0; i < at.size(); ++i) {
    std::vector<double> values;
    for (const auto& seed : losses) values.push_back(seed[i]);
    std::ranges::sort(values);
    curve.x.push_back(static_cast<double>(at[i]));
    curve.y.push_back(FiniteQuantile(values, 0.5));
    if (seeds.size() > 1) {
      curve.low.push_back(FiniteQuantile(values, 0.25));
      curve.high.push_back(FiniteQuantile(values, 0.75));
    }
  }
  return curve;
}

// The curve of a figure, from number `first` on, with the same numbers; null if there is none.
Curve* SameCurve(const Curve& curve, size_t first, Figure* figure) {
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (size_t i = first; i < figure->curves.size(); ++i) {
    Curve& other = figure->curves[i];
    if (other.x == curve.x && std::ranges::equal(other.y, curve.y, same)) return &other;
  }
  return nullptr;
}

// Losses that have come down to exactly 0 must not keep an axis from being logarithmic.
void LeaveOutZeros(Figure* figure) {
  double largest = 0;
  for (const Curve& curve : figure->curves) {
    for (const double y : curve.y) largest = std::max(largest, std::isfinite(y) ? y : 0);
  }
  if (largest == 0) return;
  for (Curve& curve : figure->curves) {
    for (auto* numbers : {&curve.y, &curve.low, &curve.high}) {
      std::ranges::replace(*numbers, 0.0, kNaN);
    }
  }
}

// A forest plot of the rows of one task and number of steps; none where no row but the unit's has a
// ratio.
std::optional<Figure> SectionForest(SummaryRows section) {
  const auto unit = std::ranges::find_if(section, &SummaryRow::best_baseline);
  const std::string whose = unit == section.end() ? "tuned Adam" : unit->optimizer;
  Figure figure{.title = fmt::format("{}, {} steps: ratios of test losses to {}", section[0].task,
                                     section[0].steps, whose),
                .caption = ForestCaption(),
                .x_label = kForestAxis,
                .forest = ForestPlot()};
  for (const SummaryRow* row : SortedByTestLoss(section)) {
    if (!row->test_ratio) continue;
    const Verdict verdict = unit == section.end() ? row->test_verdict : row->best_verdict;
    figure.forest->rows.push_back({.label = row->optimizer,
                                   .ratio = row->test_ratio->value,
                                   .low = row->test_ratio->interval.low,
                                   .high = row->test_ratio->interval.high,
                                   .bold = !row->learning_rate,
                                   .word = ToString(verdict)});
  }
  return figure.forest->rows.size() < 2 ? std::nullopt : std::optional(std::move(figure));
}

// The learning curves of one task, of all evaluations; null without any.
std::optional<Figure> LearningCurves(const Evaluations& evaluations, const std::string& task,
                                     const Looks& looks) {
  Figure figure{.title = task + ": learning curves",
                .x_label = "inner steps",
                .y_label = "train loss",
                .logarithmic_from = kLogarithmicFrom};
  const bool several = std::ranges::count_if(evaluations, [&](const EvaluationRecord& evaluation) {
                         const auto& results = evaluation.results;
                         return std::ranges::find(results, task, &RunResult::task) != results.end();
                       }) > 1;
  size_t seeds = 0;
  int64_t window = 1;
  for (const std::string& optimizer : looks.optimizers()) {
    const size_t first = figure.curves.size();
    for (size_t e = 0; e < evaluations.size(); ++e) {
      std::vector<const RunResult*> runs;
      for (const RunResult& run : evaluations[e].results) {
        if (run.task == task && run.optimizer == optimizer && !run.train_loss.empty()) {
          runs.push_back(&run);
        }
      }
      if (runs.empty()) continue;
      window = std::max(window, std::ssize(runs[0]->train_loss) / kSmoothedPart | 1);
      const bool grey = looks.IsGrey(optimizer);
      Curve curve = LearningCurve(runs, window, grey ? kGreyPoints : kPoints);
      if (grey) curve.low = curve.high = {};
      looks.Give(optimizer, &curve);
      curve.label = several ? optimizer + " (" + evaluations[e].label + ")" : optimizer;
      curve.dash = static_cast<int>(e);
      seeds = std::max(seeds, runs.size());
      // Baselines are the same in evaluations of one config.
      if (Curve* same = SameCurve(curve, first, &figure)) {
        same->label = optimizer;
        continue;
      }
      figure.curves.push_back(std::move(curve));
    }
  }
  if (figure.curves.empty()) return std::nullopt;
  LeaveOutZeros(&figure);
  figure.caption = fmt::format(
      "Median over {} seeds of the batch losses' running mean over {} steps; the band is the "
      "middle half of the seeds. A line ends where half of the seeds have diverged, or where the "
      "loss is 0.",
      seeds, window);
  return figure;
}

// --- Performance profiles -----------------------------------------------------------------------

// A staircase: at each factor the share of tasks within it, from 1 on.
Curve ProfileSteps(const ProfileCurve& profile, double largest) {
  Curve curve{.label = profile.optimizer, .x = {1}, .y = {100 * profile.Share(1)}};
  for (const double ratio : profile.ratios) {
    if (ratio <= 1 || ratio > largest) continue;
    curve.x.push_back(ratio);
    curve.y.push_back(curve.y.back());
    curve.x.push_back(ratio);
    curve.y.push_back(100 * profile.Share(ratio));
  }
  curve.x.push_back(largest);
  curve.y.push_back(curve.y.back());
  return curve;
}

Figure ProfileFigure(const std::vector<ProfileCurve>& profile, const std::string& title,
                     const std::string& what, double largest, const Looks& looks) {
  Figure figure{.title = title,
                .caption =
                    "How many of 100 tasks an optimizer brings to at most so many times the "
                    "lowest " +
                    what + " of all in the figure; further up and left is better.",
                .x_label = "times the lowest " + what,
                .y_label = "tasks (%)",
                .from_zero = true,
                .linear = true};
  for (const std::string& optimizer : looks.optimizers()) {
    const auto of = std::ranges::find(profile, optimizer, &ProfileCurve::optimizer);
    if (of == profile.end()) continue;
    Curve curve = ProfileSteps(*of, largest);
    looks.Give(optimizer, &curve);
    figure.curves.push_back(std::move(curve));
  }
  return figure;
}

// Of the optimizers that are tuned and of the others, where there are several.
std::vector<Figure> ProfileFigures(const Summary& summary, const Looks& looks) {
  std::vector<Figure> figures;
  for (const bool tuned : {false, true}) {
    std::vector<SummaryRow> rows;
    std::ranges::copy_if(summary.rows, std::back_inserter(rows),
                         [&](const SummaryRow& row) { return row.tuned == tuned; });
    const std::string group = tuned ? "Everything tuned" : "Nothing tuned";
    const auto losses =
        PerformanceProfile(rows, [](const SummaryRow& row) { return row.test_loss.value; });
    if (losses.size() < 2) continue;
    figures.push_back(ProfileFigure(losses, group + ": test loss", "test loss", 2, looks));
    if (!HasReference(summary)) continue;
    const auto steps = PerformanceProfile(
        rows, [](const SummaryRow& row) { return row.steps_to_adam.value_or(kInfinity); });
    figures.push_back(
        ProfileFigure(steps, group + ": steps to tuned Adam's loss", "number of steps", 5, looks));
  }
  return figures;
}

}  // namespace

Looks::Looks(const std::vector<ComparedSummary>& summaries) {
  std::vector<std::string> baselines;
  for (const ComparedSummary& compared : summaries) {
    for (const OptimizerComparison::Row& row : compared.comparison.rows) {
      std::vector<std::string>& names = row.learned ? shown_ : baselines;
      if (std::ranges::find(names, row.optimizer) == names.end()) names.push_back(row.optimizer);
    }
  }
  learned_ = shown_.size();
  const size_t rivals = std::min(kRivals, baselines.size());
  shown_.insert(shown_.end(), baselines.begin(), baselines.begin() + static_cast<int64_t>(rivals));
  optimizers_ = shown_;
  optimizers_.insert(optimizers_.end(), baselines.begin() + static_cast<int64_t>(rivals),
                     baselines.end());
}

bool Looks::IsGrey(const std::string& optimizer) const {
  return std::ranges::find(shown_, optimizer) == shown_.end();
}

void Looks::Give(const std::string& optimizer, Curve* curve) const {
  const auto place = static_cast<size_t>(std::ranges::find(shown_, optimizer) - shown_.begin());
  curve->style = place >= shown_.size()               ? Curve::Style::kGrey
                 : place < std::min(learned_, kThick) ? Curve::Style::kThick
                                                      : Curve::Style::kLine;
  curve->color = static_cast<int>(place);
}

std::vector<const SummaryRow*> SortedByTestLoss(SummaryRows section) {
  std::vector<const SummaryRow*> rows;
  for (const SummaryRow& row : section) rows.push_back(&row);
  std::ranges::stable_sort(rows, {}, [](const SummaryRow* row) {
    const double loss = row->test_loss.value;
    return std::isnan(loss) ? std::pair(true, 0.0) : std::pair(false, loss);
  });
  return rows;
}

std::optional<Figure> ForestOf(const ComparedSummary& compared) {
  const OptimizerComparison& comparison = compared.comparison;
  if (comparison.unit.empty()) return std::nullopt;
  const std::vector<SummaryRows> sections = Sections(compared.summary);
  if (sections.size() == 1) return SectionForest(sections[0]);
  Figure figure{.title = "Ratios of test losses to " + comparison.unit,
                .caption = ForestCaption(),
                .x_label = kForestAxis,
                .forest = ForestPlot()};
  for (const OptimizerComparison::Row& row : comparison.rows) {
    if (!row.ratio) continue;
    figure.forest->rows.push_back({.label = row.optimizer,
                                   .ratio = row.ratio->value,
                                   .low = row.ratio->interval.low,
                                   .high = row.ratio->interval.high,
                                   .bold = row.learned});
  }
  return figure;
}

void AddTaskFigures(const std::vector<EvaluationRecord>& evaluations,
                    const std::vector<ComparedSummary>& summaries, const Looks& looks,
                    ReportPage* page) {
  for (const std::string& task : Distinct(evaluations, &RunResult::task)) {
    if (auto curves = LearningCurves(evaluations, task, looks)) page->AddFigure(std::move(*curves));
    for (size_t e = 0; e < evaluations.size(); ++e) {
      const std::vector<SummaryRows> sections = Sections(summaries[e].summary);
      if (sections.size() == 1) continue;  // it stands above
      for (const SummaryRows section : sections) {
        if (section[0].task != task) continue;
        std::optional<Figure> figure = SectionForest(section);
        if (!figure) continue;
        if (evaluations.size() > 1) figure->title = evaluations[e].label + ": " + figure->title;
        page->AddFigure(std::move(*figure));
      }
    }
  }
}

void AddProfiles(const std::vector<EvaluationRecord>& evaluations,
                 const std::vector<ComparedSummary>& summaries, const Looks& looks,
                 ReportPage* page) {
  for (size_t e = 0; e < evaluations.size(); ++e) {
    if (Sections(summaries[e].summary).size() < 2) continue;
    std::vector<Figure> figures = ProfileFigures(summaries[e].summary, looks);
    if (figures.empty()) continue;
    page->Subsection("Performance profiles" +
                     (evaluations.size() > 1 ? ": " + evaluations[e].label : ""));
    for (Figure& figure : figures) page->AddFigure(std::move(figure));
  }
}

}  // namespace lopt
