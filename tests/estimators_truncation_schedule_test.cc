#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/estimators/registry.h"
#include "lopt/estimators/truncation_schedule.h"

namespace lopt {
namespace {

TEST_CASE("A constant schedule gives its length and a never-ending one has no end") {
  const ConstantTruncationSchedule constant({.total_length = 10});
  CHECK(constant.Length(KeyFromSeed(1), {}) == 10);
  CHECK(constant.EpisodesEnd());
  const NeverEndingTruncationSchedule never;
  CHECK(never.Length(KeyFromSeed(1), {}) == TruncationSchedule::kNever);
  CHECK_FALSE(never.EpisodesEnd());
}

TEST_CASE("A schedule says which length its episodes do not exceed") {
  CHECK(ConstantTruncationSchedule({.total_length = 10}).Longest(1) == 10);
  CHECK(LogUniformLengthSchedule({.min_length = 100, .max_length = 2000}).Longest(1) == 2000);
  CHECK(NeverEndingTruncationSchedule().Longest(1) == TruncationSchedule::kNever);
  const ScheduledTruncationSchedule schedule(
      {.outer_steps = {0, 10, 20}, .lengths = {10, 110, 50}, .min_length = 15});
  CHECK(schedule.Longest(1) == 15);
  CHECK(schedule.Longest(6) == 60);
  CHECK(schedule.Longest(11) == 110);
  CHECK(schedule.Longest(1000) == 110);
  // With what the largest normal adds.
  const ScheduledTruncationSchedule noisy({.lengths = {200}, .std = 50, .min_length = 10});
  CHECK(noisy.Longest(1) == 475);
  int64_t longest = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    longest = std::max(longest, noisy.Length(FoldIn(KeyFromSeed(3), i), {}));
  }
  CHECK(longest > 350);
  CHECK(longest <= noisy.Longest(1));
  CHECK(ScheduledTruncationSchedule({.lengths = {200}, .std = 2, .min_length = 300}).Longest(1) ==
        300);
}

TEST_CASE("A schedule says which length its episodes have at least") {
  CHECK(ConstantTruncationSchedule({.total_length = 10}).Shortest(1) == 10);
  CHECK(LogUniformLengthSchedule({.min_length = 100, .max_length = 2000}).Shortest(1) == 100);
  CHECK(NeverEndingTruncationSchedule().Shortest(1) == TruncationSchedule::kNever);
  const ScheduledTruncationSchedule falls(
      {.outer_steps = {5, 15, 25}, .lengths = {110, 10, 50}, .min_length = 15});
  CHECK(falls.Shortest(1) == 110);
  CHECK(falls.Shortest(11) == 60);
  CHECK(falls.Shortest(16) == 15);
  CHECK(falls.Shortest(1000) == 15);
  // What a normal distribution takes off has no bound of its own.
  CHECK(ScheduledTruncationSchedule({.lengths = {200}, .std = 50, .min_length = 10}).Shortest(1) ==
        10);
}

TEST_CASE("Log-uniform lengths have the law of exp(U) rounded down") {
  const LogUniformLengthSchedule schedule({.min_length = 100, .max_length = 2000});
  constexpr int64_t kDraws = 1000000;
  const Key key = KeyFromSeed(7);
  double sum = 0;
  double squares = 0;
  int64_t least = TruncationSchedule::kNever;
  int64_t most = 0;
  int64_t at_100 = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const int64_t length = schedule.Length(FoldIn(key, static_cast<uint64_t>(i)), {});
    sum += static_cast<double>(length);
    squares += static_cast<double>(length * length);
    least = std::min(least, length);
    most = std::max(most, length);
    at_100 += length == 100 ? 1 : 0;
  }
  const double mean = sum / kDraws;
  CHECK(mean == doctest::Approx(633.736).epsilon(0.003));
  CHECK(std::sqrt(squares / kDraws - mean * mean) == doctest::Approx(513.51).epsilon(0.003));
  CHECK(least == 100);
  CHECK(most == 1999);
  const double share = std::log(101.0 / 100.0) / std::log(20.0);
  const double standard_error = std::sqrt(share * (1 - share) / kDraws);
  CHECK(std::abs(static_cast<double>(at_100) / kDraws - share) < 4 * standard_error);
}

TEST_CASE("A scheduled length follows the outer step between its points") {
  const ScheduledTruncationSchedule schedule({.outer_steps = {0, 10}, .lengths = {10, 100}});
  CHECK(schedule.Length({}, {.outer_step = 0}) == 10);
  CHECK(schedule.Length({}, {.outer_step = 5}) == 55);
  CHECK(schedule.Length({}, {.outer_step = 10}) == 100);
  CHECK(schedule.Length({}, {.outer_step = 1000}) == 100);
}

TEST_CASE("A scheduled length with noise keeps its minimum and its mean") {
  const ScheduledTruncationSchedule schedule(
      {.outer_steps = {0}, .lengths = {50}, .std = 10, .min_length = 20});
  double sum = 0;
  int64_t least = TruncationSchedule::kNever;
  for (uint64_t i = 0; i < 20000; ++i) {
    const int64_t length = schedule.Length(FoldIn(KeyFromSeed(3), i), {});
    sum += static_cast<double>(length);
    least = std::min(least, length);
  }
  CHECK(least == 20);
  CHECK(std::abs(sum / 20000 - 50) < 4 * 10 / std::sqrt(20000.0));
}

TEST_CASE("Schedules refuse options that contradict each other") {
  CHECK_THROWS_WITH_AS(LogUniformLengthSchedule({.min_length = 300, .max_length = 300}),
                       "LogUniformLengthSchedule: min_length 300 must be below max_length 300",
                       Error);
  CHECK_THROWS_WITH_AS(ScheduledTruncationSchedule({.outer_steps = {0, 1}, .lengths = {5}}),
                       "ScheduledTruncationSchedule: 2 outer_steps for 1 lengths; there must be as "
                       "many, and at least one",
                       Error);
  CHECK_THROWS_WITH_AS(ScheduledTruncationSchedule({.outer_steps = {4, 4}, .lengths = {5, 6}}),
                       "ScheduledTruncationSchedule: outer_steps must increase, got 4 after 4",
                       Error);
}

}  // namespace
}  // namespace lopt
