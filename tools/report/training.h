#pragma once

#include <vector>

#include "lopt/tools/report/page.h"
#include "lopt/tools/report/run.h"

namespace lopt {

// Whether what has left this record is a training of one model (lopt train).
bool IsTraining(const RunRecord& run);

// Sections about trainings, side by side: what each was, and plots with a curve for each of them.
void ReportTrainings(const std::vector<RunRecord>& runs, ReportPage* page);

}  // namespace lopt
