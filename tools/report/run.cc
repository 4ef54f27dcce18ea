#include "lopt/tools/report/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/estimators/diagnostic.h"
#include "lopt/learner/mean.h"
#include "lopt/learner/run/ledger.h"
#include "lopt/learner/run/update_metrics.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/report/curves.h"
#include "lopt/tools/report/html.h"
#include "lopt/tools/shell.h"

namespace lopt {

namespace {

using Runs = std::vector<RunRecord>;

constexpr size_t kHeatMapColumns = 80;
const RunWords kMetaTraining = {
    .command = "meta-train",
    .updates = "updates of theta",
    .rate = "Updates of theta",
    .result = "theta",
    .loss = "meta_loss",
    .last_loss = "last meta-loss",
    .held_out = {"eval_loss"},
    .inner_steps = "Inner steps, all estimators, both of a pair counted"};

const Series* Find(const RunRecord& run, const std::string& name) {
  const auto at = run.metrics.series.find(name);
  return at == run.metrics.series.end() ? nullptr : &at->second;
}

// The metric by which the result is judged, that of the newest record if there are several; empty
// without any.
std::string HeldOutMetric(const RunRecord& run, const RunWords& words) {
  std::string newest;
  double step = -1;
  for (const char* metric : words.held_out) {
    const Series* series = Find(run, metric);
    if (series == nullptr || series->step.back() <= step) continue;
    newest = metric;
    step = series->step.back();
  }
  return newest;
}

// " on test", where the metric is "loss/test".
std::string OfSplit(const std::string& metric) {
  const size_t slash = metric.rfind('/');
  return slash == std::string::npos ? "" : " on " + metric.substr(slash + 1);
}

std::optional<double> Last(const RunRecord& run, const std::string& name) {
  const Series* series = Find(run, name);
  if (series == nullptr) return std::nullopt;
  return series->value.back();
}

// What stands behind "<metric>/" in any run, e.g. the names of the estimators.
std::vector<std::string> NamesOf(const Runs& runs, const std::string& metric) {
  std::set<std::string> names;
  const std::string prefix = metric + "/";
  for (const RunRecord& run : runs) {
    for (auto at = run.metrics.series.lower_bound(prefix);
         at != run.metrics.series.end() && at->first.starts_with(prefix); ++at) {
      names.insert(at->first.substr(prefix.size()));
    }
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> Estimators(const Runs& runs) { return NamesOf(runs, "meta_loss"); }

// A diagnostic of a range of inner steps.
struct RangeMetric {
  StepRange steps = {};
  std::string range = {};  // "10-19"
  const Series* series = nullptr;
};

// The diagnostics of this name (estimators/diagnostics.h) of a run, in the order of the ranges.
std::vector<RangeMetric> RangeMetrics(const RunRecord& run, const std::string& name,
                                      const std::string& estimator) {
  std::vector<RangeMetric> found;
  const std::string suffix = "/" + estimator;
  for (auto at = run.metrics.series.lower_bound(name);
       at != run.metrics.series.end() && at->first.starts_with(name); ++at) {
    if (!at->first.ends_with(suffix)) continue;
    const Diagnostic diagnostic =
        DiagnosticOfMetric(std::string_view(at->first).substr(0, at->first.size() - suffix.size()));
    if (diagnostic.name != name || !diagnostic.steps) continue;
    found.push_back({.steps = *diagnostic.steps,
                     .range = fmt::format("{}-{}", diagnostic.steps->first, diagnostic.steps->last),
                     .series = &at->second});
  }
  std::ranges::sort(found, {}, &RangeMetric::steps);
  return found;
}

// The same metric of several runs in one figure; of one run, that of several estimators.
void AddMetric(const Runs& runs, const std::string& metric, const std::string& title,
               const std::string& y_label, const std::string& caption,
               std::optional<double> reference, bool as_they_are, ReportPage* page) {
  const std::vector<std::string> names = NamesOf(runs, metric);
  const auto figure = [&](const std::string& of) {
    return Figure{.title = of.empty() ? title : title + ", " + of,
                  .caption = caption,
                  .y_label = y_label,
                  .reference = reference};
  };
  if (runs.size() == 1) {
    std::vector<NamedSeries> all;
    for (size_t i = 0; i < names.size(); ++i) {
      all.push_back({.label = names[i],
                     .series = Find(runs[0], metric + "/" + names[i]),
                     .color = static_cast<int>(i)});
    }
    if (names.size() != 1) {
      all.push_back({.label = "all estimators",
                     .series = Find(runs[0], metric),
                     .color = static_cast<int>(names.size())});
    }
    const bool any = std::ranges::any_of(all, [](const auto& s) { return s.series != nullptr; });
    if (any) page->AddFigure(SeriesFigure(figure(""), all, as_they_are));
    return;
  }
  for (const std::string& name : names) {
    std::vector<NamedSeries> all;
    for (size_t r = 0; r < runs.size(); ++r) {
      all.push_back({.label = runs[r].label,
                     .series = Find(runs[r], metric + "/" + name),
                     .color = static_cast<int>(r)});
    }
    page->AddFigure(SeriesFigure(figure(name), all, as_they_are));
  }
  if (!names.empty()) return;
  std::vector<NamedSeries> all;  // of a metric that is not an estimator's
  for (size_t r = 0; r < runs.size(); ++r) {
    all.push_back(
        {.label = runs[r].label, .series = Find(runs[r], metric), .color = static_cast<int>(r)});
  }
  const bool any = std::ranges::any_of(all, [](const auto& s) { return s.series != nullptr; });
  if (any) page->AddFigure(SeriesFigure(figure(""), all, as_they_are));
}

// --- Sections -----------------------------------------------------------------------------------

std::string StatusText(const RunRecord& run) {
  const std::string status = ManifestText(run.manifest, &RunManifest::status);
  return status.empty() ? "unknown (no manifest.json)" : status;
}

std::string ReproduceCommand(const RunRecord& run, const RunWords& words) {
  std::string command =
      fmt::format("lopt {} {} --out {}", words.command, ShellQuoted(run.path + "/config.json"),
                  ShellQuoted(run.path + "-again"));
  if (const std::string isa = ManifestText(run.manifest, &RunManifest::isa); !isa.empty())
    command += " --isa " + isa;
  return command;
}

double RunSeconds(const RunRecord& run) {
  const auto at = run.throughput.series.find("seconds");
  return at == run.throughput.series.end() ? std::numeric_limits<double>::quiet_NaN()
                                           : at->second.value.back();
}

std::string Shown(std::optional<double> value) {
  return value ? fmt::format("{:.4g}", *value) : "";
}

void MetaLoss(const Runs& runs, ReportPage* page) {
  page->Subsection("Meta-loss");
  const std::vector<std::string> estimators = Estimators(runs);
  for (size_t e = 0; e < estimators.size(); ++e) {
    std::vector<NamedSeries> all;
    for (size_t r = 0; r < runs.size(); ++r) {
      all.push_back({.label = runs[r].label,
                     .series = Find(runs[r], "meta_loss/" + estimators[e]),
                     .color = static_cast<int>(runs.size() == 1 ? e : r)});
    }
    page->AddFigure(SeriesFigure({.title = "Meta-loss, " + estimators[e],
                                  .caption = "Mean loss over the tasks, inner steps and pairs of "
                                             "each update.",
                                  .y_label = "meta-loss"},
                                 all));
  }
}

void HeldOut(const Runs& runs, ReportPage* page) {
  const std::vector<std::string> tasks = NamesOf(runs, "eval_valid_loss");
  const bool any =
      std::ranges::any_of(runs, [](const RunRecord& run) { return Find(run, "eval_loss"); });
  if (!any) return;
  page->Subsection("Held-out evaluation");
  std::vector<NamedSeries> ratios;
  for (size_t r = 0; r < runs.size(); ++r) {
    ratios.push_back({.label = runs.size() == 1 ? "mean of the tasks" : runs[r].label,
                      .series = Find(runs[r], "eval_loss"),
                      .color = static_cast<int>(r)});
  }
  for (size_t t = 0; runs.size() == 1 && tasks.size() > 1 && t < tasks.size(); ++t) {
    ratios.push_back({.label = tasks[t],
                      .series = Find(runs[0], "eval_ratio/" + tasks[t]),
                      .color = static_cast<int>(t + 1),
                      .dash = 1});
  }
  page->AddFigure(SeriesFigure(
      {.title = "Held-out loss (eval_loss)",
       .caption =
           "Theta judged on fixed tasks and seeds that it is not trained on: the loss on the "
           "split outer_valid after training as a fraction of the first batch's loss, mean "
           "over the tasks.",
       .y_label = "fraction of the first loss"},
      ratios, true));
  for (const std::string& task : tasks) {
    std::vector<NamedSeries> all;
    for (size_t r = 0; r < runs.size(); ++r) {
      const std::string prefix = runs.size() == 1 ? "" : runs[r].label + ": ";
      all.push_back({.label = prefix + "outer_valid",
                     .series = Find(runs[r], "eval_valid_loss/" + task),
                     .color = static_cast<int>(r)});
      all.push_back({.label = prefix + "train",
                     .series = Find(runs[r], "eval_train_loss/" + task),
                     .color = static_cast<int>(r),
                     .dash = 1});
    }
    page->AddFigure(SeriesFigure(
        {.title = "Held-out losses, " + task,
         .caption = "After training a held-out task: on the whole split outer_valid, and of the "
                    "last batches.",
         .y_label = "loss"},
        all, true));
  }
}

void LossDifferences(const Runs& runs, ReportPage* page) {
  for (const std::string& estimator : NamesOf(runs, "loss_difference")) {
    std::vector<NamedSeries> all;
    for (size_t r = 0; r < runs.size(); ++r) {
      const std::string prefix = runs.size() == 1 ? "" : runs[r].label + ": ";
      all.push_back({.label = prefix + "difference",
                     .series = Find(runs[r], "loss_difference/" + estimator),
                     .color = static_cast<int>(r)});
      all.push_back({.label = prefix + "float32 resolution",
                     .series = Find(runs[r], "loss_resolution/" + estimator),
                     .color = static_cast<int>(r),
                     .dash = 1});
    }
    page->AddFigure(SeriesFigure(
        {.title = "Loss difference of the pairs, " + estimator,
         .caption = "Root mean square of loss+ - loss-, and what float32 resolves at the size of "
                    "the losses. Where the difference is less than about 100 times the resolution, "
                    "rounding is part of the gradient: std is too small.",
         .y_label = "loss"},
        all));
  }
}

void FeltNorms(const Runs& runs, ReportPage* page) {
  for (const RunRecord& run : runs) {
    for (const std::string& estimator : Estimators(runs)) {
      const std::vector<RangeMetric> ranges = RangeMetrics(run, "accumulator_norm", estimator);
      std::vector<NamedSeries> all;
      for (size_t i = 0; i < ranges.size(); ++i) {
        all.push_back({.label = "inner steps " + ranges[i].range,
                       .series = ranges[i].series,
                       .color = static_cast<int>(i)});
      }
      if (all.empty()) continue;
      const std::string of = runs.size() == 1 ? estimator : estimator + ", " + run.label;
      page->AddFigure(SeriesFigure(
          {.title = "PES accumulator by episode age, " + of,
           .caption = "Mean norm of the summed perturbations of episodes of an age before the "
                      "window. It grows as std times the square root of (numbers in theta x "
                      "windows); the noise of the gradient grows with it.",
           .y_label = "norm",
           .ordered = true,
           .linear = true},
          all));
    }
  }
}

void LossByInnerStep(const Runs& runs, ReportPage* page) {
  for (const RunRecord& run : runs) {
    for (const std::string& estimator : Estimators(runs)) {
      const std::vector<RangeMetric> ranges = RangeMetrics(run, "loss_at", estimator);
      const Series* updates = Find(run, "meta_loss/" + estimator);
      if (ranges.empty() || updates == nullptr) continue;
      const double first = updates->step.front();
      const double last = updates->step.back() + 1;
      const size_t columns = std::min(kHeatMapColumns, updates->step.size());
      HeatMap map{.label = "mean loss"};
      for (size_t c = 0; c <= columns; ++c) {
        map.x_edges.push_back(first + (last - first) * static_cast<double>(c) /
                                          static_cast<double>(columns));
      }
      for (const RangeMetric& range : ranges) {
        std::vector<MeanOfNumbers> means(columns);
        for (size_t i = 0; i < range.series->step.size(); ++i) {
          const double part = (range.series->step[i] - first) / (last - first);
          const auto column =
              static_cast<size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(columns));
          if (std::isfinite(range.series->value[i])) {
            means[std::min(column, columns - 1)].Add(range.series->value[i]);
          }
        }
        std::vector<double>& row = map.values.emplace_back();
        for (const MeanOfNumbers& mean : means) row.push_back(mean.Get());
        map.rows.push_back(range.range);
      }
      const std::string of = runs.size() == 1 ? estimator : estimator + ", " + run.label;
      page->AddFigure({.title = "Loss by inner step, " + of,
                       .caption = fmt::format("Mean loss of the inner steps of a range; each cell "
                                              "is the mean over 1/{} of the updates.",
                                              columns),
                       .x_label = kMetaTraining.updates,
                       .y_label = "inner step",
                       .heat_map = std::move(map)});
    }
  }
}

void Gradient(const Runs& runs, ReportPage* page) {
  page->Subsection("Gradient");
  AddMetric(runs, "gradient_norm", "Gradient norm", "norm",
            "Euclidean norm of the estimated gradient, before clipping.", std::nullopt, false,
            page);
  AddMetric(runs, "gradient_snr", "Signal-to-noise ratio of the gradient", "ratio",
            "|mean|^2 of the antithetic pairs' gradients over the variance of that mean, summed "
            "over theta. Noise alone gives 1 (the thin line), so what counts is what is above it.",
            1.0, false, page);
  LossDifferences(runs, page);
  const bool scheduled = std::ranges::any_of(runs, [](const RunRecord& run) {
    const Series* rate = Find(run, "learning_rate");
    return rate != nullptr && std::ranges::min(rate->value) < std::ranges::max(rate->value);
  });
  if (scheduled) {
    AddMetric(runs, "learning_rate", "Learning rate", "learning rate", "", std::nullopt, true,
              page);
  }
}

void NonFinite(const Runs& runs, ReportPage* page) {
  page->Subsection("Losses that are not finite");
  bool any = false;
  for (const RunRecord& run : runs) {
    const double skipped = Last(run, "skipped_updates").value_or(0);
    if (skipped > 0) {
      any = true;
      page->AddParagraph(
          fmt::format("{}: {:.0f} updates were skipped because their gradient was "
                      "not finite.",
                      run.label, skipped));
    }
    for (const std::string& name : NamesOf({run}, "non_finite")) {
      any = any || Last(run, "non_finite/" + name).value_or(0) > 0;
    }
  }
  if (any) {
    AddMetric(runs, "non_finite", "Inner steps with a loss that was not finite", "inner steps",
              "Counted from the start of the run.", std::nullopt, true, page);
  } else {
    page->AddParagraph("All losses were finite and no update was skipped.");
  }
}

void LedgerOf(const Runs& runs, ReportPage* page) {
  page->Subsection("Ledger");
  page->AddParagraph(
      "What became of all inner steps, both of a pair counted, up to the last record: used in an "
      "update, of weights that were too old, too late for their update, lost with a process, or "
      "not finite.");
  std::vector<std::string> header = {"run", "estimator or worker"};
  for (const auto& [outcome, name] : kOutcomes) header.emplace_back(name);
  std::vector<HtmlRow> rows;
  for (const RunRecord& run : runs) {
    for (const std::string& of : NamesOf({run}, OutcomeMetric(Outcome::kUsed))) {
      std::vector<std::string> row = {EscapeHtml(run.label), EscapeHtml(of)};
      const auto steps_of = [&](Outcome outcome) {
        return Last(run, OutcomeMetric(outcome) + "/" + of).value_or(0);
      };
      double total = 0;
      for (const auto& [outcome, name] : kOutcomes) total += steps_of(outcome);
      for (const auto& [outcome, name] : kOutcomes) {
        const double steps = steps_of(outcome);
        row.push_back(steps == 0 ? "0"
                                 : fmt::format("{} <span class=\"pale\">({:.3g} %)</span>",
                                               FormatCount(steps), 100 * steps / total));
      }
      rows.push_back({.cells = std::move(row)});
    }
  }
  page->AddHtml(HtmlTable("", header, rows, 2));
  AddMetric(runs, "acceptance", "Accepted part of the inner steps", "part",
            "Of the steps that came, those that were neither stale nor late.", std::nullopt, true,
            page);
}

}  // namespace

RunRecord ReadRun(const std::string& path, const std::string& label) {
  RunRecord run{.path = path, .label = label};
  run.manifest = ReadManifestFile<RunManifest>(path + "/manifest.json", &run.damage);
  if (!run.manifest && run.damage.empty()) {
    run.damage.push_back(path + "/manifest.json is missing: status, version and seed are unknown");
  }
  if (Exists(path + "/config.json")) {
    run.config = ReadTextFile(path + "/config.json");
  } else {
    run.damage.push_back(path + "/config.json is missing: how to reproduce the run is unknown");
  }
  run.metrics = ReadMetricsFile(path + "/metrics.jsonl");
  run.damage.insert(run.damage.end(), run.metrics.damage.begin(), run.metrics.damage.end());
  if (Exists(path + "/throughput.jsonl")) {
    run.throughput = ReadMetricsFile(path + "/throughput.jsonl");
    run.damage.insert(run.damage.end(), run.throughput.damage.begin(), run.throughput.damage.end());
  }
  return run;
}

void AddRunNotices(const Runs& runs, ReportPage* page) {
  for (const RunRecord& run : runs) {
    for (const std::string& damage : run.damage) page->AddNotice(damage);
    const std::string status = StatusText(run);
    if (status == "running" || status == "interrupted") {
      page->AddNotice(
          fmt::format("{}: the run is {}; this is what it has written so far.", run.label, status));
    } else if (status == "failed") {
      page->AddNotice(run.label +
                      ": the run failed: " + ManifestText(run.manifest, &RunManifest::error));
    }
    if (run.metrics.records == 0) {
      page->AddNotice(run.label + ": metrics.jsonl holds no record yet, so there is no plot.");
    }
  }
}

void AddRunVerdicts(const Runs& runs, const RunWords& words, ReportPage* page) {
  for (const RunRecord& run : runs) {
    const std::string whose = runs.size() == 1 ? "" : run.label + ": ";
    const std::string metric = HeldOutMetric(run, words);
    const Series* losses = Find(run, metric);
    if (losses == nullptr) {
      if (run.metrics.records == 0) continue;
      page->AddVerdict(whose +
                       "The run has no held-out losses (eval_every), so its own losses are "
                       "all that tells how it went.");
      continue;
    }
    const double first = losses->value.front();
    const double last = losses->value.back();
    const auto lowest = std::ranges::min_element(losses->value, {}, [](double loss) {
      return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
    });
    page->AddVerdict(fmt::format(
        "{}The held-out loss{} {} from {:.3g} to {:.3g}; the lowest is {:.3g}, after {:.0f} of "
        "{:.0f} "
        "updates.",
        whose, OfSplit(metric),
        last < first   ? "fell"
        : last > first ? "rose"
                       : "went",
        first, last, *lowest, losses->step[static_cast<size_t>(lowest - losses->value.begin())],
        losses->step.back()));
  }
}

void AddRunTable(const Runs& runs, const RunWords& words, ReportPage* page) {
  std::vector<std::string> header = {""};
  for (const RunRecord& run : runs) header.push_back(EscapeHtml(run.label));
  std::vector<HtmlRow> rows;
  const auto row = [&](const std::string& name,
                       const std::function<std::string(const RunRecord&)>& value) {
    std::vector<std::string> cells = {EscapeHtml(name)};
    bool any = false;
    for (const RunRecord& run : runs) {
      const std::string text = value(run);
      any = any || !text.empty();
      cells.push_back(EscapeHtml(text));
    }
    if (any) rows.push_back({.cells = std::move(cells)});
  };
  const auto from_manifest = [&](const char* name, auto member) {
    row(name, [member](const RunRecord& run) { return ManifestText(run.manifest, member); });
  };
  row("directory", [](const RunRecord& run) { return run.path; });
  row("status", StatusText);
  from_manifest("error", &RunManifest::error);
  row(words.updates, [&](const RunRecord& run) -> std::string {
    std::string updates = ManifestText(run.manifest, &RunManifest::updates);
    if (StatusText(run) != "running") return updates;
    const Series* loss = Find(run, words.loss);
    return loss == nullptr ? updates : fmt::format("{:.0f} so far", loss->step.back() + 1);
  });
  row(words.last_loss, [&](const RunRecord& run) { return Shown(Last(run, words.loss)); });
  row("last held-out loss", [&](const RunRecord& run) {
    const std::string metric = HeldOutMetric(run, words);
    const std::string loss = Shown(Last(run, metric));
    return loss.empty() ? loss : loss + OfSplit(metric);
  });
  row("time", [](const RunRecord& run) -> std::string {
    const double seconds = RunSeconds(run);
    return std::isfinite(seconds) ? FormatDuration(seconds) : "";
  });
  from_manifest("seed", &RunManifest::seed);
  from_manifest("threads", &RunManifest::threads);
  from_manifest("instruction set", &RunManifest::isa);
  from_manifest("device", &RunManifest::device);
  from_manifest("version", &RunManifest::version);
  page->AddHtml(HtmlTable("", header, rows, header.size()));
}

void AddThroughput(const Runs& runs, const RunWords& words, ReportPage* page) {
  page->Subsection("Throughput");
  const auto add = [&](const char* metric, const char* title, const char* y_label) {
    std::vector<NamedSeries> all;
    for (size_t r = 0; r < runs.size(); ++r) {
      const auto at = runs[r].throughput.series.find(metric);
      if (at == runs[r].throughput.series.end()) continue;
      all.push_back({.label = runs[r].label, .series = &at->second, .color = static_cast<int>(r)});
    }
    if (all.empty()) return false;
    page->AddFigure(SeriesFigure(
        {.title = title, .x_label = words.updates, .y_label = y_label, .from_zero = true}, all));
    return true;
  };
  if (!add("updates_per_second", words.rate, "updates / s")) {
    page->AddParagraph("There is no throughput.jsonl with records.");
    return;
  }
  if (words.inner_steps != nullptr) {
    add("inner_steps_per_second", words.inner_steps, "inner steps / s");
  }
}

void AddReproduction(const Runs& runs, const RunWords& words, ReportPage* page) {
  page->Subsection("Config, and how to reproduce");
  page->AddParagraph(fmt::format(
      "The same config and seed give the same {}, bit for bit, for any number of threads and "
      "processes, on the same version, instruction set and device (modes with deadlines or "
      "staleness excepted).",
      words.result));
  for (const RunRecord& run : runs) {
    if (run.config.empty()) continue;
    page->AddHtml("<pre>" + EscapeHtml(ReproduceCommand(run, words)) + "</pre>\n");
    page->AddDetails("config.json of " + run.label, run.config);
  }
}

void ReportRuns(const Runs& runs, ReportPage* page) {
  page->Section(runs.size() == 1 ? "Meta-training: " + runs[0].label : "Meta-training");
  AddRunNotices(runs, page);
  AddRunVerdicts(runs, kMetaTraining, page);
  AddRunTable(runs, kMetaTraining, page);
  const bool records =
      std::ranges::any_of(runs, [](const RunRecord& run) { return run.metrics.records > 0; });
  if (records) {
    MetaLoss(runs, page);
    HeldOut(runs, page);
    Gradient(runs, page);
    page->Subsection("Inner training");
    LossByInnerStep(runs, page);
    FeltNorms(runs, page);
    NonFinite(runs, page);
    LedgerOf(runs, page);
    AddThroughput(runs, kMetaTraining, page);
  }
  AddReproduction(runs, kMetaTraining, page);
}

}  // namespace lopt
