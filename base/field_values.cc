#include "lopt/base/field_values.h"

#include <fmt/format.h>

#include <cmath>

namespace lopt {

bool Contains(const Range& range, long double value) {
  const bool above = range.open_min ? value > range.min : value >= range.min;
  const bool below = range.open_max ? value < range.max : value <= range.max;
  return above && below;
}

std::string RangeWords(const Range& range) {
  const bool has_min = std::isfinite(range.min);
  const bool has_max = std::isfinite(range.max);
  if (has_min && has_max) {
    return fmt::format("in {}{}, {}{}", range.open_min ? '(' : '[', range.min, range.max,
                       range.open_max ? ')' : ']');
  }
  if (has_min) {
    return fmt::format("{} {}", range.open_min ? "above" : "at least", range.min);
  }
  if (has_max) {
    return fmt::format("{} {}", range.open_max ? "below" : "at most", range.max);
  }
  return "";
}

std::string NumberWords(std::string_view noun, const Range& range) {
  const std::string words = RangeWords(range);
  return fmt::format("{}{}{}", noun,
                     words.empty()             ? ""
                     : words.starts_with("at") ? " of "
                                               : " ",
                     words);
}

}  // namespace lopt
