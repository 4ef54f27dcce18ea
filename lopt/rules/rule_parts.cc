#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {

Layout ScalarsLayout(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const std::string& name : names) tensors.emplace_back(name, Shape{1});
  return Layout(std::move(tensors));
}

Layout SlotsLayout(const Layout& params, const std::vector<std::string>& prefixes) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const std::string& prefix : prefixes) {
    for (const LayoutEntry& entry : params.entries()) {
      tensors.emplace_back(prefix + "/" + entry.name, entry.shape);
    }
  }
  return Layout(std::move(tensors));
}

}  // namespace lopt
