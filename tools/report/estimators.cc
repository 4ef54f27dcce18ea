#include "lopt/tools/report/estimators.h"

#include <fmt/format.h>

#include <functional>
#include <set>

#include "lopt/tools/progress_line.h"
#include "lopt/tools/report/html.h"

namespace lopt {
namespace {

std::string Cell(const Measured& measured) {
  return EscapeHtml(
      fmt::format("{:.4g} [{:.3g}, {:.3g}]", measured.value, measured.low, measured.high));
}

std::string QualityTable(const EstimatorBench& bench) {
  std::vector<HtmlRow> rows;
  for (const EstimatorQuality& row : bench.estimators) {
    const bool known = row.reference != "none";
    rows.push_back(
        {.cells = {EscapeHtml(row.estimator), EscapeHtml(row.type),
                   row.window ? std::to_string(*row.window) : "all", EscapeHtml(row.reference),
                   FormatCount(row.inner_steps), fmt::format("{:.3g}", row.seconds),
                   known ? Cell(row.bias) : "", known ? Cell(row.cosine) : "", Cell(row.variance),
                   fmt::format("{:.4g}", row.VariancePer1000Steps().value),
                   fmt::format("{:.4g}", row.VariancePerSecond().value)}});
  }
  return HtmlTable("",
                   {"estimator", "type", "window", "exact", "inner steps", "seconds", "bias",
                    "cosine", "variance", "per 1,000 steps", "per second"},
                   rows, 4);
}

// A curve over windows for each estimator of one task.
Figure OverWindows(const EstimatorBench& bench, const std::string& task, Figure figure,
                   const std::function<Measured(const EstimatorQuality&)>& of,
                   bool needs_reference) {
  figure.x_label = "window of the episode";
  int color = 0;
  for (const EstimatorQuality& row : bench.estimators) {
    if (row.task != task) continue;
    if (!row.window) {  // the last of an estimator
      ++color;
      continue;
    }
    if (needs_reference && row.reference == "none") continue;
    const std::string label = row.estimator + " " + row.type;
    if (figure.curves.empty() || figure.curves.back().label != label) {
      figure.curves.push_back({.label = label, .color = color, .style = Curve::Style::kPoints});
    }
    Curve& curve = figure.curves.back();
    const Measured measured = of(row);
    curve.x.push_back(static_cast<double>(*row.window));
    curve.y.push_back(measured.value);
    curve.low.push_back(measured.low);
    curve.high.push_back(measured.high);
  }
  return figure;
}

}  // namespace

void ReportEstimators(const std::vector<LabelledBench>& benches, ReportPage* page) {
  for (const auto& [label, bench] : benches) {
    page->Section("Estimators: " + label);
    page->AddParagraph(fmt::format(
        "Theta {}, {} runs of each estimator from fresh tasks. In brackets 95 % intervals. Bias is "
        "relative to the exact gradient; \"all\" is the mean over the windows of an episode.",
        bench.theta, bench.runs));
    page->AddHtml(QualityTable(bench));
    std::set<std::string> tasks;
    for (const EstimatorQuality& row : bench.estimators) tasks.insert(row.task);
    for (const std::string& task : tasks) {
      Figure variance = OverWindows(
          bench, task,
          {.title = "Variance at equal compute: " + task,
           .caption =
               "Of the mean of as many estimates as make 1,000 inner steps; lower is better.",
           .y_label = "variance per 1,000 inner steps"},
          [](const EstimatorQuality& row) { return row.VariancePer1000Steps(); }, false);
      if (!variance.curves.empty()) page->AddFigure(std::move(variance));
      Figure bias = OverWindows(
          bench, task,
          {.title = "Bias: " + task,
           .caption = "Length of the mean estimate's error as a part of the exact gradient's; a "
                      "band that touches 0 is no evidence of any.",
           .y_label = "relative bias",
           .from_zero = true,
           .linear = true},
          [](const EstimatorQuality& row) { return row.bias; }, true);
      if (!bias.curves.empty()) page->AddFigure(std::move(bias));
    }
  }
}

}  // namespace lopt
