#include "lopt/base/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "lopt/base/utf8.h"

namespace lopt {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files hold little-endian numbers, and arrays are copied into them as they are");

std::string ArrayNames(const NamedArrays& arrays) {
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays) {
    names.push_back(PlainText(name));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string_view ToString(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat64:
      return "F64";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kUint32:
      return "U32";
    case DType::kUint8:
      return "U8";
  }
  Fail("dtype {} is not one of the enumeration", static_cast<int>(dtype));
}

int64_t ItemSize(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kUint8:
      return 1;
    default:
      return 4;
  }
}

Array::Array(DType dtype, Shape shape, const Memory& memory)
    : dtype_(dtype),
      shape_(std::move(shape)),
      buffer_(static_cast<size_t>(NumElements(shape_) * ItemSize(dtype_)), memory) {}

int64_t Array::size() const { return static_cast<int64_t>(buffer_.size()) / ItemSize(dtype_); }

Array Array::To(const Memory& memory) const {
  Array copy;
  copy.dtype_ = dtype_;
  copy.shape_ = shape_;
  copy.buffer_ = buffer_.To(memory);
  return copy;
}

void Array::CheckDType(DType wanted) const {
  if (wanted != dtype_) {
    Fail("array of {} {} was read as {}", ToString(dtype_), ToString(shape_), ToString(wanted));
  }
}

void Array::CopyFrom(std::span<const std::byte> values) {
  if (values.size() != buffer_.size()) {
    Fail("array of shape {} holds {} values, got {}", ToString(shape_), size(),
         static_cast<int64_t>(values.size()) / ItemSize(dtype_));
  }
  std::ranges::copy(values, bytes().begin());
}

const Array& NamedArrays::At(std::string_view name) const {
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) {
    Fail("no array is named '{}'; there are: {}", name, ArrayNames(*this));
  }
  return found->second;
}

Array& NamedArrays::At(std::string_view name) {
  return const_cast<Array&>(std::as_const(*this).At(name));
}

const Array& NamedArrays::At(std::string_view name, DType dtype, const Shape& shape) const {
  const Array& array = At(name);
  if (array.dtype() != dtype || array.shape() != shape) {
    Fail("array '{}' must be {} of shape {}, got {} of shape {}", name, ToString(dtype),
         ToString(shape), ToString(array.dtype()), ToString(array.shape()));
  }
  return array;
}

Array& NamedArrays::At(std::string_view name, DType dtype, const Shape& shape) {
  return const_cast<Array&>(std::as_const(*this).At(name, dtype, shape));
}

void NamedArrays::Merge(std::string_view prefix, NamedArrays from) {
  for (auto& entry : from.arrays_) {
    Set(std::string(prefix) + entry.first, std::move(entry.second));
  }
}

NamedArrays NamedArrays::Take(std::string_view prefix) {
  NamedArrays taken;
  for (auto it = arrays_.lower_bound(prefix); it != arrays_.end() && it->first.starts_with(prefix);
       it = arrays_.erase(it)) {
    taken.Set(it->first.substr(prefix.size()), std::move(it->second));
  }
  return taken;
}

NamedArrays NamedArrays::Extract(std::string_view prefix) const {
  NamedArrays extracted;
  for (auto it = arrays_.lower_bound(prefix); it != arrays_.end() && it->first.starts_with(prefix);
       ++it) {
    extracted.Set(it->first.substr(prefix.size()), it->second);
  }
  return extracted;
}

NamedArrays ArraysFromRow(const Layout& layout, std::span<const float> row,
                          std::string_view prefix) {
  Require(static_cast<int64_t>(row.size()) == layout.size(),
          "a row of this layout has {} numbers, got {}", layout.size(), row.size());
  NamedArrays arrays;
  for (const LayoutEntry& entry : layout.entries()) {
    arrays.Set(std::string(prefix) + entry.name,
               Array::Of<float>(entry.shape, row.subspan(static_cast<size_t>(entry.offset),
                                                         static_cast<size_t>(entry.size))));
  }
  return arrays;
}

void RowFromArrays(const Layout& layout, const NamedArrays& arrays, std::string_view prefix,
                   std::span<float> row) {
  Require(static_cast<int64_t>(row.size()) == layout.size(),
          "a row of this layout has {} numbers, got {}", layout.size(), row.size());
  for (const LayoutEntry& entry : layout.entries()) {
    const std::span<const float> values =
        arrays.At(std::string(prefix) + entry.name, DType::kFloat32, entry.shape).As<float>();
    std::ranges::copy(values, row.begin() + entry.offset);
  }
}

}  // namespace lopt
