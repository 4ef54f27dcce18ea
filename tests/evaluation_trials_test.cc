#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/evaluation/trials.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Numbers of trials.
constexpr int64_t kBudgets[] = {11, 21, 31, 42, 63, 84, 126};

using Place = std::vector<double>;
using Surface = std::function<double(const Place&)>;

// A rate over three decades, a decay over as many, and one of 1 minus over two.
std::vector<TunedHyperparameter> Tuned(size_t n) {
  std::vector<TunedHyperparameter> tuned = {
      {.name = "learning_rate", .lowest = 1e-3, .highest = 1},
      {.name = "weight_decay", .lowest = 1e-5, .highest = 1e-2},
      {.name = "beta2", .lowest = 1e-4, .highest = 1e-2, .one_minus = true}};
  tuned.resize(n);
  return tuned;
}

// What part of the way through their ranges the values are, in decades.
Place PlaceIn(const std::vector<TunedHyperparameter>& tuned, const std::vector<double>& values) {
  Place place;
  for (size_t j = 0; j < tuned.size(); ++j) {
    const double value = tuned[j].one_minus ? 1 - values[j] : values[j];
    place.push_back((std::log10(value) - std::log10(tuned[j].lowest)) /
                    (std::log10(tuned[j].highest) - std::log10(tuned[j].lowest)));
  }
  return place;
}

std::vector<TunedTrial> Tune(const std::vector<TunedHyperparameter>& tuned, const Surface& surface,
                             int64_t trials) {
  std::vector<TunedTrial> tried;
  while (std::ssize(tried) < trials) {
    for (std::vector<double>& values : NextTrials(tuned, tried)) {
      const double loss = surface(PlaceIn(tuned, values));
      tried.push_back({.values = std::move(values), .loss = loss});
    }
  }
  tried.resize(static_cast<size_t>(trials));
  return tried;
}

std::vector<std::vector<double>> ValuesOf(std::span<const TunedTrial> trials) {
  std::vector<std::vector<double>> values;
  for (const TunedTrial& trial : trials) values.push_back(trial.values);
  return values;
}

// The squared distance to a place, coordinates j with weight weights[j] (1 if it has none).
Surface Bowl(Place optimum, Place weights = {}) {
  weights.resize(optimum.size(), 1);
  return [=](const Place& place) {
    double sum = 0;
    for (size_t j = 0; j < place.size(); ++j) {
      sum += weights[j] * (place[j] - optimum[j]) * (place[j] - optimum[j]);
    }
    return sum;
  };
}

// The same for points beyond this first coordinate: infinite.
Surface Below(double limit, const Surface& surface, double beyond = kInfinity) {
  return [=](const Place& place) { return place[0] > limit ? beyond : surface(place); };
}

// The best losses found with each of kBudgets.
std::vector<double> BestLosses(size_t n, const Surface& surface) {
  std::vector<double> best;
  for (const int64_t budget : kBudgets) {
    const std::vector<TunedTrial> tried = Tune(Tuned(n), surface, budget);
    best.push_back(tried[BestTrial(tried)].loss);
  }
  return best;
}

struct KnownSurface {
  std::string name;
  size_t n;
  Surface surface;
  // What the best loss is at most with each of kBudgets; the lowest loss there is is 0.
  std::vector<double> close;
};

