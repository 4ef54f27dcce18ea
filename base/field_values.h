#pragma once

#include <string>
#include <string_view>

#include "lopt/base/fields.h"

namespace lopt {

bool Contains(const Range& range, long double value);

// "above 0", "at least 1", "in [0, 1)" or, if any number is in it, "".
std::string RangeWords(const Range& range);

// "a number above 0": a noun and the range.
std::string NumberWords(std::string_view noun, const Range& range);

}  // namespace lopt
