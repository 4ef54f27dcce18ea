#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/lopt/network/factored.h"
#include "tests/error_of.h"
#include "tests/reference/factored_reference.h"

namespace lopt {
namespace {

const std::vector<Shape> kShapes = {{1, 1},    {1, 6},       {5, 1},        {5, 3},       {3, 11},
                                    {4, 4},    {2, 3, 4},    {4, 2, 4},     {7, 5, 2},    {5, 7, 2},
                                    {2, 7, 5}, {3, 3, 5, 7}, {7, 3, 5, 3},  {2, 2, 2, 2}, {3, 1, 2},
                                    {5, 3, 5}, {40, 33},     {2, 17, 19, 3}};

// Index of element i in the tensor without one axis, by division.
int64_t IndexWithout(const Shape& shape, size_t axis, int64_t i) {
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t a = shape.size(); a-- > 0;) {
    if (a != axis) {
      index += i % shape[a] * stride;
      stride *= shape[a];
    }
    i /= shape[a];
  }
  return index;
}

std::vector<float> NormalNumbers(uint64_t seed, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  Normal(KeyFromSeed(seed), x);
  return x;
}

TEST_CASE("the largest axes are the known ones, and of equal ones the later") {
  const auto check = [](const Shape& shape, size_t largest, size_t second) {
    CAPTURE(ToString(shape));
    CHECK(FindLargestAxes(shape).largest == largest);
    CHECK(FindLargestAxes(shape).second == second);
  };
  check({1, 6}, 1, 0);
  check({5, 1}, 0, 1);
  check({4, 4}, 1, 0);
  check({64, 32}, 0, 1);
  check({4, 2, 4}, 2, 0);
  check({2, 2, 2, 2}, 3, 2);
  check({3, 3, 5, 7}, 3, 2);
  check({7, 5, 2}, 0, 1);
  check({3, 3, 2, 2}, 1, 0);
  check({5, 9, 9, 2}, 2, 1);
  check({0, 4}, 1, 0);
}

TEST_CASE("the largest axes are the last two of a stable sort by size") {
  for (int64_t code = 0; code < 256; ++code) {
    const Shape shape = {1 + code % 4, 1 + code / 4 % 4, 1 + code / 16 % 4, 1 + code / 64};
    std::vector<size_t> order = {0, 1, 2, 3};
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return shape[a] < shape[b]; });
    CHECK(FindLargestAxes(shape).largest == order[3]);
    CHECK(FindLargestAxes(shape).second == order[2]);
  }
}

TEST_CASE("a shape of fewer than two axes is not factored") {
  CHECK(ErrorOf([] { FactoredShape(Shape{7}); }) ==
        "FindLargestAxes: wants a shape of two axes or more, got [7]");
}

TEST_CASE("row is the shape without its largest axis, column without the second largest") {
  CHECK(FactoredShape({7, 5, 2}).row == Shape{5, 2});
  CHECK(FactoredShape({7, 5, 2}).col == Shape{7, 2});
  CHECK(FactoredShape({3, 3, 5, 7}).row == Shape{3, 3, 5});
  CHECK(FactoredShape({3, 3, 5, 7}).col == Shape{3, 3, 7});
  CHECK(FactoredShape({4, 2, 4}).row == Shape{4, 2});
  CHECK(FactoredShape({4, 2, 4}).col == Shape{2, 4});
  for (const Shape& shape : kShapes) {
    const FactoredShape factored(shape);
    CHECK(factored.row_size() == NumElements(factored.row));
    CHECK(factored.col_size() == NumElements(factored.col));
  }
}

TEST_CASE("mean squares are those over the two axes") {
  for (const Shape& shape : kShapes) {
    CAPTURE(ToString(shape));
    const FactoredShape factored(shape);
    const auto [largest, second] = FindLargestAxes(shape);
    const std::vector<float> g = NormalNumbers(3, NumElements(shape));
    std::vector<double> row(static_cast<size_t>(factored.row_size()));
    std::vector<double> col(static_cast<size_t>(factored.col_size()));
    for (int64_t i = 0; i < NumElements(shape); ++i) {
      const double square = double{g[i]} * g[i] + 1e-30;
      row[IndexWithout(shape, largest, i)] += square / static_cast<double>(shape[largest]);
      col[IndexWithout(shape, second, i)] += square / static_cast<double>(shape[second]);
    }
    std::vector<float> got_row(row.size(), -1);
    std::vector<float> got_col(col.size(), -1);
    FactoredMeanSquares(factored, g, got_row, got_col);
    for (size_t i = 0; i < row.size(); ++i) CHECK(std::abs(got_row[i] / row[i] - 1) < 1e-6);
    for (size_t i = 0; i < col.size(); ++i) CHECK(std::abs(got_col[i] / col[i] - 1) < 1e-6);
  }
}

