#include "lopt/tools/report/evaluation_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "lopt/evaluation/summary_text.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/report/evaluation_figures.h"
#include "lopt/tools/report/html.h"

namespace lopt {

namespace {

constexpr size_t kMatrixColumns = 8;  // that fit without scrolling

// Of four digits, never broken into lines at a minus.
std::string ShortNumber(double value) { return fmt::format("<span>{:.4g}</span>", value); }

std::string Cell(const Estimate& estimate) {
  if (!HasInterval(estimate)) return ShortNumber(estimate.value);
  return fmt::format("{} <span class=\"pale\">[{:.3g}, {:.3g}]</span>", ShortNumber(estimate.value),
                     estimate.interval.low, estimate.interval.high);
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

// "120 (1.7 times)"; "never". Steps and seconds are written out: 30,000, not 3e+04.
std::string Reached(const std::optional<double>& of, const std::optional<double>& speedup) {
  if (!of || !std::isfinite(*of)) return Cell(of);
  std::string text = *of < 9999.5 ? ShortNumber(*of) : FormatCount(*of);
  if (!speedup) return text;
  return fmt::format("{} <span class=\"pale\">({} &times;)</span>", text, Rounded(*speedup, 3));
}

std::string SectionName(SummaryRows section) {
  return fmt::format("{}, {} steps", section[0].task, section[0].steps);
}

std::string LearningRateCell(const SummaryRow& row) {
  return (row.step_multiplier ? "steps &times; " + Cell(row.step_multiplier)
                              : Cell(row.learning_rate)) +
         (row.at_edge ? " (edge)" : "");
}

// A ratio and whether it is beyond chance.
std::string RatioCell(const SummaryRow& row, Verdict verdict) {
  const std::string text = row.test_ratio ? Rounded(row.test_ratio->value, 3) : "-";
  return verdict == Verdict::kBetter  ? "<span class=\"better\">&#9660; " + text + "</span>"
         : verdict == Verdict::kWorse ? "<span class=\"worse\">&#9650; " + text + "</span>"
                                      : text;
}

std::string Counts(int64_t better, int64_t worse, int64_t unclear) {
  return better + worse + unclear == 0 ? "-" : fmt::format("{} / {} / {}", better, worse, unclear);
}

}  // namespace

void AddComparison(const OptimizerComparison& comparison, ReportPage* page) {
  std::vector<HtmlRow> rows;
  for (const OptimizerComparison::Row& row : comparison.rows) {
    std::vector<std::string> cells = {EscapeHtml(row.optimizer)};
    for (const std::string& cell : row.cells) cells.push_back(EscapeHtml(cell));
    rows.push_back({.cells = std::move(cells), .ours = row.learned});
  }
  std::vector<std::string> header;
  for (const std::string& name : comparison.header) header.push_back(EscapeHtml(name));
  page->AddHtml(HtmlTable(comparison.caption + ". Learned optimizers are bold" +
                              (comparison.legend.empty() ? "" : "; " + comparison.legend) + ".",
                          header, rows, 1));
}

void AddAggregate(const ComparedSummary& compared, ReportPage* page) {
  const Summary& summary = compared.summary;
  const bool has_adam = HasReference(summary);
  if (!has_adam && !HasBestBaseline(summary)) return;
  std::vector<HtmlRow> rows;
  for (const OptimizerComparison::Row& standing : compared.comparison.rows) {
    const auto row = std::ranges::find_if(summary.aggregate, [&](const AggregateRow& candidate) {
      return candidate.optimizer == standing.optimizer;
    });
    if (row == summary.aggregate.end()) continue;
    rows.push_back(
        {.cells = {EscapeHtml(standing.optimizer), Cell(row->test_ratio), Cell(row->train_ratio),
                   Counts(row->better, row->worse, row->unclear), Cell(row->best_ratio),
                   Cell(row->best_ratio_trained), Cell(row->best_ratio_transfer),
                   Counts(row->best_better, row->best_worse, row->best_unclear),
                   row->speedup ? ShortNumber(*row->speedup) : "",
                   fmt::format("{} / {}", row->diverged, row->blown_up)},
         .ours = standing.learned});
  }
  std::vector<std::string> header = {"optimizer",
                                     "test loss / Adam's",
                                     "train loss / Adam's",
                                     "better / worse / unclear",
                                     "test loss / best baseline's",
                                     "the same, trained on",
                                     "the same, transfer",
                                     "better / worse / unclear",
                                     "speed-up in steps",
                                     "diverged / blown up"};
  if (!has_adam) {
    const auto leave_out = [](std::vector<std::string>* cells) {
      cells->erase(cells->begin() + 8);  // the speed-up over Adam
      cells->erase(cells->begin() + 1, cells->begin() + 4);
    };
    leave_out(&header);
    for (HtmlRow& row : rows) leave_out(&row.cells);
  }
  page->AddHtml(HtmlTable(has_adam
                              ? "All tasks; losses as fractions of tuned Adam's and of the best "
                                "baseline's"
                              : "All tasks; losses as fractions of the best baseline's",
                          header, rows, 1));
}

void AddRatios(const ComparedSummary& compared, const std::vector<std::string>& optimizers,
               const std::string& label, ReportPage* page) {
  const std::vector<SummaryRows> sections = Sections(compared.summary);
  const std::string& unit = compared.comparison.unit;
  if (sections.size() < 2 || unit.empty()) return;
  std::vector<std::string> shown;
  std::ranges::copy_if(optimizers, std::back_inserter(shown), [&](const std::string& optimizer) {
    const auto& rows = compared.summary.rows;
    return std::ranges::find(rows, optimizer, &SummaryRow::optimizer) != rows.end();
  });
  if (shown.size() > kMatrixColumns) shown.resize(kMatrixColumns);
  if (shown.empty()) return;
  std::vector<std::string> header = {"task"};
  for (const std::string& optimizer : shown) header.push_back(EscapeHtml(optimizer));
  std::vector<std::pair<double, HtmlRow>> rows;  // by the first optimizer's ratio
  for (const SummaryRows section : sections) {
    const bool has_best = std::ranges::any_of(section, &SummaryRow::best_baseline);
    double first = std::numeric_limits<double>::infinity();
    HtmlRow line{.cells = {EscapeHtml(SectionName(section))}};
    for (size_t o = 0; o < shown.size(); ++o) {
      const auto row = std::ranges::find(section, shown[o], &SummaryRow::optimizer);
      if (row == section.end()) {
        line.cells.emplace_back();
        continue;
      }
      line.cells.push_back(RatioCell(*row, has_best ? row->best_verdict : row->test_verdict));
      if (o == 0 && row->test_ratio && !std::isnan(row->test_ratio->value)) {
        first = row->test_ratio->value;
      }
    }
    rows.emplace_back(first, std::move(line));
  }
  std::ranges::stable_sort(rows, {}, &std::pair<double, HtmlRow>::first);
  std::vector<HtmlRow> lines;
  for (auto& [ratio, line] : rows) lines.push_back(std::move(line));
  page->AddHtml(HtmlTable(
      fmt::format("{}Ratios of test losses to {}, sorted by {}'s; a triangle downwards marks what "
                  "is better beyond chance (from {} seeds on), upwards what is worse.",
                  label.empty() ? "" : label + ": ", unit, shown[0], kVerdictSeeds),
      header, lines, 1));
}

void AddTaskTables(const Summary& summary, ReportPage* page) {
  const std::vector<std::string> header = {
      "optimizer",     "test loss",       "against Adam",        "against the best baseline",
      "train loss",    "against Adam",    "mean train loss",     "test accuracy",
      "steps to Adam", "seconds to Adam", "diverged / blown up", "learning rate",
      "seconds"};
  for (const SummaryRows section : Sections(summary)) {
    std::vector<HtmlRow> rows;
    for (const SummaryRow* row : SortedByTestLoss(section)) {
      const std::string name =
          EscapeHtml(row->optimizer) + (row->trained_on.value_or(false) ? " +" : "");
      rows.push_back(
          {.cells = {name, Cell(row->test_loss), Word(row->test_verdict),
                     row->best_baseline ? "it is the best" : Word(row->best_verdict),
                     Cell(row->train_loss), Word(row->train_verdict),
                     ShortNumber(row->mean_train_loss.value), Cell(row->test_accuracy),
                     Reached(row->steps_to_adam, row->speedup),
                     Reached(row->seconds_to_adam, row->seconds_speedup),
                     fmt::format("{} / {} of {}", row->diverged, row->blown_up, row->seeds),
                     LearningRateCell(*row), Rounded(row->seconds, 2)},
           .ours = !row->learning_rate});
    }
    page->AddHtml(HtmlTable(SectionName(section), header, rows, 1));
  }
}

}  // namespace lopt
