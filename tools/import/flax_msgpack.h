#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lopt/tools/import/haiku_params.h"

namespace lopt {

// The arrays in the bytes of a msgpack file.
std::vector<FoundArray> ParseFlaxMsgpack(std::span<const std::byte> bytes,
                                         const std::string& source);

}  // namespace lopt
