#include "lopt/tools/report/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/evaluation/performance_profile.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/evaluation/summary.h"
#include "lopt/evaluation/tables.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/report/curves.h"
#include "lopt/tools/report/files.h"
#include "lopt/tools/report/html.h"

namespace lopt {

namespace {

using Evaluations = std::vector<EvaluationRecord>;

constexpr double kLogarithmicFrom = 5;  // the axis of learning curves
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The distinct values of a member over all results, in their order.
std::vector<std::string> Distinct(const Evaluations& evaluations, std::string RunResult::*member) {
  std::vector<std::string> names;
  for (const EvaluationRecord& evaluation : evaluations) {
    for (const RunResult& run : evaluation.results) {
      if (std::ranges::find(names, run.*member) == names.end()) names.push_back(run.*member);
    }
  }
  return names;
}

// The q-quantile with linear interpolation; infinite values sort last. NaN unless it is finite.
double Quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const double part = at - static_cast<double>(below);
  const double low = values[below];
  if (part == 0 || !std::isfinite(low)) return std::isfinite(low) ? low : kNaN;
  const double quantile = low + part * (values[below + 1] - low);
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

// Median and quartiles over the seeds.
Curve LearningCurve(const std::vector<const RunResult*>& seeds, int64_t window) {
  int64_t steps = std::ssize(seeds[0]->train_loss);
  for (const RunResult* run : seeds) steps = std::min(steps, std::ssize(run->train_loss));
  std::vector<int64_t> at;
  const auto points = std::min<int64_t>(steps, kCurvePoints);
  for (int64_t i = 0; i < points; ++i) {
    at.push_back(points == 1 ? 0 : i * (steps - 1) / (points - 1));
  }
  std::vector<std::vector<double>> losses;
  for (const RunResult* run : seeds) losses.push_back(SmoothedLosses(run->train_loss, at, window));
  Curve curve;
  for (size_t i = 0; i < at.size(); ++i) {
    std::vector<double> values;
    for (const auto& seed : losses) values.push_back(seed[i]);
    curve.x.push_back(static_cast<double>(at[i]));
    curve.y.push_back(Quantile(values, 0.5));
    if (seeds.size() > 1) {
      curve.low.push_back(Quantile(values, 0.25));
      curve.high.push_back(Quantile(values, 0.75));
    }
  }
  return curve;
}

// The learned optimizers, which have no learning rate, then the others.
std::vector<std::string> OptimizersInOrder(const Evaluations& evaluations) {
  std::set<std::string> tuned;
  for (const EvaluationRecord& evaluation : evaluations) {
    for (const RunResult& run : evaluation.results) {
      if (!run.learning_rate.empty()) tuned.insert(run.optimizer);
    }
  }
  std::vector<std::string> names = Distinct(evaluations, &RunResult::optimizer);
  std::stable_partition(names.begin(), names.end(),
                        [&](const auto& name) { return !tuned.contains(name); });
  return names;
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

void LearningCurves(const Evaluations& evaluations, ReportPage* page) {
  page->Subsection("Learning curves");
  const std::vector<std::string> optimizers = OptimizersInOrder(evaluations);
  for (const std::string& task : Distinct(evaluations, &RunResult::task)) {
    Figure figure{.title = task,
                  .x_label = "inner steps",
                  .y_label = "train loss",
                  .logarithmic_from = kLogarithmicFrom};
    size_t seeds = 0;
    int64_t window = 1;
    for (size_t o = 0; o < optimizers.size(); ++o) {
      const size_t first = figure.curves.size();
      for (size_t e = 0; e < evaluations.size(); ++e) {
        std::vector<const RunResult*> runs;
        for (const RunResult& run : evaluations[e].results) {
          if (run.task == task && run.optimizer == optimizers[o] && !run.train_loss.empty()) {
            runs.push_back(&run);
          }
        }
        if (runs.empty()) continue;
        window = std::max(window, std::ssize(runs[0]->train_loss) / kSmoothedPart | 1);
        Curve curve = LearningCurve(runs, window);
        curve.label = evaluations.size() == 1 ? optimizers[o]
                                              : optimizers[o] + " (" + evaluations[e].label + ")";
        curve.color = static_cast<int>(o);
        curve.dash = static_cast<int>(o / 8 + e);
        seeds = std::max(seeds, runs.size());
        // Baselines are the same in evaluations of one config.
        if (Curve* same = SameCurve(curve, first, &figure)) {
          same->label = optimizers[o];
          continue;
        }
        figure.curves.push_back(std::move(curve));
      }
    }
    if (figure.curves.empty()) continue;
    LeaveOutZeros(&figure);
    figure.caption = fmt::format(
        "Median over {} seeds of the batch losses' running mean over {} steps; the band is the "
        "middle half of the seeds. A line ends where half of the seeds have diverged, or where the "
        "loss is 0.",
        seeds, window);
    page->AddFigure(std::move(figure));
  }
}

// --- Tables -------------------------------------------------------------------------------------

std::string ShortNumber(double value) { return fmt::format("{:.4g}", value); }

std::string Cell(const Estimate& estimate) {
  return fmt::format("{} <span class=\"pale\">[{}, {}]</span>", ShortNumber(estimate.value),
                     ShortNumber(estimate.interval.low), ShortNumber(estimate.interval.high));
}

std::string Cell(const std::optional<Estimate>& estimate) {
  return estimate ? Cell(*estimate) : std::string();
}

std::string Cell(const std::optional<GeometricMean>& mean) {
  return mean ? fmt::format("{} ({})", Cell(mean->estimate), mean->count) : std::string();
}

std::string Cell(const std::optional<double>& value) {
  if (!value) return "";
  return std::isfinite(*value) ? ShortNumber(*value) : "never";
}

// The word in the style sheet's class of the same name.
std::string Word(Verdict verdict) {
  std::string word = ToString(verdict);
  return verdict == Verdict::kBetter || verdict == Verdict::kWorse
             ? fmt::format("<span class=\"{}\">{}</span>", word, word)
             : word;
}

// The rows of a task and number of steps begin at `first`; returns where they end.
size_t SectionEnd(const Summary& summary, size_t first) {
  size_t last = first;
  while (last < summary.rows.size() && summary.rows[last].task == summary.rows[first].task &&
         summary.rows[last].steps == summary.rows[first].steps) {
    ++last;
  }
  return last;
}

void TaskTables(const Summary& summary, ReportPage* page) {
  const std::vector<std::string> header = {
      "optimizer",     "train loss",      "against Adam",
      "test loss",     "against Adam",    "against the best baseline",
      "test accuracy", "mean train loss", "steps to Adam",
      "speed-up",      "seconds to Adam", "speed-up",
      "diverged",      "blown up",        "learning rate",
      "seconds"};
  for (size_t first = 0; first < summary.rows.size();) {
    const size_t last = SectionEnd(summary, first);
    const SummaryRow& head = summary.rows[first];
    std::vector<std::vector<std::string>> rows;
    for (; first < last; ++first) {
      const SummaryRow& row = summary.rows[first];
      const bool reached = row.steps_to_adam && std::isfinite(*row.steps_to_adam);
      const std::string name =
          EscapeHtml(row.optimizer) + (row.trained_on.value_or(false) ? " +" : "");
      rows.push_back({row.learning_rate ? name : "<b>" + name + "</b>", Cell(row.train_loss),
                      Word(row.train_verdict), Cell(row.test_loss), Word(row.test_verdict),
                      row.best_baseline ? "it is the best" : Word(row.best_verdict),
                      Cell(row.test_accuracy), ShortNumber(row.mean_train_loss.value),
                      Cell(row.steps_to_adam), reached ? Cell(row.speedup) : "",
                      Cell(row.seconds_to_adam), reached ? Cell(row.seconds_speedup) : "",
                      fmt::format("{} of {}", row.diverged, row.seeds),
                      fmt::format("{} of {}", row.blown_up, row.seeds),
                      (row.step_multiplier ? "steps &times; " + Cell(row.step_multiplier)
                                           : Cell(row.learning_rate)) +
                          (row.at_edge ? " (edge)" : ""),
                      fmt::format("{:.2g}", row.seconds)});
    }
    page->AddHtml(fmt::format("<h4>{}, {} steps</h4>\n", EscapeHtml(head.task), head.steps) +
                  HtmlTable(header, rows, 1));
  }
}

void AggregateTable(const Summary& summary, ReportPage* page) {
  if (!HasReference(summary)) return;
  std::vector<std::vector<std::string>> rows;
  for (const AggregateRow& row : summary.aggregate) {
    rows.push_back({EscapeHtml(row.optimizer), Cell(row.train_ratio), Cell(row.test_ratio),
                    std::to_string(row.better), std::to_string(row.worse),
                    std::to_string(row.unclear), Cell(row.best_ratio), Cell(row.best_ratio_trained),
                    Cell(row.best_ratio_transfer), row.speedup ? ShortNumber(*row.speedup) : "",
                    std::to_string(row.best_better), std::to_string(row.best_worse),
                    std::to_string(row.best_unclear), std::to_string(row.diverged),
                    std::to_string(row.blown_up)});
  }
  page->AddHtml("<h4>All tasks, losses as fractions of tuned Adam's</h4>\n" +
                HtmlTable({"optimizer", "train loss", "test loss", ToString(Verdict::kBetter),
                           ToString(Verdict::kWorse), ToString(Verdict::kUnclear),
                           "test loss / best baseline's", "the same, trained on",
                           "the same, transfer", "speed-up in steps", "better than it",
                           "worse than it", "unclear against it", "diverged", "blown up"},
                          rows, 1));
}

// Test losses of all optimizers as fractions of tuned Adam's, a row for each task and number of
// steps.
void RatioTable(const Summary& summary, ReportPage* page) {
  if (!HasReference(summary)) return;
  std::vector<std::string> header = {"task", "steps"};
  for (const AggregateRow& row : summary.aggregate) header.push_back(EscapeHtml(row.optimizer));
  std::vector<std::vector<std::string>> rows;
  for (size_t first = 0; first < summary.rows.size();) {
    const size_t last = SectionEnd(summary, first);
    const std::span<const SummaryRow> section(&summary.rows[first], last - first);
    const auto adam = std::ranges::find(section, kReferenceBaseline, &SummaryRow::optimizer);
    std::vector<std::string> cells = {EscapeHtml(section[0].task),
                                      std::to_string(section[0].steps)};
    for (const AggregateRow& column : summary.aggregate) {
      const auto row = std::ranges::find(section, column.optimizer, &SummaryRow::optimizer);
      if (adam == section.end() || row == section.end()) {
        cells.emplace_back();
        continue;
      }
      const double ratio = row->test_loss.value / adam->test_loss.value;
      const std::string text = std::isnan(ratio) ? "-" : fmt::format("{:.3g}", ratio);
      cells.push_back(row->test_verdict == Verdict::kBetter
                          ? "<span class=\"better\">&#9660; " + text + "</span>"
                      : row->test_verdict == Verdict::kWorse
                          ? "<span class=\"worse\">&#9650; " + text + "</span>"
                          : text);
    }
    rows.push_back(std::move(cells));
    first = last;
  }
  page->AddHtml("<h4>Test loss as a fraction of tuned Adam's</h4>\n" + HtmlTable(header, rows, 1));
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
                     const std::string& what, double largest) {
  Figure figure{.title = title,
                .caption =
                    "How many of 100 tasks an optimizer brings to at most so many times the "
                    "lowest " +
                    what + " of all in the figure; further up and left is better.",
                .x_label = "times the lowest " + what,
                .y_label = "tasks (%)",
                .from_zero = true,
                .linear = true};
  for (const ProfileCurve& of_optimizer : profile) {
    Curve curve = ProfileSteps(of_optimizer, largest);
    curve.color = static_cast<int>(figure.curves.size());
    curve.dash = curve.color / 8;
    figure.curves.push_back(std::move(curve));
  }
  return figure;
}

// Of the optimizers that are tuned and of the others, where there are several.
std::vector<Figure> ProfileFigures(const Summary& summary) {
  std::vector<Figure> figures;
  for (const bool tuned : {false, true}) {
    std::vector<SummaryRow> rows;
    std::ranges::copy_if(summary.rows, std::back_inserter(rows),
                         [&](const SummaryRow& row) { return row.tuned == tuned; });
    const std::string group = tuned ? "Everything tuned" : "Nothing tuned";
    const auto losses =
        PerformanceProfile(rows, [](const SummaryRow& row) { return row.test_loss.value; });
    if (losses.size() < 2) continue;
    figures.push_back(ProfileFigure(losses, group + ": test loss", "test loss", 2));
    if (!HasReference(summary)) continue;
    const auto steps = PerformanceProfile(
        rows, [](const SummaryRow& row) { return row.steps_to_adam.value_or(kInfinity); });
    figures.push_back(
        ProfileFigure(steps, group + ": steps to tuned Adam's loss", "number of steps", 5));
  }
  return figures;
}

void Comparison(const Evaluations& evaluations, const std::vector<Summary>& summaries,
                ReportPage* page) {
  page->Subsection("Comparison");
  page->AddParagraph(
      "Interquartile means over the seeds, with 95 % bootstrap intervals. Better (a triangle "
      "downwards) and worse (upwards) than Adam with its tuned learning rate: the 95 % interval of "
      "the difference, with the same seeds and examples, does not hold 0. Of the best baseline of "
      "a task, the one with the lowest loss on inner_valid, the same; over all tasks after Holm's "
      "correction for their number. Fractions of its test loss are also in the geometric mean over "
      "the tasks that a meta-training has trained on, and over the others (transfer), with the "
      "number of these; the speed-up is the interquartile mean over all tasks. A diverged training "
      "counts as an infinite loss; one that blew "
      "up ends with train "
      "losses of more than 5 times the best that it had. " +
      LossesNote());
  for (size_t e = 0; e < evaluations.size(); ++e) {
    if (evaluations.size() > 1) page->Subsection(evaluations[e].label);
    AggregateTable(summaries[e], page);
    RatioTable(summaries[e], page);
  }
}

void Profiles(const Evaluations& evaluations, const std::vector<Summary>& summaries,
              ReportPage* page) {
  for (size_t e = 0; e < evaluations.size(); ++e) {
    std::vector<Figure> figures = ProfileFigures(summaries[e]);
    if (figures.empty()) continue;
    page->Subsection("Performance profiles" +
                     (evaluations.size() > 1 ? ": " + evaluations[e].label : ""));
    for (Figure& figure : figures) page->AddFigure(std::move(figure));
  }
}

void Tables(const Evaluations& evaluations, const std::vector<Summary>& summaries,
            ReportPage* page) {
  page->Subsection("All figures");
  page->AddParagraph(
      "Learned optimizers are in bold, with + where their meta-training has trained on the task; "
      "those with a number after \"steps\" have their steps "
      "multiplied by it, tuned as the learning rates of baselines are. What is marked (edge) is "
      "the "
      "smallest or largest that was tried. Seconds are those of one training.");
  for (size_t e = 0; e < evaluations.size(); ++e) {
    if (evaluations.size() > 1) page->Subsection(evaluations[e].label);
    TaskTables(summaries[e], page);
  }
}

void EvaluationOverview(const Evaluations& evaluations, ReportPage* page) {
  std::vector<std::string> header = {""};
  for (const EvaluationRecord& evaluation : evaluations) {
    header.push_back(EscapeHtml(evaluation.label));
  }
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](const std::string& name,
                       const std::function<std::string(const EvaluationRecord&)>& value) {
    std::vector<std::string> cells = {EscapeHtml(name)};
    bool any = false;
    for (const EvaluationRecord& evaluation : evaluations) {
      const std::string text = value(evaluation);
      any = any || !text.empty();
      cells.push_back(EscapeHtml(text));
    }
    if (any) rows.push_back(std::move(cells));
  };
  row("directory", [](const EvaluationRecord& evaluation) { return evaluation.path; });
  row("status", [](const EvaluationRecord& evaluation) {
    return ManifestText(evaluation.manifest, &EvaluationManifest::status);
  });
  row("tasks", [](const EvaluationRecord& evaluation) {
    return std::to_string(Distinct({evaluation}, &RunResult::task).size());
  });
  row("optimizers", [](const EvaluationRecord& evaluation) {
    return std::to_string(Distinct({evaluation}, &RunResult::optimizer).size());
  });
  row("trainings",
      [](const EvaluationRecord& evaluation) { return std::to_string(evaluation.results.size()); });
  row("time", [](const EvaluationRecord& evaluation) -> std::string {
    const double seconds = evaluation.manifest ? evaluation.manifest->seconds : 0;
    return seconds > 0 ? FormatDuration(seconds) : "";
  });
  const auto from_manifest = [&](const char* name, auto member) {
    row(name, [member](const EvaluationRecord& evaluation) {
      return ManifestText(evaluation.manifest, member);
    });
  };
  from_manifest("threads", &EvaluationManifest::threads);
  from_manifest("instruction set", &EvaluationManifest::isa);
  from_manifest("version", &EvaluationManifest::version);
  page->AddHtml(HtmlTable(header, rows, header.size()));
}

void ReproduceEvaluation(const Evaluations& evaluations, ReportPage* page) {
  page->Subsection("Config, and how to reproduce");
  for (const EvaluationRecord& evaluation : evaluations) {
    const std::string command = ManifestText(evaluation.manifest, &EvaluationManifest::command);
    if (!command.empty()) page->AddHtml("<pre>" + EscapeHtml(command) + "</pre>\n");
    if (evaluation.manifest && !evaluation.manifest->optimizers.empty()) {
      std::string optimizers;
      for (const OptimizerInfo& optimizer : evaluation.manifest->optimizers) {
        optimizers += RecordText(optimizer) + "\n";
      }
      page->AddDetails("optimizers of " + evaluation.label, optimizers);
    }
    if (!evaluation.config.empty()) {
      page->AddDetails("config.json of " + evaluation.label, evaluation.config);
    }
  }
}

}  // namespace

EvaluationRecord ReadEvaluation(const std::string& path, const std::string& label) {
  EvaluationRecord evaluation{.path = path, .label = label};
  evaluation.manifest =
      ReadManifestFile<EvaluationManifest>(path + "/manifest.json", &evaluation.damage);
  if (Exists(path + "/config.json")) {
    evaluation.config = ReadTextFile(path + "/config.json");
  } else {
    evaluation.damage.push_back(path + "/config.json is missing: what was evaluated is unknown");
  }
  Results results = ReadResults(path + "/results.jsonl");
  evaluation.results = std::move(results.runs);
  if (!results.damage.empty()) evaluation.damage.push_back(results.damage);
  return evaluation;
}

void ReportEvaluations(const Evaluations& evaluations, ReportPage* page) {
  page->Section(evaluations.size() == 1 ? "Evaluation: " + evaluations[0].label : "Evaluations");
  bool any = false;
  for (const EvaluationRecord& evaluation : evaluations) {
    for (const std::string& damage : evaluation.damage) page->AddNotice(damage);
    const std::string status = ManifestText(evaluation.manifest, &EvaluationManifest::status);
    if (status == "running" || status == "interrupted") {
      page->AddNotice(fmt::format("{}: the evaluation is {}; this is what it has written so far.",
                                  evaluation.label, status));
    } else if (status == "failed") {
      page->AddNotice(evaluation.label + ": the evaluation failed: " +
                      ManifestText(evaluation.manifest, &EvaluationManifest::error));
    }
    if (evaluation.results.empty()) {
      page->AddNotice(evaluation.label + ": results.jsonl holds no result yet.");
    }
    any = any || !evaluation.results.empty();
  }
  EvaluationOverview(evaluations, page);
  if (any) {
    std::vector<Summary> summaries;
    for (const EvaluationRecord& evaluation : evaluations) {
      summaries.push_back(Summarize(evaluation.results, evaluation.manifest
                                                            ? evaluation.manifest->optimizers
                                                            : std::vector<OptimizerInfo>()));
    }
    Comparison(evaluations, summaries, page);
    LearningCurves(evaluations, page);
    Profiles(evaluations, summaries, page);
    Tables(evaluations, summaries, page);
  }
  ReproduceEvaluation(evaluations, page);
}

}  // namespace lopt
