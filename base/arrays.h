#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/buffer.h"
#include "lopt/base/error.h"
#include "lopt/base/layout.h"

namespace lopt {

// The type of the elements of an Array.
enum class DType { kFloat32, kFloat64, kInt32, kInt64, kUint32, kUint8 };

// The safetensors name: "F32", "F64", "I32", "I64", "U32", "U8".
std::string_view ToString(DType dtype);
// Bytes per element.
int64_t ItemSize(DType dtype);

// The DType of a C++ type; there is none of types without one.
template <class T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kFloat64;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType DTypeOf<uint32_t>() {
  return DType::kUint32;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kUint8;
}

// A dense C-order array of numbers that owns its memory, on the host or on a device. A value:
// copies are deep, moves copy nothing, equality is bitwise.
class Array {
 public:
  Array() = default;
  // Zeros.
  Array(DType dtype, Shape shape, const Memory& memory = HostMemory());
  // A copy of `values`. Throws Error if their number is not that of the shape.
  template <class T>
  static Array Of(Shape shape, std::span<const T> values) {
    Array array(DTypeOf<T>(), std::move(shape));
    array.CopyFrom(std::as_bytes(values));
    return array;
  }

  // The type of the elements.
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }  // empty: a scalar
  int64_t size() const;                          // elements

  // All elements. Throws Error if T is not the dtype, or the array is not in the host's memory.
  template <class T>
  std::span<T> As() {
    CheckDType(DTypeOf<T>());
    return {reinterpret_cast<T*>(bytes().data()), bytes().size() / sizeof(T)};
  }
  // The same of an array that stays as it is.
  template <class T>
  std::span<const T> As() const {
    CheckDType(DTypeOf<T>());
    return {reinterpret_cast<const T*>(bytes().data()), bytes().size() / sizeof(T)};
  }
  // All elements as bytes, in the byte order of the machine. Throws Error if they are not in the
  // host's memory.
  std::span<const std::byte> bytes() const { return buffer_.host(); }
  // The same, to be written.
  std::span<std::byte> bytes() { return buffer_.host(); }
  // Where the elements are, whichever memory it is.
  const Buffer& buffer() const { return buffer_; }
  // The same, to be written.
  Buffer& buffer() { return buffer_; }
  // A copy in another memory.
  Array To(const Memory& memory) const;

  bool operator==(const Array&) const = default;

 private:
  void CheckDType(DType wanted) const;
  void CopyFrom(std::span<const std::byte> values);

  DType dtype_ = DType::kFloat32;
  Shape shape_{0};
  Buffer buffer_;
};

// f(array.As<T>()) of the array's own type T.
template <class F>
auto VisitElements(const Array& array, const F& f) {
  switch (array.dtype()) {
    case DType::kFloat32:
      return f(array.As<float>());
    case DType::kFloat64:
      return f(array.As<double>());
    case DType::kInt32:
      return f(array.As<int32_t>());
    case DType::kInt64:
      return f(array.As<int64_t>());
    case DType::kUint32:
      return f(array.As<uint32_t>());
    case DType::kUint8:
      return f(array.As<uint8_t>());
  }
  Fail("Array of an unknown dtype");
}

// Arrays by name: what all state is between two steps, and what a file holds. A value, ordered by
// name.
class NamedArrays {
 public:
  // Whether there is an array of this name.
  bool Contains(std::string_view name) const { return arrays_.contains(name); }
  // Throws Error that lists the names if there is none of this name.
  Array& At(std::string_view name);
  // The same of arrays that stay as they are.
  const Array& At(std::string_view name) const;
  // The same, and throws Error unless the dtype and shape are these.
  Array& At(std::string_view name, DType dtype, const Shape& shape);
  // The same of arrays that stay as they are.
  const Array& At(std::string_view name, DType dtype, const Shape& shape) const;
  // Adds or replaces.
  void Set(std::string name, Array array) {
    arrays_.insert_or_assign(std::move(name), std::move(array));
  }

  // Moves the arrays of `from` in, each name with `prefix` before it.
  void Merge(std::string_view prefix, NamedArrays from);
  // The reverse of Merge: moves the arrays whose names start with `prefix` out, without it.
  NamedArrays Take(std::string_view prefix);
  // The same, but copies them.
  NamedArrays Extract(std::string_view prefix) const;

  // Pairs of name and array, in the order of names.
  auto begin() const { return arrays_.begin(); }
  // The end of them.
  auto end() const { return arrays_.end(); }
  // The same, arrays to be written.
  auto begin() { return arrays_.begin(); }
  // The end of them.
  auto end() { return arrays_.end(); }
  // The number of arrays.
  size_t size() const { return arrays_.size(); }
  bool operator==(const NamedArrays&) const = default;

 private:
  std::map<std::string, Array, std::less<>> arrays_;
};

// A row of float32 numbers as one array per tensor of its layout. Names are `prefix` + the tensor's
// name.
NamedArrays ArraysFromRow(const Layout& layout, std::span<const float> row,
                          std::string_view prefix = "");
// The reverse. Throws Error if a tensor is missing or has another shape or dtype; other arrays are
// ignored.
void RowFromArrays(const Layout& layout, const NamedArrays& arrays, std::string_view prefix,
                   std::span<float> row);

// An array in a file whose elements are of a type that Array has not, and so are not read.
struct OtherArray {
  std::string name;   // in the file
  std::string dtype;  // as the file names it: "<f2", "|b1", "<U4", "BF16"; the list of a record's
  Shape shape;        // of its elements
};

}  // namespace lopt
