#include "lopt/tools/report/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/evaluation/narrow_table.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/evaluation/summary.h"
#include "lopt/evaluation/tables.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/report/evaluation_figures.h"
#include "lopt/tools/report/evaluation_tables.h"
#include "lopt/tools/report/files.h"
#include "lopt/tools/report/html.h"

namespace lopt {

namespace {

using Evaluations = std::vector<EvaluationRecord>;

// What has happened to the evaluations, where that is more than that they are finished. Returns
// whether there are any results.
bool AddNotices(const Evaluations& evaluations, ReportPage* page) {
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
  return any;
}

// Who is ahead: in a sentence, a table and a picture.
void AddVerdicts(const Evaluations& evaluations, const std::vector<ComparedSummary>& summaries,
                 ReportPage* page) {
  for (size_t e = 0; e < evaluations.size(); ++e) {
    if (evaluations.size() > 1) page->Subsection(evaluations[e].label);
    if (evaluations[e].results.empty()) continue;
    page->AddVerdict(VerdictSentence(summaries[e].summary));
    page->AddHtml("<div class=\"beside\">\n");
    AddComparison(summaries[e].comparison, page);
    if (auto forest = ForestOf(summaries[e])) page->AddFigure(std::move(*forest));
    page->AddHtml("</div>\n");
  }
}

// The figures of tasks, and where several are, a table of their ratios before.
void AddTasks(const Evaluations& evaluations, const std::vector<ComparedSummary>& summaries,
              const Looks& looks, ReportPage* page) {
  page->Subsection("By task");
  for (size_t e = 0; e < evaluations.size(); ++e) {
    AddRatios(summaries[e], looks.shown(), evaluations.size() == 1 ? "" : evaluations[e].label,
              page);
  }
  AddTaskFigures(evaluations, summaries, looks, page);
}

void AddAllFigures(const Evaluations& evaluations, const std::vector<ComparedSummary>& summaries,
                   ReportPage* page) {
  page->Subsection("All figures");
  page->AddParagraph(
      fmt::format(
          "Interquartile means over the seeds, with 95 % bootstrap intervals (from {} seeds on). "
          "Better and worse, from {} seeds on, than Adam with its tuned learning rate: the 95 % "
          "interval of the difference, with the same seeds and examples, does not hold 0. Of the "
          "best baseline of a task, the one with the lowest loss on inner_valid, the same; over "
          "all tasks after Holm's correction for their number. ",
          kIntervalSeeds, kVerdictSeeds) +
      "Fractions "
      "of its test loss are also in the geometric mean over the tasks that a meta-training has "
      "trained on, and over the others (transfer), with the number of these; the speed-up is the "
      "interquartile mean over all tasks. A diverged training counts as an infinite loss; one that "
      "blew up ends with train losses of more than 5 times the best that it had. " +
      LossesNote());
  page->AddParagraph(
      "Learned optimizers are bold, with + where their meta-training has trained on the task; "
      "those "
      "with a number after \"steps\" have their steps multiplied by it, tuned as the learning "
      "rates "
      "of baselines are. What is marked (edge) is the smallest or largest that was tried. Seconds "
      "are those of one training.");
  for (size_t e = 0; e < evaluations.size(); ++e) {
    if (evaluations.size() > 1) page->Subsection(evaluations[e].label + ": all figures");
    AddAggregate(summaries[e], page);
    AddTaskTables(summaries[e].summary, page);
  }
}

void EvaluationOverview(const Evaluations& evaluations, ReportPage* page) {
  page->Subsection(evaluations.size() == 1 ? "The evaluation" : "The evaluations");
  std::vector<std::string> header = {""};
  for (const EvaluationRecord& evaluation : evaluations) {
    header.push_back(EscapeHtml(evaluation.label));
  }
  std::vector<HtmlRow> rows;
  const auto row = [&](const std::string& name,
                       const std::function<std::string(const EvaluationRecord&)>& value) {
    std::vector<std::string> cells = {EscapeHtml(name)};
    bool any = false;
    for (const EvaluationRecord& evaluation : evaluations) {
      const std::string text = value(evaluation);
      any = any || !text.empty();
      cells.push_back(EscapeHtml(text));
    }
    if (any) rows.push_back({.cells = std::move(cells)});
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
  page->AddHtml(HtmlTable("", header, rows, header.size()));
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

// The seeds of a config; none where it does not say.
std::optional<int64_t> SeedsOf(const EvaluationRecord& evaluation) {
  if (evaluation.config.empty()) return std::nullopt;
  try {
    const Config config = Config::Parse(evaluation.config, evaluation.path + "/config.json");
    const auto seeds = config.json().find("seeds");
    if (seeds == config.json().end() || !seeds->is_number_integer()) return std::nullopt;
    return seeds->get<int64_t>();
  } catch (const Error&) {
    return std::nullopt;  // the page shows the config as it is
  }
}

// Drops the results of the last task unless each optimizer of the manifest has all seeds: an
// evaluation that died while it wrote them goes on before them, too.
void DropUnfinishedTask(EvaluationRecord* evaluation) {
  const std::optional<int64_t> seeds = SeedsOf(*evaluation);
  if (evaluation->results.empty() || !evaluation->manifest || !seeds) return;
  const std::string task = evaluation->results.back().task;
  for (const OptimizerInfo& optimizer : evaluation->manifest->optimizers) {
    const int64_t there = std::ranges::count_if(evaluation->results, [&](const RunResult& run) {
      return run.task == task && run.optimizer == optimizer.name;
    });
    if (there >= *seeds) continue;
    evaluation->damage.push_back(fmt::format(
        "{}/results.jsonl: the last task, {}, has {} of {} results of {}; it is left out",
        evaluation->path, task, there, *seeds, optimizer.name));
    std::erase_if(evaluation->results, [&](const RunResult& run) { return run.task == task; });
    return;
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
  DropUnfinishedTask(&evaluation);
  return evaluation;
}

std::vector<std::string> Distinct(const Evaluations& evaluations, std::string RunResult::*member) {
  std::vector<std::string> names;
  for (const EvaluationRecord& evaluation : evaluations) {
    for (const RunResult& run : evaluation.results) {
      if (std::ranges::find(names, run.*member) == names.end()) names.push_back(run.*member);
    }
  }
  return names;
}

void ReportEvaluations(const Evaluations& evaluations, ReportPage* page) {
  page->Section(evaluations.size() == 1 ? "Evaluation: " + evaluations[0].label : "Evaluations");
  if (AddNotices(evaluations, page)) {
    std::vector<ComparedSummary> summaries;
    for (const EvaluationRecord& evaluation : evaluations) {
      summaries.emplace_back(Summarize(evaluation.results, evaluation.manifest
                                                               ? evaluation.manifest->optimizers
                                                               : std::vector<OptimizerInfo>()));
    }
    const Looks looks(summaries);
    AddVerdicts(evaluations, summaries, page);
    AddTasks(evaluations, summaries, looks, page);
    AddProfiles(evaluations, summaries, looks, page);
    AddAllFigures(evaluations, summaries, page);
  }
  EvaluationOverview(evaluations, page);
  ReproduceEvaluation(evaluations, page);
}

}  // namespace lopt
