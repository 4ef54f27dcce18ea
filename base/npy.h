#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"

namespace lopt {

// One array in NumPy's .npy format. Header versions 1 to 3 are read, 1 is written. ParseNpy throws
// Error that begins with `source`.
Array ParseNpy(std::span<const std::byte> bytes, const std::string& source);
// The same, but nothing for an array of another dtype, whose dtype and shape go to `other`; what
// follows its header is not looked at.
std::optional<Array> ParseNpy(std::span<const std::byte> bytes, const std::string& source,
                              OtherArray* other);
std::vector<std::byte> SerializeNpy(const Array& array);

}  // namespace lopt
