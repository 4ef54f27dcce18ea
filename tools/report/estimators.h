#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lopt/tools/bench/estimator_bench.h"
#include "lopt/tools/report/page.h"

namespace lopt {

// A bench of estimators, read from its directory, with its label in legends.
using LabelledBench = std::pair<std::string, EstimatorBench>;

// A section about each: the table, and of every task variance and bias over the windows of an
// episode.
void ReportEstimators(const std::vector<LabelledBench>& benches, ReportPage* page);

}  // namespace lopt
