#pragma once

#include <cstdint>

namespace lopt {

// Numbers of a drawn data set or of params at most: larger sizes are slips of the keyboard.
inline constexpr int64_t kMostNumbers = int64_t{1} << 28;

}  // namespace lopt
