#pragma once

#include <optional>
#include <string>
#include <vector>

#include "learner/run/run_directory.h"
#include "tools/report/files.h"
#include "tools/report/page.h"

namespace lopt {

// What a meta-training run has left in its directory, as far as it can be read.
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

// Sections about runs, side by side: what each was, and plots with a curve for each of them.
void ReportRuns(const std::vector<RunRecord>& runs, ReportPage* page);

}  // namespace lopt
