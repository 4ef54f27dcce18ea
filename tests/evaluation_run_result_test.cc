#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lopt/evaluation/run_result.h"

namespace lopt {
namespace {

// `steps` losses that fall from 2 to 0.1 in the first half and stay there.
std::vector<float> Learned(int64_t steps) {
  std::vector<float> losses(static_cast<size_t>(steps), 0.1F);
  for (int64_t t = 0; t < steps / 2; ++t) {
    losses[static_cast<size_t>(t)] =
        2 - 1.9F * static_cast<float>(2 * t) / static_cast<float>(steps);
  }
  return losses;
}

// The same whose last `count` losses are `loss`.
std::vector<float> EndsWith(float loss, size_t count, int64_t steps = 1000) {
  std::vector<float> losses = Learned(steps);
  std::fill(losses.end() - static_cast<int64_t>(count), losses.end(), loss);
  return losses;
}

TEST_CASE("A training blew up if its smoothed loss ends at more than five times its best") {
  CHECK_FALSE(BlewUp(Learned(1000)));
  CHECK(BlewUp(EndsWith(0.51F, 40)));
  CHECK_FALSE(BlewUp(EndsWith(0.49F, 40)));
  CHECK(BlewUp(EndsWith(1e8F, 500)));
}

TEST_CASE("One bad batch or a loss that comes down again is no blow-up") {
  CHECK_FALSE(BlewUp(EndsWith(1e6F, 1)));
  CHECK_FALSE(BlewUp(EndsWith(0.51F, 20)));  // one block
  std::vector<float> recovered = EndsWith(50, 300);
  std::fill(recovered.end() - 30, recovered.end(), 0.1F);
  CHECK_FALSE(BlewUp(recovered));
}

TEST_CASE("Losses of less than a thousandth of the first may come and go") {
  CHECK_FALSE(BlewUp(EndsWith(1e-9F, 500)));
  std::vector<float> tiny = EndsWith(1e-12F, 500);
  std::fill(tiny.end() - 200, tiny.end(), 5e-3F);
  CHECK_FALSE(BlewUp(tiny));
  std::fill(tiny.end() - 200, tiny.end(), 2e-2F);
  CHECK(BlewUp(tiny));
}

TEST_CASE("Short, diverged and negative trainings have no blow-up") {
  CHECK(BlewUp(EndsWith(50, 20, 30)));
  CHECK_FALSE(BlewUp(EndsWith(50, 20, 29)));
  CHECK_FALSE(BlewUp(EndsWith(std::numeric_limits<float>::infinity(), 40)));
  CHECK_FALSE(BlewUp(EndsWith(NAN, 40)));
  CHECK_FALSE(BlewUp({}));
  std::vector<float> negative = EndsWith(50, 40);
  for (float& loss : negative) loss -= 3;
  CHECK_FALSE(BlewUp(negative));
}

}  // namespace
}  // namespace lopt
