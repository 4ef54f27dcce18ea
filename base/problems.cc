#include "lopt/base/problems.h"

#include <utility>

#include "lopt/base/error.h"

namespace lopt {

void Problems::Add(std::string problem) { problems_.push_back(std::move(problem)); }

void Problems::ThrowIfAny() const {
  if (problems_.empty()) {
    return;
  }
  if (problems_.size() == 1) {
    Fail("{}: {}", who_, problems_[0]);
  }
  std::string lines;
  for (const std::string& problem : problems_) {
    lines += "\n  " + problem;
  }
  Fail("{}: {} problems{}", who_, problems_.size(), lines);
}

}  // namespace lopt
