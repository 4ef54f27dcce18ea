#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lopt/learner/run/run_directory.h"
#include "lopt/tools/report/files.h"
#include "lopt/tools/report/page.h"

namespace lopt {

// What a run has left in its directory, as far as it can be read.
struct RunRecord {
  std::string path = {};
  std::string label = {};  // in legends
  std::optional<RunManifest> manifest = {};
  std::string config = {};  // text; empty if it is missing
  MetricsFile metrics = {};
  MetricsFile throughput = {};
  std::vector<std::string> damage = {};  // of all files
};

RunRecord ReadRun(const std::string& path, const std::string& label);

// What a kind of runs is called in a report.
struct RunWords {
  const char* command;                // "meta-train"
  const char* updates;                // "updates of theta"
  const char* rate;                   // title of their rate: "Updates of theta"
  const char* result;                 // what a config and a seed determine: "theta"
  const char* loss;                   // the metric of an update
  const char* last_loss;              // "last meta-loss"
  std::vector<const char*> held_out;  // metrics by which the result is judged: the first there is
  const char* inner_steps;            // title of their rate; null: they are the updates
};

// Parts of sections about runs, side by side: what is wrong or not finished; whether each has
// become better, in a sentence; a table of what each was; how fast; the configs.
void AddRunNotices(const std::vector<RunRecord>& runs, ReportPage* page);
void AddRunVerdicts(const std::vector<RunRecord>& runs, const RunWords& words, ReportPage* page);
void AddRunTable(const std::vector<RunRecord>& runs, const RunWords& words, ReportPage* page);
void AddThroughput(const std::vector<RunRecord>& runs, const RunWords& words, ReportPage* page);
void AddReproduction(const std::vector<RunRecord>& runs, const RunWords& words, ReportPage* page);

// Sections about meta-training runs, side by side: what each was, and plots with a curve for each
// of them.
void ReportRuns(const std::vector<RunRecord>& runs, ReportPage* page);

}  // namespace lopt
