#include "lopt/base/finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "lopt/base/error.h"

namespace lopt {

bool AllFinite(std::span<const float> values) {
  // All of these bits are set in what is not finite. A comparison of them is in every instruction
  // set, a maximum is not.
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t found = 0;
  for (const float value : values) {
    found |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & kExponent) == kExponent);
  }
  return found == 0;
}

std::string DescribeNotFinite(const Layout& layout, std::span<const float> row,
                              std::string_view prefix) {
  std::string text;
  int64_t others = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    const auto values = row.subspan(entry.offset, entry.size);
    if (AllFinite(values)) continue;
    if (!text.empty()) {
      ++others;
      continue;
    }
    const auto bad = [](float value) { return !std::isfinite(value); };
    const auto first = std::ranges::find_if(values, bad);
    const int64_t count = std::ranges::count_if(values, bad);
    text = fmt::format("{}{} {} has {} number{} not finite, the first is {} at {}", prefix,
                       entry.name, ToString(entry.shape), count,
                       count == 1 ? " that is" : "s that are", *first, first - values.begin());
  }
  if (others > 0) {
    text += fmt::format("; {} other tensor{} some", others, others == 1 ? " has" : "s have");
  }
  return text;
}

void RequireFiniteWeights(const Layout& layout, std::span<const float> theta,
                          std::string_view message) {
  const std::string bad = DescribeNotFinite(layout, theta, "theta/");
  Require(bad.empty(), "{}; {}", message, bad);
}

}  // namespace lopt
