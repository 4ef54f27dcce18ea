#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lopt {

// JSON in lines of kTerminalColumns, of which `used` of the first are taken: what fits into a line
// stays in one, else each of its parts begins one, `indent` + 2 spaces from the left.
std::string WrappedJson(const nlohmann::ordered_json& json, size_t indent, size_t used);

}  // namespace lopt
