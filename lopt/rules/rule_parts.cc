#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {

Layout ScalarsLayout(const std::vector<std::string>& names) {
  NamedShapes tensors;
  for (const std::string& name : names) tensors.emplace_back(name, Shape{1});
  return Layout(std::move(tensors));
}

Layout SlotsLayout(const Layout& params, const std::vector<std::string>& prefixes) {
  NamedShapes tensors;
  for (const std::string& prefix : prefixes) AppendPrefixed(prefix + "/", params, &tensors);
  return Layout(std::move(tensors));
}

void AppendPrefixed(const std::string& prefix, const Layout& layout, NamedShapes* tensors) {
  for (const LayoutEntry& e : layout.entries()) tensors->emplace_back(prefix + e.name, e.shape);
}

}  // namespace lopt
