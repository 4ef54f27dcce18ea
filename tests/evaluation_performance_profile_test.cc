#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "lopt/evaluation/performance_profile.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SummaryRow Row(const std::string& task, const std::string& optimizer, double loss,
               int64_t steps = 1) {
  return {.task = task, .optimizer = optimizer, .steps = steps, .test_loss = {.value = loss}};
}

std::vector<ProfileCurve> Profile(const std::vector<SummaryRow>& rows) {
  return PerformanceProfile(rows, [](const SummaryRow& row) { return row.test_loss.value; });
}

TEST_CASE("A profile has the share of tasks within a factor of the lowest") {
  const auto profile =
      Profile({Row("a", "x", 1), Row("a", "y", 2), Row("b", "x", 6), Row("b", "y", 4),
               Row("c", "x", 3), Row("c", "y", 3), Row("c", "x", 1, 2), Row("c", "y", 3, 2)});
  REQUIRE(profile.size() == 2);
  CHECK(profile[0].optimizer == "x");
  CHECK(profile[0].ratios == std::vector<double>{1, 1, 1, 1.5});
  CHECK(profile[1].ratios == std::vector<double>{1, 1, 2, 3});
  CHECK(profile[0].Share(1) == 0.75);
  CHECK(profile[0].Share(1.5) == 1);
  CHECK(profile[1].Share(0.999) == 0);
  CHECK(profile[1].Share(1) == 0.5);
  CHECK(profile[1].Share(2.5) == 0.75);
}

TEST_CASE("Who does not get there, or was not trained on a task, is within no factor") {
  const auto profile = Profile({Row("a", "x", 1), Row("a", "y", kInfinity), Row("b", "x", 1),
                                Row("zero", "x", 0), Row("zero", "y", 0.1),
                                Row("nobody", "x", kInfinity), Row("nobody", "y", kInfinity)});
  REQUIRE(profile.size() == 2);
  CHECK(profile[0].ratios == std::vector<double>{1, 1, 1, kInfinity});
  CHECK(profile[1].ratios == std::vector<double>(4, kInfinity));
  CHECK(profile[1].Share(1e300) == 0);
  CHECK(Profile({}).empty());
  const auto below = Profile({Row("a", "x", -2), Row("a", "y", -1)});  // half of it is no factor
  CHECK(below[0].ratios == std::vector<double>{1});
  CHECK(below[1].ratios == std::vector<double>{kInfinity});
}

}  // namespace
}  // namespace lopt
