#pragma once

#include <string>

#include "lopt/evaluation/summary.h"

namespace lopt {

// One row for each optimizer, the best first, and what the columns are, in lines of at most
// `columns` characters if that is 80 or more; names that are too long lose their middle. Rows of
// learned optimizers begin with ">". Of one task and number of steps the table has test losses; of
// several, their means as fractions of the best baseline's, or of tuned Adam's where fewer than two
// baselines are tuned, or of the lowest where Adam is not there either. Intervals and verdicts are
// the summary's; there are none where an optimizer has fewer than kVerdictSeeds seeds.
std::string NarrowTable(const Summary& summary, int columns);

// A sentence, in one line without its end: whether the best learned optimizer is ahead of the best
// baseline (or tuned Adam, as above), on how many tasks, and whether that is beyond chance.
std::string VerdictSentence(const Summary& summary);

}  // namespace lopt
