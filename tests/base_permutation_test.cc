#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/permutation.h"

namespace lopt {
namespace {

std::vector<int32_t> Draw(Key key, int64_t count) {
  Workspace scratch;
  const Permutation permutation(key, count, scratch);
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(permutation(i));
  return values;
}

// The draws of these tests.
Key DrawKey(int64_t draw) { return FoldIn(KeyFromSeed(11), static_cast<uint64_t>(draw)); }

// How far a chi-square with this many degrees of freedom lies from its mean, in standard
// deviations: that of `counts`, which are `expected` in the mean with a variance of `variance`.
double ChiSquareDeviation(const std::vector<int64_t>& counts, double expected, double variance,
                          double freedom) {
  double chi_square = 0;
  for (const int64_t count : counts) {
    const double difference = static_cast<double>(count) - expected;
    chi_square += difference * difference / variance;
  }
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

TEST_CASE("Every element is taken once, for any count") {
  std::vector<int64_t> counts = {97, 1000, 4096, 7000, 10007, 65536, 100003};
  for (int64_t count = 1; count < 70; ++count) counts.push_back(count);
  for (const int64_t count : counts) {
    CAPTURE(count);
    std::vector<int32_t> values = Draw(DrawKey(count), count);
    std::ranges::sort(values);
    bool all = true;
    for (int64_t i = 0; i < count; ++i) all = all && values[static_cast<size_t>(i)] == i;
    CHECK(all);
  }
}

TEST_CASE("A key draws one permutation, another key another") {
  CHECK(Draw(DrawKey(1), 1000) == Draw(DrawKey(1), 1000));
  CHECK(Draw(DrawKey(1), 1000) != Draw(DrawKey(2), 1000));
}

TEST_CASE("The largest count works and a larger one is an error") {
  Workspace scratch;
  const Permutation largest(DrawKey(0), 2147483647, scratch);
  for (const int64_t i : {int64_t{0}, int64_t{1} << 30, int64_t{2147483646}}) {
    CHECK(largest(i) >= 0);
    CHECK(largest(i) < 2147483647);
  }
  CHECK_THROWS_WITH_AS(Permutation(Key{}, 0, scratch),
                       "Permutation: of 0 elements, wanted 1 to 2147483647", Error);
  CHECK_THROWS_WITH_AS(Permutation(Key{}, int64_t{1} << 31, scratch),
                       "Permutation: of 2147483648 elements, wanted 1 to 2147483647", Error);
}

TEST_CASE("All orders of three and of four elements are equally likely") {
  for (const auto& [count, orders] : {std::pair{3, 6}, std::pair{4, 24}}) {
    CAPTURE(count);
    const int64_t draws = 20000;
    std::map<std::vector<int32_t>, int64_t> seen;
    for (int64_t draw = 0; draw < draws; ++draw) ++seen[Draw(DrawKey(draw), count)];
    CHECK(static_cast<int>(seen.size()) == orders);
    std::vector<int64_t> counts;
    for (const auto& entry : seen) counts.push_back(entry.second);
    const double expected = static_cast<double>(draws) / orders;
    const double deviation = ChiSquareDeviation(counts, expected, expected, orders - 1.0);
    CHECK(std::abs(deviation) < 3.5);
  }
}

// The sum of D random n x n permutation matrices, less its mean, has covariance D / (n - 1) on the
// (n - 1)^2 dimensions that fixed sums of rows and columns leave.
TEST_CASE("Every element is in every place equally often") {
  for (const int64_t count : {5, 12, 97}) {
    CAPTURE(count);
    const int64_t draws = 100 * count;
    std::vector<int64_t> counts(static_cast<size_t>(count * count));
    for (int64_t draw = 0; draw < draws; ++draw) {
      const std::vector<int32_t> values = Draw(DrawKey(draw), count);
      for (int64_t i = 0; i < count; ++i) ++counts[static_cast<size_t>(i * count + values[i])];
    }
    const auto n = static_cast<double>(count);
    const auto d = static_cast<double>(draws);
    CHECK(std::abs(ChiSquareDeviation(counts, d / n, d / (n - 1), (n - 1) * (n - 1))) < 3.5);
  }
}

TEST_CASE("Where one element goes says nothing of where its neighbours go") {
  const int64_t count = 12;
  const int64_t draws = 20000;
  for (const int64_t neighbour : {1, 2, 3, 4, 11}) {
    CAPTURE(neighbour);
    std::vector<int64_t> counts(static_cast<size_t>(count * (count - 1)));
    for (int64_t draw = 0; draw < draws; ++draw) {
      const std::vector<int32_t> values = Draw(DrawKey(draw), count);
      const int64_t from = values[0];
      const int64_t to = values[static_cast<size_t>(neighbour)];
      ++counts[static_cast<size_t>(from * (count - 1) + to - (to > from ? 1 : 0))];
    }
    const double expected = static_cast<double>(draws) / static_cast<double>(counts.size());
    const auto freedom = static_cast<double>(counts.size() - 1);
    CHECK(std::abs(ChiSquareDeviation(counts, expected, expected, freedom)) < 3.5);
  }
}

}  // namespace
}  // namespace lopt