TEST_CASE("a gradient of zeros or of denormals has mean squares of 1e-30") {
  for (const float g : {0.0f, 1e-20f, 1e-40f}) {
    const std::vector<float> gradient(35, g);
    std::vector<float> row(5);
    std::vector<float> col(7);
    FactoredMeanSquares(FactoredShape({5, 7}), gradient, row, col);
    for (const float x : row) CHECK(std::abs(x / 1e-30 - 1) < 1e-5);
    for (const float x : col) CHECK(std::abs(x / 1e-30 - 1) < 1e-5);
  }
}

TEST_CASE("the factors are those of the definition, at the right row and column") {
  for (const Shape& shape : kShapes) {
    CAPTURE(ToString(shape));
    const FactoredShape factored(shape);
    const auto [largest, second] = FindLargestAxes(shape);
    const int64_t size = NumElements(shape);
    std::vector<float> v_row = NormalNumbers(4, factored.row_size());
    std::vector<float> v_col = NormalNumbers(5, factored.col_size());
    for (float& x : v_row) x *= x;
    for (float& x : v_col) x *= x;
    v_col[0] = 1e-12f;
    // The mean of v_row over the second largest axis, by what remains of the tensor then.
    const size_t in_row = second < largest ? second : second - 1;
    std::vector<double> mean(static_cast<size_t>(factored.row_size() / shape[second]));
    for (int64_t i = 0; i < factored.row_size(); ++i) {
      mean[IndexWithout(factored.row, in_row, i)] += v_row[i] / static_cast<double>(shape[second]);
    }
    std::vector<float> row_factors(v_row.size());
    std::vector<float> col_factors(v_col.size());
    FactoredRsqrt(factored, v_row, v_col, row_factors, col_factors);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = IndexWithout(shape, largest, i);
      const int64_t col = IndexWithout(shape, second, i);
      const double ratio = v_row[row] / (mean[IndexWithout(factored.row, in_row, row)] + 1e-9);
      const double wanted =
          1 / std::sqrt(std::max(ratio, 1e-9)) / std::sqrt(std::max(double{v_col[col]}, 1e-9));
      CHECK(std::abs(double{row_factors[row]} * col_factors[col] / wanted - 1) < 1e-6);
    }
  }
}

TEST_CASE("runs visit every element at its row and column, from any start on, in any parts") {
  for (const Shape& shape : kShapes) {
    CAPTURE(ToString(shape));
    const FactoredShape factored(shape);
    const auto [largest, second] = FindLargestAxes(shape);
    const int64_t size = NumElements(shape);
    for (const int64_t part : {1, 3, 48}) {
      for (int64_t first = 0; first < size; first += 1 + size / 7) {
        FactoredRuns runs(factored, first);
        int64_t wrong = 0;
        for (int64_t i = first; i < size;) {
          const int64_t count = std::min(part, runs.size());
          REQUIRE(count > 0);
          for (int64_t k = 0; k < count; ++k, ++i) {
            if (runs.row() + (runs.row_moves() ? k : 0) != IndexWithout(shape, largest, i)) ++wrong;
            if (runs.col() + (runs.col_moves() ? k : 0) != IndexWithout(shape, second, i)) ++wrong;
          }
          runs.Advance(count);
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("an average decays in float32, also where its decay is negative") {
  std::vector<float> average = {1, 2};
  DecayAverage(0.5f, std::vector<float>{3, 4}, average);
  CHECK(average == std::vector<float>{2, 3});
  DecayAverage(-10.0f, std::vector<float>{1, 1}, average);
  CHECK(average == std::vector<float>{-9, -19});
  DecayAverage(0.999f, std::vector<float>{1, 1}, average = {0, 0});
  CHECK(average[0] == 1.0f - 0.999f);
}

TEST_CASE("a tensor without elements leaves its moments and factors as they are") {
  const FactoredShape shape({0, 4});
  std::vector<float> row;
  std::vector<float> col(4, 2.0f);
  std::vector<float> factors(4, 3.0f);
  FactoredMeanSquares(shape, {}, row, col);
  FactoredRsqrt(shape, row, col, row, factors);
  CHECK(col == std::vector<float>(4, 2.0f));
  CHECK(factors == std::vector<float>(4, 3.0f));
}

}  // namespace
}  // namespace lopt
