#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lopt/evaluation/narrow_table.h"
#include "lopt/evaluation/summary.h"
#include "lopt/tools/report/page.h"

namespace lopt {

// What the tables and figures of an evaluation show.
struct ComparedSummary {
  // Compares the optimizers of the summary.
  explicit ComparedSummary(Summary of)
      : summary(std::move(of)), comparison(CompareOptimizers(summary)) {}

  Summary summary;
  OptimizerComparison comparison;
};

// Tables of an evaluation, learned optimizers in bold, the best first.

// What `lopt eval` prints.
void AddComparison(const OptimizerComparison& comparison, ReportPage* page);

// Losses, verdicts and speed-ups over all tasks.
void AddAggregate(const ComparedSummary& compared, ReportPage* page);

// Test losses as fractions of the best baseline's (or tuned Adam's), a row for each task and number
// of steps and a column for each of the first of `optimizers` that it has. Nothing of a single
// task. `label`: of the evaluation where there are several, else empty.
void AddRatios(const ComparedSummary& compared, const std::vector<std::string>& optimizers,
               const std::string& label, ReportPage* page);

// All figures of each task and number of steps.
void AddTaskTables(const Summary& summary, ReportPage* page);

}  // namespace lopt
