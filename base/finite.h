#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lopt/base/layout.h"

namespace lopt {

// Whether no number is an infinity or a NaN.
bool AllFinite(std::span<const float> values);

// What of a row is not finite, by tensors, whose names follow `prefix`: "theta/w [2, 3] has 2
// numbers that are not finite, the first is nan at 1", and how many other tensors have some. Empty
// if all numbers are finite.
std::string DescribeNotFinite(const Layout& layout, std::span<const float> row,
                              std::string_view prefix = "");

// Throws Error that begins with `message` and says which of the weights theta are not finite.
void RequireFiniteWeights(const Layout& layout, std::span<const float> theta,
                          std::string_view message);

}  // namespace lopt
