#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lopt {

// The dimensions of a tensor; empty: a scalar.
using Shape = std::vector<int64_t>;

// Product of the dimensions; 1 for a scalar (empty shape). Throws Error on a negative dimension or
// a product of 2^63 or more.
int64_t NumElements(const Shape& shape);

// "[2, 3]".
std::string ToString(const Shape& shape);

// One named tensor inside a row: row[offset, offset + size), C order.
struct LayoutEntry {
  std::string name;    // distinct within the layout
  Shape shape;         // empty: a scalar
  int64_t offset = 0;  // of its first number in the row
  int64_t size = 0;    // product of the dimensions
  bool operator==(const LayoutEntry&) const = default;
};

// Names and shapes of the tensors that make up one flat row of float32 numbers, in order and
// without gaps. Every piece of state in the project (theta, a task's config, its params, an
// optimizer's state) is a row with a Layout.
class Layout {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 32;  // 16 GiB of float32

  Layout() = default;
  // Throws Error if a name is empty or appears twice, if a dimension is negative, or if there are
  // more than kMaxSize numbers.
  explicit Layout(std::vector<std::pair<std::string, Shape>> tensors);

  // Numbers of a row.
  int64_t size() const { return size_; }
  // The tensors in the order of the row.
  const std::vector<LayoutEntry>& entries() const { return entries_; }
  // Throws Error that lists the names if there is none of this name.
  const LayoutEntry& Find(std::string_view name) const;

  bool operator==(const Layout&) const = default;

 private:
  std::vector<LayoutEntry> entries_;
  int64_t size_ = 0;
};

}  // namespace lopt
