#include "lopt/base/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lopt/base/error.h"

namespace lopt {

int64_t NumElements(const Shape& shape) {
  int64_t elements = std::ranges::find(shape, 0) == shape.end() ? 1 : 0;
  for (const int64_t dimension : shape) {
    if (dimension < 0) {
      Fail("shape {} has a negative dimension", ToString(shape));
    }
    if (__builtin_mul_overflow(elements, dimension, &elements)) {
      Fail("shape {} has 2^63 elements or more", ToString(shape));
    }
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
    const int64_t offset = size_;
    Require(size <= kMaxSize - size_, "Layout: with tensor '{}' it has more than {} numbers", name,
            kMaxSize);
    size_ += size;
    entries_.push_back({std::move(name), std::move(shape), offset, size});
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
