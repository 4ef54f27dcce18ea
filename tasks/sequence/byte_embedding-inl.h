// Per-target header of Highway kernels, as base/vector_math-inl.h: embeddings of bytes.
#if defined(LOPT_BYTE_EMBEDDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_BYTE_EMBEDDING_INL_H_
#undef LOPT_BYTE_EMBEDDING_INL_H_
#else
#define LOPT_BYTE_EMBEDDING_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "lopt/tasks/layers/products-inl.h"
#include "lopt/tasks/sequence/byte_sequences.h"
#include "lopt/tasks/sequence/column_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// x [count, width] = for each row the column byte_of(row) of an embedding [width, 256].
template <class ByteOf>
HWY_INLINE void LookUpBytes(const float* embedding, int64_t width, int64_t count,
                            const ByteOf& byte_of, PanelMatrix x) {
  ForRows(x, count, [&](int64_t row, const auto& at) {
    const int64_t byte = byte_of(row);
    for (int64_t k = 0; k < width; ++k) at(k) = embedding[k * kByteValues + byte];
  });
}

// The gradient of the embedding from that of x, or what is to be added to it.
template <class ByteOf>
HWY_INLINE void EmbeddingGradient(PanelMatrix of_x, int64_t width, int64_t count,
                                  const ByteOf& byte_of, bool add, float* gradient) {
  if (!add) std::fill_n(gradient, width * kByteValues, 0.0f);
  ForRows(of_x, count, [&](int64_t row, const auto& at) {
    const int64_t byte = byte_of(row);
    for (int64_t k = 0; k < width; ++k) gradient[k * kByteValues + byte] += at(k);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_BYTE_EMBEDDING_INL_H_
