#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lopt/base/wrapped.h"
#include "lopt/tools/fit/fit_record.h"

namespace lopt {

// The name of what a fit made, in its comparison.
inline constexpr const char* kFitted = "fitted";

// An optimizer of the comparison with its test losses.
struct FitJudged {
  FitContender contender = {};         // name, trials and cost
  std::vector<double> test_loss = {};  // by seed; not finite: the training diverged

  // Infinite where a training diverged.
  double Mean() const;
};

// Whether to take what was fitted, and why.
struct FitVerdict {
  bool take = false;  // its loss is lower than that of the best of the others in every seed
  std::string text;   // a sentence or two
};

// `judged` without kFitted says that nothing better than the start was found. The best of the
// others is the one that diverged with the fewest seeds and, of these, has the lowest mean test
// loss with the others.
FitVerdict JudgeFit(const std::vector<FitJudged>& judged);

// One line for each, the best first, what was fitted marked, in lines of at most so many
// characters.
std::string FitTable(const std::vector<FitJudged>& judged, size_t columns = kTerminalColumns);

}  // namespace lopt
