#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/key.h"
#include "lopt/base/permutation_device.h"
#include "lopt/base/workspace.h"

namespace lopt {

// A permutation of 0, ..., count - 1 that a key draws, of which any element is known without the
// others: an image costs about 12 look-ups, whatever the count, and drawing the permutation 12
// sqrt(count) random words. Where an element or two go is as good as uniform for large counts. The
// permutation as a whole is not: the total variation from uniform is 3e-4 at 4 elements, 2e-2 at 6
// and .4 at 8. Where `a` and `b` below are odd and count is a b, only even permutations are drawn.
//
// A Feistel network of 12 rounds on pairs (i / b, i % b), a b >= count, whose round functions are
// tables of random words, and with steps out of range walked on until they are back (Black and
// Rogaway 2002, "Ciphers with arbitrary finite domains").
class Permutation {
 public:
  // `scratch` holds the tables and must keep its frame as long as this is used. Throws Error unless
  // 1 <= count < 2^31.
  Permutation(Key key, int64_t count, Workspace& scratch);

  // Where `i`, in [0, count), goes.
  int32_t operator()(int64_t i) const;

 private:
  PermutationNetwork network_;
  std::span<uint32_t> tables_;
};

// The network of permutations of so many elements. Throws Error as Permutation does.
PermutationNetwork PermutationNetworkOf(int64_t count);

}  // namespace lopt
