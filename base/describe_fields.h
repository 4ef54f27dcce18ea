#pragma once

#include <string>

#include "lopt/base/options.h"

namespace lopt {

// Markdown: a table row per field with name, kind, default, valid values and meaning. Used by `lopt
// describe` and docs/config.md.
std::string DescribeFields(const VisitFields& fields);

}  // namespace lopt
