#include "base/permutation.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace lopt {
namespace {

constexpr int kRoundPairs = 6;

uint32_t AddModulo(uint32_t a, uint32_t b, uint32_t modulus) {
  const uint32_t sum = a + b;
  return sum < modulus ? sum : sum - modulus;
}

}  // namespace

Permutation::Permutation(Key key, int64_t count, Workspace& scratch)
    : count_(static_cast<uint32_t>(count)) {
  Require(count >= 1 && count <= std::numeric_limits<int32_t>::max(),
          "Permutation: of {} elements, wanted 1 to 2147483647", count);
  rows_ = static_cast<uint32_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  columns_ = (count_ + rows_ - 1) / rows_;
  tables_ = scratch.Take<uint32_t>(int64_t{kRoundPairs} * (rows_ + columns_));
  Bits(key, tables_);
  // A pair of rounds: what each column adds to the row, then what each row adds to the column.
  uint32_t* word = tables_.data();
  const auto below = [&word](uint32_t size, uint32_t modulus) {
    for (const uint32_t* end = word + size; word != end; ++word) {
      *word = static_cast<uint32_t>(uint64_t{*word} * modulus >> 32);
    }
  };
  for (int pair = 0; pair < kRoundPairs; ++pair) {
    below(columns_, rows_);
    below(rows_, columns_);
  }
}

int32_t Permutation::operator()(int64_t i) const {
  auto at = static_cast<uint32_t>(i);
  do {
    uint32_t row = at / columns_;
    uint32_t column = at % columns_;
    const uint32_t* table = tables_.data();
    for (int pair = 0; pair < kRoundPairs; ++pair, table += columns_ + rows_) {
      row = AddModulo(row, table[column], rows_);
      column = AddModulo(column, table[columns_ + row], columns_);
    }
    at = row * columns_ + column;
  } while (at >= count_);
  return static_cast<int32_t>(at);
}

}  // namespace lopt
