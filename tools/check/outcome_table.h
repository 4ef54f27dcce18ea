#pragma once

#include <string>
#include <vector>

#include "lopt/base/check.h"

namespace lopt {

// What came of the checks of one thing.
struct CheckedThing {
  std::string name;    // "task QuadraticTask"
  std::string config;  // on one line; empty: not shown
  std::vector<checks::CheckOutcome> outcomes;
};

struct OutcomeCounts {
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t left_out = 0;
  OutcomeCounts& operator+=(const OutcomeCounts& other);
};
OutcomeCounts Count(const std::vector<checks::CheckOutcome>& outcomes);

// Text of at most 80 columns: a line for each check that passed, with what it measured; of one that
// failed what was found, the promise and the header that states it.
std::string OutcomeTable(const CheckedThing& thing);

// The names, promises and headers of some checks.
struct ListedCheck {
  std::string name;
  std::string promise;
  std::string header;
};
std::string CheckList(const std::string& title, const std::vector<ListedCheck>& checks);

}  // namespace lopt