// Bowls have squared distances as losses, ranges the length 1.
std::vector<KnownSurface> Surfaces() {
  const Place inside = {0.37, 0.81, 0.22};
  const Place end = {1, 0.81, 0.22};
  const Place outside = {1.5, 0.81, 0.22};
  const Surface stretched = Bowl(inside, {3, 0.3, 1});
  const Surface valley = [=](const Place& at) {
    const double across = at[1] - 0.8 - 2 * (at[0] - 0.4) * (at[0] - 0.4);
    return 10 * across * across + Bowl(inside)(at);
  };
  return {
      {"inside", 1, stretched, {1e-3, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5}},
      {"end", 1, Bowl(end), {1e-3, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5}},
      {"outside", 1, Bowl(outside), {3e-2, 3e-3, 1e-4, 1e-5, 1e-5, 1e-5, 1e-5}},
      {"half", 1, Below(0.4, stretched), {1e-3, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5}},
      {"inside", 2, stretched, {2e-2, 5e-3, 1e-3, 1e-3, 1e-4, 1e-4, 1e-4}},
      {"end", 2, Bowl(end), {0.1, 1e-2, 2e-3, 5e-4, 1e-4, 1e-4, 1e-4}},
      {"outside", 2, Bowl(outside), {0.4, 1e-2, 1e-2, 2e-3, 1e-4, 1e-4, 1e-4}},
      {"half", 2, Below(0.4, stretched), {0.1, 5e-2, 3e-2, 2e-2, 2e-3, 1e-3, 1e-4}},
      {"valley", 2, valley, {0.1, 1e-2, 2e-3, 2e-3, 5e-4, 2e-4, 1e-4}},
      {"inside", 3, stretched, {0.2, 5e-2, 3e-2, 1e-2, 2e-3, 5e-4, 1e-4}},
      {"end", 3, Bowl(end), {0.1, 0.1, 2e-2, 2e-2, 1e-3, 1e-4, 1e-4}},
      {"outside", 3, Bowl(outside), {0.2, 1e-2, 1e-2, 3e-3, 5e-4, 2e-4, 1e-4}},
      {"half", 3, Below(0.4, stretched), {0.2, 0.2, 0.1, 0.1, 5e-2, 3e-2, 1e-2}},
      {"valley", 3, valley, {0.1, 0.1, 5e-2, 2e-2, 1e-2, 5e-3, 1e-3}},
  };
}

TEST_CASE("The tuner comes close to known optima, never less so with more trials") {
  for (const auto& [name, n, surface, close] : Surfaces()) {
    CAPTURE(name);
    CAPTURE(n);
    const std::vector<double> best = BestLosses(n, surface);
    CHECK(std::ranges::is_sorted(best, std::greater<>()));
    for (size_t i = 0; i < best.size(); ++i) {
      CAPTURE(kBudgets[i]);
      CHECK(best[i] <= close[i]);
    }
  }
}

TEST_CASE("The first N of M trials are the N trials") {
  for (const auto& [name, n, surface, close] : Surfaces()) {
    CAPTURE(name);
    const std::vector<std::vector<double>> all = ValuesOf(Tune(Tuned(n), surface, 126));
    for (const int64_t budget : kBudgets) {
      const std::vector<std::vector<double>> some = ValuesOf(Tune(Tuned(n), surface, budget));
      CHECK(std::equal(some.begin(), some.end(), all.begin()));
    }
  }
}

TEST_CASE("No values are tried twice") {
  for (const auto& [name, n, surface, close] : Surfaces()) {
    CAPTURE(name);
    std::vector<std::vector<double>> all = ValuesOf(Tune(Tuned(n), surface, 126));
    std::ranges::sort(all);
    CHECK(std::ranges::adjacent_find(all) == all.end());
  }
}

TEST_CASE("The first trials are the points of known sequences, from the middle on") {
  // Multiples of 1 / 1.61803398875; of 1 / 1.32471795724 and its square; of 1 / 1.22074408460, its
  // square and its cube. Each with 1/2 added, without the whole turns.
  const double roots[] = {1.61803398875, 1.32471795724, 1.22074408460};
  for (size_t n = 1; n <= 3; ++n) {
    const std::vector<std::vector<double>> round = NextTrials(Tuned(n), {});
    REQUIRE(round.size() == 7);
    for (size_t i = 0; i < 7; ++i) {
      const Place place = PlaceIn(Tuned(n), round[i]);
      REQUIRE(place.size() == n);
      double step = 1;
      for (size_t j = 0; j < n; ++j) {
        step /= roots[n - 1];
        const double turns = 0.5 + static_cast<double>(i) * step;
        CHECK(place[j] == doctest::Approx(turns - std::floor(turns)).epsilon(1e-6));
      }
    }
  }
  CHECK(NextTrials({{.name = "step_multiplier", .lowest = 1. / 32, .highest = 32}}, {})[0][0] == 1);
}

