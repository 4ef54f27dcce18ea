#include "base/layout.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"

namespace lopt {

int64_t NumElements(const Shape& shape) {
  int64_t elements = 1;
  for (int64_t dimension : shape) {
    Require(dimension >= 0, "shape {} has a negative dimension", ToString(shape));
    elements *= dimension;
  }
  return elements;
}

std::string ToString(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// The names and shapes are moved from, which the check does not see in a structured binding.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
Layout::Layout(std::vector<std::pair<std::string, Shape>> tensors) {
  std::set<std::string> seen;
  for (auto& [name, shape] : tensors) {
    Require(!name.empty(), "Layout: tensor {} has no name", entries_.size());
    Require(seen.insert(name).second, "Layout: two tensors are named '{}'", name);
    const int64_t size = NumElements(shape);
    entries_.push_back({std::move(name), std::move(shape), size_, size});
    size_ += size;
  }
}

const LayoutEntry& Layout::Find(std::string_view name) const {
  for (const LayoutEntry& entry : entries_) {
    if (entry.name == name) {
      return entry;
    }
  }
  std::vector<std::string_view> names;
  for (const LayoutEntry& entry : entries_) {
    names.push_back(entry.name);
  }
  Fail("Layout: no tensor named '{}'; there are: {}", name, fmt::join(names, ", "));
}

}  // namespace lopt
