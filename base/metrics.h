#pragma once

#include <map>
#include <string>

namespace lopt {

// Named numbers of one step: "loss/0/quadratic". Sorted by name.
using Metrics = std::map<std::string, double>;

}  // namespace lopt