TEST_CASE("Trials of a later round lie in the boxes of the winners, in turn") {
  // The places of the first round, sorted: .118, .208, .354, .500, .590, .736, .972.
  const Place optimum = {0.34};
  const std::vector<TunedTrial> tried = Tune(Tuned(1), Bowl(optimum), 14);
  std::vector<double> places;
  for (const TunedTrial& trial : tried) places.push_back(PlaceIn(Tuned(1), trial.values)[0]);
  // .354 is the only winner, and its second nearest place is .208 (one of .500 is as far):
  // half that way on either side.
  const double reach = (places[3] - places[6]) / 2;
  CHECK(places[3] == doctest::Approx(0.354102).epsilon(1e-5));
  CHECK(places[6] == doctest::Approx(0.208204).epsilon(1e-5));
  for (const size_t i : {7, 9, 10, 11, 12, 13}) {
    CHECK(std::abs(places[i] - places[3]) <= (i == 10 ? 2 : 1) * reach * (1 + 1e-9));
  }
  // Anywhere: not next to any other.
  for (size_t i = 0; i < 8; ++i) CHECK(std::abs(places[8] - places[i]) > 0.1);
}

TEST_CASE("Three winners are followed") {
  // Three basins as far apart as they can be; the first is the deepest in the first round, the
  // last, a narrow one, in truth.
  const Surface three = [](const Place& at) {
    return std::min({0.5 * Bowl({0.15, 0.15})(at) + 0.02, Bowl({0.85, 0.2})(at) + 0.03,
                     4 * Bowl({0.6, 0.85})(at)});
  };
  const std::vector<TunedTrial> tried = Tune(Tuned(2), three, 63);
  for (const Place& basin : {Place{0.15, 0.15}, {0.85, 0.2}, {0.6, 0.85}}) {
    int64_t near = 0;
    for (const TunedTrial& trial : tried) {
      near += Bowl(basin)(PlaceIn(Tuned(2), trial.values)) < 0.15 * 0.15 ? 1 : 0;
    }
    CAPTURE(basin[0]);
    CHECK(near >= 6);  // even spreading would have 63 x .07 = 4.5, one winner alone 1 in others
  }
  CHECK(tried[BestTrial(tried)].loss < 0.01);
}

TEST_CASE("A winner at an end extends the range, to its width beyond and no further") {
  for (const double sign : {1., -1.}) {
    for (size_t n = 1; n <= 3; ++n) {
      CAPTURE(sign);
      CAPTURE(n);
      double farthest = 0;
      for (const TunedTrial& trial : Tune(
               Tuned(n), [&](const Place& at) { return -sign * at[0]; }, 63)) {
        const Place place = PlaceIn(Tuned(n), trial.values);
        farthest = std::max(farthest, sign > 0 ? place[0] - 1 : -place[0]);
        for (const double x : place) CHECK(std::abs(x - 0.5) < 1.5 + 1e-9);
      }
      CHECK(farthest > 0.9);
    }
  }
  // Inside, no trial leaves the ranges.
  for (const TunedTrial& trial : Tune(Tuned(2), Bowl({0.5, 0.5}), 126)) {
    for (const double x : PlaceIn(Tuned(2), trial.values)) CHECK(std::abs(x - 0.5) <= 0.5);
  }
}

TEST_CASE("What is 1 minus a value stays at least 0 and below 1") {
  const std::vector<TunedHyperparameter> tuned = {
      {.name = "beta1", .lowest = 0.02, .highest = 0.5, .one_minus = true}};
  std::vector<TunedTrial> tried;
  double lowest = 1;
  while (tried.size() < 63) {
    for (const std::vector<double>& values : NextTrials(tuned, tried)) {
      tried.push_back({.values = values, .loss = values[0]});
      CHECK(values[0] >= 0);
      CHECK(values[0] < 1);
      lowest = std::min(lowest, values[0]);
    }
  }
  CHECK(lowest < 0.05);
}

