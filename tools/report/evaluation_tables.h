#pragma once

#include <string>
#include <vector>

#include "lopt/evaluation/summary.h"
#include "lopt/tools/report/page.h"

namespace lopt {

// Tables of an evaluation, learned optimizers in bold, the best first.

// What `lopt eval` prints.
void AddComparison(const Summary& summary, ReportPage* page);

// Losses, verdicts and speed-ups over all tasks.
void AddAggregate(const Summary& summary, ReportPage* page);

// Test losses as fractions of the best baseline's (or tuned Adam's), a row for each task and number
// of steps and a column for each of the first of `optimizers`. Nothing of a single task.
void AddRatios(const Summary& summary, const std::vector<std::string>& optimizers,
               ReportPage* page);

// All figures of each task and number of steps.
void AddTaskTables(const Summary& summary, ReportPage* page);

}  // namespace lopt
