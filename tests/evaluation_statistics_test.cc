#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/evaluation/statistics.h"
#include "tests/paths.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

TEST_CASE("the interquartile mean leaves out floor(n / 4) values at each end") {
  const auto mean = [](const std::vector<double>& values) { return InterquartileMean(values); };
  CHECK(mean({7}) == 7);
  CHECK(mean({1, 2}) == 1.5);
  CHECK(mean({100, 1, 2}) == doctest::Approx(103.0 / 3).epsilon(1e-15));
  CHECK(mean({100, 2, 1, -50}) == 1.5);
  CHECK(mean({1000, 4, 1, 2, 3, -1000, 0}) == 2);  // -1000 and 1000 are left out of 7
  CHECK(mean({8, 7, 6, 5, 4, 3, 2, 1}) == 4.5);
}

TEST_CASE("values that are not finite make the interquartile mean infinite unless they are cut") {
  const auto mean = [](const std::vector<double>& values) { return InterquartileMean(values); };
  CHECK(mean({kInfinity, 1, 2, 3}) == 2.5);
  CHECK(mean({1, kNan, 2, 3}) == 2.5);
  CHECK(mean({1, kNan, 2, kInfinity}) == kInfinity);
  CHECK(mean({kNan}) == kInfinity);
  CHECK(mean({kInfinity, -kInfinity}) == kInfinity);
}

TEST_CASE("no values, no strata, an empty stratum and no resamples are errors") {
  const std::vector<double> none;
  CHECK_THROWS_WITH_AS(InterquartileMean(none), "InterquartileMean: there are no values", Error);
  CHECK_THROWS_WITH_AS(StratifiedBootstrapInterval({}, Mean, 10, {}),
                       "StratifiedBootstrapInterval: there are no strata", Error);
  CHECK_THROWS_WITH_AS(StratifiedBootstrapInterval({{1, 2}, {}}, Mean, 10, {}),
                       "StratifiedBootstrapInterval: stratum 1 of 2 is empty", Error);
  CHECK_THROWS_WITH_AS(StratifiedBootstrapInterval({{1, 2}}, Mean, 0, {}),
                       "StratifiedBootstrapInterval: resamples must be at least 1, got 0", Error);
}

TEST_CASE("a quantile lies between its neighbors in proportion, and next to infinity on it") {
  const auto quantile = [](const std::vector<double>& sorted, double fraction) {
    return Quantile(sorted, fraction);
  };
  CHECK(quantile({3}, 0.7) == 3);
  CHECK(quantile({1, 2, 4}, 0) == 1);
  CHECK(quantile({1, 2, 4}, 0.25) == 1.5);
  CHECK(quantile({1, 2, 4}, 0.5) == 2);
  CHECK(quantile({1, 2, 4}, 1) == 4);
  CHECK(quantile({1, kInfinity, kInfinity}, 0) == 1);
  CHECK(quantile({1, kInfinity, kInfinity}, 0.25) == kInfinity);
  CHECK(quantile({1, kInfinity, kInfinity}, 0.75) == kInfinity);
  CHECK(quantile({-kInfinity, 1}, 0.5) == -kInfinity);
  CHECK_THROWS_WITH_AS(quantile({}, 0.5), "Quantile: there are no numbers", Error);
}

TEST_CASE("interval ends are percentiles with linear interpolation") {
  // The statistic of the resamples is 0, 1, ..., 40, whose 2.5th percentile is 1.
  double next = 0;
  const auto counter = [&](std::span<const double>) { return next++; };
  const Interval exact = StratifiedBootstrapInterval({{0}}, counter, 41, {});
  CHECK(exact.low == 1);
  CHECK(exact.high == 39);
  next = 0;
  const Interval between = StratifiedBootstrapInterval({{0}}, counter, 11, {});
  CHECK(between.low == doctest::Approx(.25).epsilon(1e-14));
  CHECK(between.high == doctest::Approx(9.75).epsilon(1e-14));
  const Interval one = StratifiedBootstrapInterval({{3}}, Mean, 1, {});
  CHECK(one.low == 3);
  CHECK(one.high == 3);
}

