#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/key_device.h"
#include "tests/farthest.h"

namespace lopt {
namespace {

constexpr uint64_t kFirsts[] = {0, 1, 4095, (uint64_t{1} << 32) - 3};

TEST_CASE("A device draws the words, uniform numbers and integers of the host, bit for bit") {
  const Key key = {0x12345678u, 0x9abcdef0u};
  for (const uint64_t first : kFirsts) {
    std::vector<uint32_t> bits(100);
    std::vector<float> uniform(100);
    std::vector<int32_t> integers(100);
    Bits(key, bits, first);
    Uniform(key, uniform, first);
    Randint(key, -7, 1000003, integers, first);
    const RandintRange range = RandintRangeOf(-7, 1000003);
    for (uint64_t i = 0; i < 100; ++i) {
      CHECK_EQ(BitsAt(key, first + i), bits[i]);
      CHECK_EQ(UniformAt(key, first + i), uniform[i]);
      CHECK_EQ(RandintAt(key, range, first + i), integers[i]);
    }
  }
}

TEST_CASE("A device's normal numbers are the host's to 1e-6 of them") {
  const Key key = KeyFromSeed(7);
  std::vector<float> normal(1 << 20);  // the largest is near 5
  Normal(key, normal);
  double largest = 0;
  float extreme = 0;
  for (size_t i = 0; i < normal.size(); ++i) {
    const double apart = std::abs(double{NormalAt(key, i)} - double{normal[i]});
    largest = Farther(largest, apart / std::max(1.0, std::abs(double{normal[i]})));
    extreme = std::max(extreme, std::abs(normal[i]));
  }
  CHECK_LT(largest, 1e-6);
  CHECK_GT(extreme, 4.5F);
}

}  // namespace
}  // namespace lopt
