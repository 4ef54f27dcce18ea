#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <span>

namespace lopt {

// The libraries' vectors are freed by programs and the other way round.
static_assert(
    EIGEN_DEFAULT_ALIGN_BYTES == 64,
    "lopt's headers want -DEIGEN_MAX_ALIGN_BYTES=64, as lopt::headers and pkg-config say");

// The elements of an Eigen vector or array that owns its memory.
template <class Vector>
std::span<const typename Vector::Scalar> AsSpan(const Vector& vector) {
  return {vector.data(), static_cast<size_t>(vector.size())};
}
// The same, to be written.
template <class Vector>
std::span<typename Vector::Scalar> AsSpan(Vector& vector) {
  return {vector.data(), static_cast<size_t>(vector.size())};
}

}  // namespace lopt
