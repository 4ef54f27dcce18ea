#pragma once

#include <cstdint>

#include "lopt/base/block_device.h"

namespace lopt {

// The network of Permutation (permutation.h), for the host and for kernels of a device.
struct PermutationNetwork {
  static constexpr int kRoundPairs = 6;

  uint32_t count;
  uint32_t rows;     // a
  uint32_t columns;  // b

  // Words of the tables of all rounds. A pair of rounds has what each column adds to the row, then
  // what each row adds to the column.
  LOPT_DEVICE int64_t words() const { return int64_t{kRoundPairs} * (rows + columns); }

  // What a random word becomes in a table of numbers below `modulus`.
  static LOPT_DEVICE uint32_t Below(uint32_t word, uint32_t modulus) {
    return static_cast<uint32_t>(uint64_t{word} * modulus >> 32);
  }

  // Where `i`, in [0, count), goes; word(index, modulus) is the number of the tables, which is
  // below `modulus`.
  template <class Word>
  LOPT_DEVICE int32_t At(int64_t i, const Word& word) const {
    auto at = static_cast<uint32_t>(i);
    do {
      uint32_t row = at / columns;
      uint32_t column = at % columns;
      uint32_t table = 0;
      LOPT_ROLLED
      for (int pair = 0; pair < kRoundPairs; ++pair, table += columns + rows) {
        row = AddModulo(row, word(table + column, rows), rows);
        column = AddModulo(column, word(table + columns + row, columns), columns);
      }
      at = row * columns + column;
    } while (at >= count);
    return static_cast<int32_t>(at);
  }

 private:
  static LOPT_DEVICE uint32_t AddModulo(uint32_t a, uint32_t b, uint32_t modulus) {
    const uint32_t sum = a + b;
    return sum < modulus ? sum : sum - modulus;
  }
};

}  // namespace lopt
