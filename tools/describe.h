#pragma once

#include <string>

namespace lopt {

// The text of docs/config.md: every key of a config and every type that it may name, with kinds,
// defaults, valid values and meanings, from the tables that read the config.
std::string DescribeEverything();

// The section of one type. Throws Error that lists the types if there is none of this name.
std::string DescribeTypeNamed(const std::string& name);

}  // namespace lopt