TEST_CASE("A loss that is not finite is infinite, and no trial is repeated for it") {
  const Surface bowl = Bowl({0.37, 0.6});
  const auto infinite = ValuesOf(Tune(Tuned(2), Below(0.4, bowl), 63));
  CHECK(ValuesOf(Tune(Tuned(2), Below(0.4, bowl, kNaN), 63)) == infinite);
  CHECK(ValuesOf(Tune(Tuned(2), Below(0.4, bowl, -kInfinity), 63)) == infinite);
  // Where all is infinite, the first is the best, and the rest fills the ranges.
  const std::vector<TunedTrial> lost = Tune(Tuned(2), Below(-9, bowl, kNaN), 63);
  CHECK(BestTrial(lost) == 0);
  int64_t quarter = 0;
  for (const TunedTrial& trial : lost) {
    const Place place = PlaceIn(Tuned(2), trial.values);
    for (const double x : place) CHECK(std::abs(x - 0.5) <= 0.5);
    quarter += place[0] < 0.5 && place[1] < 0.5 ? 1 : 0;
  }
  CHECK(quarter >= 12);
  CHECK(quarter <= 20);
}

TEST_CASE("The tuner sees of the losses only their order") {
  for (const auto& [name, n, surface, close] : Surfaces()) {
    CAPTURE(name);
    const auto stretched = [&](const Place& at) { return std::exp(3 * surface(at)) - 100; };
    CHECK(ValuesOf(Tune(Tuned(n), stretched, 42)) == ValuesOf(Tune(Tuned(n), surface, 42)));
  }
}

TEST_CASE("The best trial has the lowest loss, the first of equals, and none that is not finite") {
  const std::vector<TunedTrial> trials = {
      {.loss = kNaN}, {.loss = -kInfinity}, {.loss = 2}, {.loss = 1}, {.loss = 1}};
  CHECK(BestTrial(trials) == 3);
}

TEST_CASE("A random search draws each logarithm evenly from its range, anew in each round") {
  const std::vector<TunedHyperparameter> tuned = Tuned(3);
  const Key key = KeyFromSeed(7);
  constexpr int64_t kRounds = 300;
  Place sums(3);
  std::vector<std::vector<double>> before;
  for (int64_t round = 0; round < kRounds; ++round) {
    const auto tried = static_cast<size_t>(round * kTrialsPerRound);
    const std::vector<std::vector<double>> values = RandomTrials(tuned, tried, key);
    REQUIRE(std::ssize(values) == kTrialsPerRound);
    CHECK(values == RandomTrials(tuned, tried, key));
    CHECK(values != before);
    before = values;
    for (const std::vector<double>& trial : values) {
      const Place place = PlaceIn(tuned, trial);
      for (size_t j = 0; j < 3; ++j) {
        CHECK(place[j] > -1e-6);  // rounding of the logarithms
        CHECK(place[j] < 1 + 1e-6);
        sums[j] += place[j];
      }
    }
  }
  // Four standard deviations, 1 / sqrt(12 n), of the mean of n even draws.
  const double draws = kRounds * kTrialsPerRound;
  for (const double sum : sums) CHECK(std::abs(sum / draws - 0.5) < 4 / std::sqrt(12 * draws));
}

TEST_CASE("The tuner wants whole rounds and a value for each hyperparameter") {
  const std::vector<TunedTrial> some(6, {.values = {0.1}, .loss = 1});
  CHECK_THROWS_WITH_AS(NextTrials(Tuned(1), some),
                       "tuning: wanted whole rounds of 7 trials, got 6 trials", Error);
  const std::vector<TunedTrial> others(7, {.values = {0.1}, .loss = 1});
  CHECK_THROWS_WITH_AS(NextTrials(Tuned(2), others), "tuning: wanted 2 values, got 1", Error);
}

}  // namespace
}  // namespace lopt
