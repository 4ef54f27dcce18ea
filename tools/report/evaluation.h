#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lopt/evaluation/evaluation_directory.h"
#include "lopt/evaluation/run_result.h"
#include "lopt/tools/report/page.h"

namespace lopt {

// What an evaluation has left in its directory.
struct EvaluationRecord {
  std::string path = {};
  std::string label = {};  // in legends
  std::optional<EvaluationManifest> manifest = {};
  std::string config = {};  // text; empty if it is missing
  std::vector<RunResult> results = {};
  std::vector<std::string> damage = {};
};

// A last task that was not written whole is left out, with a line of `damage`. Throws Error as
// ReadResults does.
EvaluationRecord ReadEvaluation(const std::string& path, const std::string& label);

// The distinct values of a member over all results, in their order.
std::vector<std::string> Distinct(const std::vector<EvaluationRecord>& evaluations,
                                  std::string RunResult::*member);

// Sections about evaluations, side by side: who is ahead in each, learning curves with all
// optimizers of all of them, and the tables of each.
void ReportEvaluations(const std::vector<EvaluationRecord>& evaluations, ReportPage* page);

}  // namespace lopt
