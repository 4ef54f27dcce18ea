#pragma once

#include <string>
#include <vector>

namespace lopt {

// The text of docs/config.md: every key of a config and every type that it may name, with kinds,
// defaults, valid values and meanings, from the tables that read the config.
std::string DescribeEverything();

// The types that it names, each once.
std::vector<std::string> DescribedTypes();

// The section of one type, of each kind that has one of this name; of an optimizer also the keys
// that theta_opt adds. Throws Error that lists the types if there is none.
std::string DescribeTypeNamed(const std::string& name);

}  // namespace lopt