TEST_CASE("every stratum is resampled by itself, in its place and with all its values") {
  int64_t seen[2][3] = {};
  const auto look = [&](std::span<const double> values) {
    REQUIRE(values.size() == 5);
    for (size_t i = 0; i < 5; ++i) {
      const auto value = static_cast<int64_t>(values[i]);
      REQUIRE((i < 3 ? (value >= 0 && value < 3) : (value == 10 || value == 11)));
      ++seen[i < 3 ? 0 : 1][i < 3 ? value : value - 10];
    }
    return 0.0;
  };
  StratifiedBootstrapInterval({{0, 1, 2}, {10, 11}}, look, 4000, KeyFromSeed(1));
  // 12,000 draws of three values and 8,000 of two; five standard errors.
  for (const int64_t n : seen[0]) CHECK(std::abs(static_cast<double>(n) - 4000) < 5 * 51.7);
  for (const int64_t n : {seen[1][0], seen[1][1]}) {
    CHECK(std::abs(static_cast<double>(n) - 4000) < 5 * 44.8);
  }
}

TEST_CASE("strata of the same values draw independently of each other") {
  // The difference of two strata's means: its variance is the sum of both, not 0.
  const auto difference = [](std::span<const double> values) {
    return Mean(values.first(4)) - Mean(values.last(4));
  };
  const std::vector<double> stratum = {0, 1, 2, 3};
  const Interval interval =
      StratifiedBootstrapInterval({stratum, stratum}, difference, 2000, KeyFromSeed(2));
  CHECK(interval.low < -1);
  CHECK(interval.high > 1);
}

TEST_CASE("the same key gives the same interval and another key another") {
  const std::vector<std::vector<double>> strata = {{1.25, 2.5, 3.125, 7}, {4, 9, 1}};
  const Interval a = StratifiedBootstrapInterval(strata, Mean, 500, KeyFromSeed(3));
  const Interval b = StratifiedBootstrapInterval(strata, Mean, 500, KeyFromSeed(3));
  const Interval c = StratifiedBootstrapInterval(strata, Mean, 500, KeyFromSeed(4));
  CHECK(a.low == b.low);
  CHECK(a.high == b.high);
  CHECK((a.low != c.low || a.high != c.high));
}

TEST_CASE("an interval reaches infinity where enough resamples do, and is never NaN") {
  std::vector<double> values(16, 1.0);
  values[3] = kNan;
  const Interval mean = StratifiedBootstrapInterval({values}, Mean, 1000, KeyFromSeed(5));
  CHECK(mean.low == 1);
  CHECK(mean.high == kInfinity);
  const Interval iqm =
      StratifiedBootstrapInterval({values}, InterquartileMean, 1000, KeyFromSeed(5));
  CHECK(iqm.low == 1);
  CHECK(iqm.high == 1);
  const Interval all = StratifiedBootstrapInterval({{kInfinity, kNan}}, InterquartileMean, 50, {});
  CHECK(all.low == kInfinity);
  CHECK(all.high == kInfinity);
  const Interval both = StratifiedBootstrapInterval({{-kInfinity, kInfinity}}, Mean, 1001, {});
  CHECK(both.low == -kInfinity);
  CHECK(both.high == kInfinity);
}

TEST_CASE("the golden numbers of rliable: the means to 1e-12, the interval ends to 4 std. errors") {
  const std::string path = SourcePath("tests/golden/rliable.json");
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(path));
  REQUIRE(golden.at("cases").size() == 4);
  for (const auto& item : golden.at("cases").items()) {
    CAPTURE(item.key());
    const nlohmann::json& wanted = item.value();
    const auto scores = wanted.at("scores_by_task").get<std::vector<std::vector<double>>>();
    std::vector<double> all;
    for (const auto& task : scores) all.insert(all.end(), task.begin(), task.end());
    CHECK(std::abs(InterquartileMean(all) - wanted.at("iqm").get<double>()) <= 1e-12);

    const Interval got =
        StratifiedBootstrapInterval(scores, InterquartileMean, 50000, KeyFromSeed(6));
    // rliable's ends are means of 8 runs with the standard deviation `_sd` each; ours is one run.
    const double errors = 4 * std::sqrt(1 + 1.0 / 8);
    CHECK(std::abs(got.low - wanted.at("low").get<double>()) <=
          errors * wanted.at("low_sd").get<double>());
    CHECK(std::abs(got.high - wanted.at("high").get<double>()) <=
          errors * wanted.at("high_sd").get<double>());
  }
}

