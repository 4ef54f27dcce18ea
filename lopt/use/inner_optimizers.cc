#include "lopt/lopt/use/inner_optimizers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lopt/lopt/registry.h"

namespace lopt {

std::vector<std::pair<std::string, Config>> InnerOptimizers(const Config& optimizer) {
  const auto& types = OptimizerRegistry().table().entries();
  std::vector<std::pair<std::string, Config>> inner;
  for (const auto& [option, value] : optimizer.json().items()) {
    if (!value.is_object()) continue;
    const auto type = value.find("type");
    if (type == value.end()) continue;
    const auto is_it = [&](const TypeEntry& entry) { return *type == entry.type; };
    if (std::ranges::any_of(types, is_it)) inner.emplace_back(option, Config::FromJson(value));
  }
  return inner;
}

}  // namespace lopt
