#include "lopt/learner/frozen.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "lopt/base/error.h"

namespace lopt {
namespace {

std::regex ParsePattern(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    Fail("frozen: '{}' is not a regular expression: {}", pattern, error.what());
  }
}

}  // namespace

std::vector<LayoutEntry> FrozenTensors(const Layout& theta,
                                       const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const LayoutEntry& entry : theta.entries()) names.push_back(entry.name);
  std::vector<bool> frozen(names.size());
  for (const std::string& pattern : patterns) {
    const std::regex regex = ParsePattern(pattern);
    bool any = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (std::regex_match(names[i], regex)) any = frozen[i] = true;
    }
    Require(any, "frozen: no tensor of theta has a name that '{}' matches; the names are: {}",
            pattern, fmt::join(names, ", "));
  }
  std::vector<LayoutEntry> found;
  for (size_t i = 0; i < names.size(); ++i) {
    if (frozen[i]) found.push_back(theta.entries()[i]);
  }
  Require(found.size() < names.size(),
          "frozen: '{}' match all tensors of theta, so that there is nothing to train; the names "
          "are: {}",
          fmt::join(patterns, "', '"), fmt::join(names, ", "));
  return found;
}

}  // namespace lopt
