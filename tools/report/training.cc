#include "lopt/tools/report/training.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/train/training.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tools/report/curves.h"

namespace lopt {
namespace {

using Trainings = std::vector<RunRecord>;

const RunWords kTraining = {.command = "train",
                            .updates = "updates of the params",
                            .rate = "Updates of the params",
                            .result = "params",
                            .loss = "loss/train",
                            .last_loss = "last batch's loss",
                            .held_out = {"loss/outer_valid", "loss/inner_valid", "loss/test"},
                            .inner_steps = nullptr};

// What quantities are of: batches, and all of a split.
std::vector<std::string> Kinds() {
  std::vector<std::string> kinds;
  for (const auto& [split, name] : kSplitNames) kinds.emplace_back(name);
  kinds.emplace_back(kWholeTrain);
  return kinds;
}

// "accuracy" of "accuracy/outer_valid"; empty unless the part behind it is one of Kinds.
std::string QuantityOf(const std::string& metric) {
  const size_t slash = metric.rfind('/');
  if (slash == std::string::npos) return "";
  for (const std::string& name : Kinds()) {
    if (metric.substr(slash + 1) == name) return metric.substr(0, slash);
  }
  return "";
}

// A quantity of all trainings, on each split that it was measured on.
void AddQuantity(const Trainings& runs, const std::string& quantity, ReportPage* page) {
  std::vector<NamedSeries> all;
  for (size_t r = 0; r < runs.size(); ++r) {
    int dash = 0;
    for (const std::string& name : Kinds()) {
      const auto at = runs[r].metrics.series.find(fmt::format("{}/{}", quantity, name));
      if (at == runs[r].metrics.series.end()) continue;
      all.push_back({.label = runs.size() == 1 ? name : runs[r].label + ": " + name,
                     .series = &at->second,
                     .color = static_cast<int>(r),
                     .dash = dash++,
                     .as_it_is = name != ToString(Split::kTrain)});  // of all of a split
    }
  }
  page->AddFigure(SeriesFigure({.title = "Training: " + quantity,
                                .caption = "Of each batch (train), and of all of a split where the "
                                           "model was judged on it.",
                                .x_label = kTraining.updates,
                                .y_label = quantity},
                               all));
}

}  // namespace

bool IsTraining(const RunRecord& run) {
  if (!run.metrics.series.empty()) return run.metrics.series.contains("loss/train");
  // Without records its files tell: the only task of its config, or a model.
  if (Exists(RunDirectory(run.path).ModelPath())) return true;
  try {
    return !run.config.empty() && Config::Parse(run.config, run.path).json().contains("task");
  } catch (const Error&) {
    return false;  // the page shows the config as it is
  }
}

void ReportTrainings(const Trainings& runs, ReportPage* page) {
  page->Section(runs.size() == 1 ? "Training: " + runs[0].label : "Trainings");
  AddRunNotices(runs, page);
  AddRunVerdicts(runs, kTraining, page);
  AddRunTable(runs, kTraining, page);
  std::set<std::string> quantities;
  for (const RunRecord& run : runs) {
    for (const auto& [metric, series] : run.metrics.series) quantities.insert(QuantityOf(metric));
  }
  quantities.erase("");
  for (const std::string& quantity : quantities) AddQuantity(runs, quantity, page);
  AddThroughput(runs, kTraining, page);
  AddReproduction(runs, kTraining, page);
}

}  // namespace lopt
