#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lopt/evaluation/summary.h"

namespace lopt {

// The optimizers of an evaluation beside each other.
struct OptimizerComparison {
  struct Row {
    std::string optimizer = {};  // its name
    bool learned = false;
    bool tuned = false;                   // whether something was tuned for the tasks
    std::vector<std::string> cells = {};  // of the columns after the first
    // The mean or the only test loss as a fraction of the unit's; the interval is NaN where it is
    // not known, and without width of the unit itself. None without a unit.
    std::optional<Estimate> ratio = {};
  };

  std::string caption = {};              // what the numbers are, without an end
  std::vector<std::string> header = {};  // the first is the optimizer
  std::vector<Row> rows = {};            // the best first
  std::string legend = {};               // what the columns are, without an end; may be empty
  std::string unit = {};                 // whose losses ratios are fractions of; empty: none
};

// The rows and columns of NarrowTable. Empty without results.
OptimizerComparison CompareOptimizers(const Summary& summary);

// One row for each optimizer, the best first, and what the columns are, in lines of at most
// `columns` characters, as PlainTable makes them. Where some optimizers are tuned and others are
// not, each of the two groups has a table with its name above it. Rows of learned optimizers begin
// with ">". Of one task and number of steps tables have test losses; of several, their means as
// fractions of the best baseline's, or of tuned Adam's where fewer than two baselines are tuned, or
// of the lowest where Adam is not there either. Intervals and verdicts are the summary's: there are
// none where an optimizer has fewer than kIntervalSeeds or kVerdictSeeds seeds.
std::string NarrowTable(const Summary& summary, int columns);

// A sentence, in one line without its end: whether the best learned optimizer is ahead of the best
// baseline (or tuned Adam, as above), on how many tasks, and whether that is beyond chance; of
// fewer than kVerdictSeeds seeds that these are too few.
std::string VerdictSentence(const Summary& summary);

}  // namespace lopt