TEST_CASE("with one column the crossed bootstrap is the ordinary one") {
  const std::vector<double> values = {3, 1, 4, 1.5, 9, 2.6, 5.3};
  const Interval interval =
      PercentileInterval(CrossedBootstrap({.values = values}, 2000, KeyFromSeed(0)));
  const Interval wanted =
      StratifiedBootstrapInterval({values}, InterquartileMean, 2000, KeyFromSeed(0));
  CHECK(interval.low == wanted.low);
  CHECK(interval.high == wanted.high);
}

TEST_CASE("rows and columns are both drawn: their variances add up") {
  // Values a_r + b_c of two rows, whose interquartile mean is their mean. Under resampling the mean
  // of n values has their variance, here 1/4 and 200, divided by n.
  const std::vector<double> a = {0, 1};
  const std::vector<double> b = {0, 10, 20, 30, 40};
  Sample sample{.columns = 5};
  for (const double row : a) {
    for (const double column : b) sample.values.push_back(row + column);
  }
  constexpr int64_t kResamples = 20000;
  double sum = 0;
  double squares = 0;
  for (const double mean : CrossedBootstrap(sample, kResamples, KeyFromSeed(3))) {
    sum += mean - 20.5;
    squares += (mean - 20.5) * (mean - 20.5);
  }
  const double variance = 0.25 / 2 + 200.0 / 5;
  CHECK(std::abs(sum / kResamples) < 4 * std::sqrt(variance / kResamples));
  // The variance of the mean of squares is below 2 variance^2 / n for these, as for a normal.
  CHECK(squares / kResamples == doctest::Approx(variance).epsilon(4 * std::sqrt(2.0 / kResamples)));
}

TEST_CASE("samples of one shape are resampled alike, so that pairs keep their difference") {
  Sample sample{.columns = 3, .values = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}};
  const std::vector<double> one = CrossedBootstrap(sample, 100, KeyFromSeed(1));
  for (double& value : sample.values) value += 0.25;
  const std::vector<double> other = CrossedBootstrap(sample, 100, KeyFromSeed(1));
  for (size_t r = 0; r < one.size(); ++r) CHECK(other[r] - one[r] == doctest::Approx(0.25));
  CHECK_THROWS_WITH_AS(CrossedBootstrap({.columns = 5, .values = sample.values}, 1, Key{}),
                       "CrossedBootstrap: 12 values do not make rows of 5 columns", Error);
}

TEST_CASE("a row that is infinite makes no resample NaN") {
  const Sample sample{.columns = 2, .values = {1, 2, kInfinity, kInfinity, 3, 4}};
  for (const double value : CrossedBootstrap(sample, 200, KeyFromSeed(1))) CHECK(value >= 1);
}

TEST_CASE("the p-value is twice the smaller side, each counted with the observed one") {
  CHECK(BootstrapPValue(std::vector<double>{-1, -2, -3, -4, 1, -5, -6, -7, -8}) ==
        doctest::Approx(2 * 2.0 / 10));
  CHECK(BootstrapPValue(std::vector<double>{1, 2, 3}) == doctest::Approx(2 * 1.0 / 4));
  CHECK(BootstrapPValue(std::vector<double>{0, 0, 0}) == 1);
}

TEST_CASE("Holm rejects in ascending order until the first that is too large") {
  // Holm (1979): .01, .013, .014, .19, .35 and .40 against .05 / 6, / 5, ...: the first is above
  // .05 / 6, so none. With .005 in its place: .05 / 6, .01, .0125 ...: .013 > .01 stops it.
  CHECK(HolmRejections(std::vector<double>{.01, .013, .014, .19, .35, .4}, .05) ==
        std::vector<bool>(6, false));
  CHECK(HolmRejections(std::vector<double>{.4, .005, .013, .35}, .05) ==
        std::vector<bool>{false, true, true, false});
  CHECK(HolmRejections(std::vector<double>{.04, .03}, .05) == std::vector<bool>{false, false});
  CHECK(HolmRejections(std::vector<double>{.04, .02}, .05) == std::vector<bool>{true, true});
  CHECK(HolmRejections({}, .05).empty());
}

}  // namespace
}  // namespace lopt
