#include "lopt/tools/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "lopt/base/wrapped.h"

namespace lopt {

std::string WrappedJson(const nlohmann::ordered_json& json, size_t indent, size_t used) {
  std::string line = json.dump();
  if (used + line.size() <= kTerminalColumns || !json.is_structured() || json.empty()) return line;
  std::vector<std::string> parts;
  for (const auto& [key, value] : json.items()) {
    const std::string name = json.is_object() ? nlohmann::json(key).dump() + ": " : "";
    parts.push_back(std::string(indent + 2, ' ') + name +
                    WrappedJson(value, indent + 2, indent + 3 + name.size()));
  }
  return fmt::format("{}\n{}\n{}{}", json.is_object() ? "{" : "[", fmt::join(parts, ",\n"),
                     std::string(indent, ' '), json.is_object() ? "}" : "]");
}

}  // namespace lopt
