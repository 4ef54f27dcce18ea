#include "lopt/base/permutation.h"

#include <cmath>
#include <limits>

#include "lopt/base/error.h"

namespace lopt {

PermutationNetwork PermutationNetworkOf(int64_t count) {
  Require(count >= 1 && count <= std::numeric_limits<int32_t>::max(),
          "Permutation: of {} elements, wanted 1 to 2147483647", count);
  const auto size = static_cast<uint32_t>(count);
  const auto rows = static_cast<uint32_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  return {.count = size, .rows = rows, .columns = (size + rows - 1) / rows};
}

Permutation::Permutation(Key key, int64_t count, Workspace& scratch)
    : network_(PermutationNetworkOf(count)), tables_(scratch.Take<uint32_t>(network_.words())) {
  Bits(key, tables_);
  uint32_t* word = tables_.data();
  const auto below = [&word](uint32_t size, uint32_t modulus) {
    for (const uint32_t* end = word + size; word != end; ++word) {
      *word = PermutationNetwork::Below(*word, modulus);
    }
  };
  for (int pair = 0; pair < PermutationNetwork::kRoundPairs; ++pair) {
    below(network_.columns, network_.rows);
    below(network_.rows, network_.columns);
  }
}

int32_t Permutation::operator()(int64_t i) const {
  return network_.At(i, [this](uint32_t index, uint32_t) { return tables_[index]; });
}

}  // namespace lopt
