#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lopt/base/denormals.h"
#include "lopt/base/parallel.h"

namespace lopt {
namespace {

// Products that only a processor that knows denormal numbers has.
float SmallResult() {
  const volatile float least_normal = std::numeric_limits<float>::min();
  return least_normal * 0.5f;
}
bool SmallOperandCounts() {
  const volatile float denormal = std::numeric_limits<float>::denorm_min();
  return denormal * 1e30f > 0;
}

TEST_CASE(
    "Denormal numbers are zeros while they are flushed, and what they were before afterwards") {
  REQUIRE_FALSE(FlushDenormals::Active());
  CHECK(SmallResult() > 0);
  CHECK(SmallOperandCounts());
  {
    const FlushDenormals flush;
    CHECK(FlushDenormals::Active());
    CHECK(SmallResult() == 0);
    CHECK_FALSE(SmallOperandCounts());
    {
      const FlushDenormals keep(false);
      CHECK(SmallResult() > 0);
      CHECK(SmallOperandCounts());
    }
    {
      const FlushDenormals again;
      CHECK(SmallResult() == 0);
    }
    CHECK(SmallResult() == 0);
  }
  CHECK_FALSE(FlushDenormals::Active());
  CHECK(SmallResult() > 0);
}

TEST_CASE("Parallel bodies treat denormal numbers as their caller does, on every thread") {
  ThreadPool pool(4);
  std::vector<int> wrong(400);
  pool.Run([&] {
    // Loops of both kinds at once, so that threads that wait help with the other kind.
    ParallelFor(20, [&](int64_t outer) {
      const bool flushed = outer % 2 == 0;
      const FlushDenormals mode(flushed);
      ParallelFor(20, [&](int64_t inner) {
        const bool zero = SmallResult() == 0;
        wrong[static_cast<size_t>(outer * 20 + inner)] = zero != flushed ? 1 : 0;
      });
    });
    CHECK_FALSE(FlushDenormals::Active());
  });
  for (const int one : wrong) CHECK(one == 0);
}

}  // namespace
}  // namespace lopt
