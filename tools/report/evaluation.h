#pragma once

#include <map>
#include <string>
#include <vector>

#include "evaluation/run_result.h"
#include "tools/report/page.h"

namespace lopt {

// What an evaluation has left in its directory.
struct EvaluationRecord {
  std::string path = {};
  std::string label = {};  // in legends
  std::map<std::string, std::string> manifest = {};
  std::string config = {};  // text; empty if it is missing
  std::vector<RunResult> results = {};
  std::vector<std::string> damage = {};
};

// Throws Error as ReadResults does.
EvaluationRecord ReadEvaluation(const std::string& path, const std::string& label);

// Sections about evaluations, side by side: learning curves with all optimizers of all of them, and
// the tables of each.
void ReportEvaluations(const std::vector<EvaluationRecord>& evaluations, ReportPage* page);

}  // namespace lopt
