#pragma once

#include <string>
#include <vector>

#include "lopt/evaluation/run_result.h"

namespace lopt {

// One line of results.jsonl: a JSON object with the members of RunResult by their names and
// "diverged", one true or false for each of `steps`. Floats are written so that they read back
// exactly; one that is not finite as the text "nan", "inf" or "-inf"; a step that was never reached
// as null.
std::string ResultLine(const RunResult& result);

struct Results {
  std::vector<RunResult> runs = {};
  // What could not be read, for people: a last line that was cut off. Empty if all was well.
  std::string damage = {};
};

// Reads a results.jsonl. A last line that is not complete is left out and told in `damage`; any
// other line that cannot be read is an Error with the file, the line number and the reason.
Results ReadResults(const std::string& path);

}  // namespace lopt
