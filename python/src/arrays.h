#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <new>
#include <span>

#include "lopt/base/layout.h"

namespace lopt::python {

// A new NumPy array of this shape, C order, not initialised, whose memory is Python's alone,
// 64-byte aligned. `values` gets its numbers, of which there may be none. The GIL must be held.
template <class T>
nanobind::object NewArray(const Shape& shape, std::span<T>* values) {
  constexpr std::align_val_t kAlignment{64};
  const auto count = static_cast<size_t>(NumElements(shape));
  T* data = static_cast<T*>(::operator new[](count * sizeof(T) + 1, kAlignment));
  const nanobind::capsule owner(
      data, [](void* memory) noexcept { ::operator delete[](memory, kAlignment); });
  *values = {data, count};
  const std::vector<size_t> sizes(shape.begin(), shape.end());
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, T>(data, sizes.size(), sizes.data(), owner));
}

}  // namespace lopt::python
