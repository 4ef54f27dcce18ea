#include "lopt/evaluation/trials.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "lopt/base/error.h"

namespace lopt {
namespace {

constexpr double kWorstLoss = std::numeric_limits<double>::infinity();
constexpr int kCandidates = 16;             // places of which one is tried
constexpr double kReachPerDistance = 0.5;   // of a winner's box
constexpr double kSmallestReach = 1. / 64;  // likewise
constexpr double kEdge = 0.15;              // a winner as close to a range's end extends it
constexpr double kExtension = 0.5;          // beyond that winner
constexpr double kFarthest = 1;             // that places may be outside the first range
constexpr size_t kWinners = 3;

// Where a trial of a round is taken from.
struct Source {
  std::optional<size_t> winner = {};  // its box; none: the ranges
  double reaches = 1;                 // of the box
};
constexpr std::array<Source, kTrialsPerRound> kSources = {{{.winner = 0},
                                                           {},
                                                           {.winner = 1},
                                                           {.winner = 0, .reaches = 2},
                                                           {.winner = 2},
                                                           {.winner = 0},
                                                           {.winner = 1}}};

using Place = std::vector<double>;

struct PlaceBox {
  Place low, high;
};

struct TuningWinner {
  Place place;
  double reach = 0;  // of its box on every side
};

// The option's value at a place.
double ValueAt(const TunedHyperparameter& hyperparameter, double place) {
  const auto& [name, lowest, highest, one_minus] = hyperparameter;
  const double value = lowest * std::pow(highest / lowest, place);
  return one_minus ? 1 - std::min(value, 1.0) : value;
}

double PlaceOf(const TunedHyperparameter& hyperparameter, double value) {
  const auto& [name, lowest, highest, one_minus] = hyperparameter;
  return std::log((one_minus ? 1 - value : value) / lowest) / std::log(highest / lowest);
}

double Loss(const TunedTrial& trial) { return std::isfinite(trial.loss) ? trial.loss : kWorstLoss; }

double Squared(double x) { return x * x; }

double SquaredDistance(const Place& a, const Place& b) {
  return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                               [](double x, double y) { return Squared(x - y); });
}

double LargestDifference(const Place& a, const Place& b) {
  return std::transform_reduce(
      a.begin(), a.end(), b.begin(), 0.0, [](double x, double y) { return std::max(x, y); },
      [](double x, double y) { return std::abs(x - y); });
}

// A point of the sequence that fills the n-dimensional unit cube evenly.
Place SequencePoint(size_t index, size_t n) {
  double phi = 2;
  for (int i = 0; i < 100; ++i) phi = std::pow(1 + phi, 1 / static_cast<double>(n + 1));
  Place point;
  for (size_t j = 1; j <= n; ++j) {
    const double turns = 0.5 + static_cast<double>(index) / std::pow(phi, static_cast<double>(j));
    point.push_back(turns - std::floor(turns));
  }
  return point;
}

// What is known of the places after some trials.
class TriedPlaces {
 public:
  TriedPlaces(const std::vector<TunedHyperparameter>& tuned, std::span<const TunedTrial> trials)
      : n_(tuned.size()) {
    for (const TunedTrial& trial : trials) {
      Place& place = places_.emplace_back();
      for (size_t j = 0; j < n_; ++j) place.push_back(PlaceOf(tuned[j], trial.values[j]));
      losses_.push_back(Loss(trial));
    }
    for (const TunedHyperparameter& hyperparameter : tuned) {
      limits_.low.push_back(-kFarthest);
      limits_.high.push_back(hyperparameter.one_minus
                                 ? std::min(1 + kFarthest, PlaceOf(hyperparameter, 0))
                                 : 1 + kFarthest);
    }
  }

  // The ranges, extended where the best lies at an end of one.
  PlaceBox Ranges() const {
    PlaceBox ranges = {.low = Place(n_, 0), .high = Place(n_, 1)};
    const auto best = std::ranges::min_element(losses_);
    if (best == losses_.end() || *best == kWorstLoss) return ranges;
    const Place& at = places_[static_cast<size_t>(best - losses_.begin())];
    for (size_t j = 0; j < n_; ++j) {
      if (at[j] < kEdge) ranges.low[j] = std::min(0.0, at[j] - kExtension);
      if (at[j] > 1 - kEdge) ranges.high[j] = std::max(1.0, at[j] + kExtension);
    }
    return Limited(ranges);
  }

  // The best first.
  std::vector<TuningWinner> Winners() const {
    std::vector<size_t> order(places_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return losses_[i]; });
    std::vector<TuningWinner> winners;
    for (const size_t i : order) {
      if (losses_[i] == kWorstLoss || winners.size() == kWinners) break;
      if (const auto reach = ReachOfWinner(i)) winners.push_back({places_[i], *reach});
    }
    return winners;
  }

  PlaceBox Around(const TuningWinner& winner, double reaches) const {
    PlaceBox box = {.low = winner.place, .high = winner.place};
    for (double& low : box.low) low -= reaches * winner.reach;
    for (double& high : box.high) high += reaches * winner.reach;
    return Limited(box);
  }

  // The emptiest of the places in the box that the next points of the sequence have.
  Place Emptiest(const PlaceBox& box) const {
    Place emptiest;
    double largest = -1;
    for (size_t i = 0; i < kCandidates; ++i) {
      Place place = SequencePoint(places_.size() + i, n_);
      for (size_t j = 0; j < n_; ++j) place[j] = std::lerp(box.low[j], box.high[j], place[j]);
      double nearest = kWorstLoss;
      for (const Place& tried : places_) {
        nearest = std::min(nearest, SquaredDistance(place, tried));
      }
      if (nearest <= largest) continue;
      largest = nearest;
      emptiest = std::move(place);
    }
    return emptiest;
  }

  // A place that is to be tried, whose loss is not known yet.
  void Add(Place place) { places_.push_back(std::move(place)); }

 private:
  // How far the box of a trial reaches; nothing if it is not better than those nearest to it.
  std::optional<double> ReachOfWinner(size_t i) const {
    std::vector<std::pair<double, size_t>> others;  // by distance
    for (size_t j = 0; j < places_.size(); ++j) {
      if (j != i) others.emplace_back(LargestDifference(places_[i], places_[j]), j);
    }
    const size_t count = std::min(2 * n_, others.size());
    std::ranges::partial_sort(others, others.begin() + static_cast<std::ptrdiff_t>(count));
    for (const auto& [distance, j] : std::span(others).first(count)) {
      if (std::pair(losses_[j], j) < std::pair(losses_[i], i)) return std::nullopt;
    }
    return std::max(kReachPerDistance * others[count - 1].first, kSmallestReach);
  }

  PlaceBox Limited(PlaceBox box) const {
    for (size_t j = 0; j < n_; ++j) {
      box.low[j] = std::max(box.low[j], limits_.low[j]);
      box.high[j] = std::min(box.high[j], limits_.high[j]);
    }
    return box;
  }

  const size_t n_;
  std::vector<Place> places_;
  std::vector<double> losses_;  // of the first of them
  PlaceBox limits_;
};

// The places of a later round.
std::vector<Place> LaterRound(TriedPlaces tried) {
  const PlaceBox ranges = tried.Ranges();
  const std::vector<TuningWinner> winners = tried.Winners();
  std::vector<Place> round;
  for (const auto& [winner, reaches] : kSources) {
    PlaceBox box = ranges;
    if (winner && !winners.empty()) {
      box = tried.Around(winners[*winner < winners.size() ? *winner : 0], reaches);
    }
    round.push_back(tried.Emptiest(box));
    tried.Add(round.back());
  }
  return round;
}

std::vector<Place> FirstRound(size_t n) {
  std::vector<Place> round;
  for (size_t i = 0; i < kTrialsPerRound; ++i) round.push_back(SequencePoint(i, n));
  return round;
}

}  // namespace

std::vector<std::vector<double>> NextTrials(const std::vector<TunedHyperparameter>& tuned,
                                            std::span<const TunedTrial> trials) {
  Require(std::ssize(trials) % kTrialsPerRound == 0,
          "tuning: wanted whole rounds of {} trials, got {} trials", kTrialsPerRound,
          trials.size());
  for (const TunedTrial& trial : trials) {
    Require(trial.values.size() == tuned.size(), "tuning: wanted {} values, got {}", tuned.size(),
            trial.values.size());
  }
  std::vector<std::vector<double>> round =
      trials.empty() ? FirstRound(tuned.size()) : LaterRound(TriedPlaces(tuned, trials));
  for (std::vector<double>& point : round) {
    for (size_t j = 0; j < tuned.size(); ++j) point[j] = ValueAt(tuned[j], point[j]);
  }
  return round;
}

std::vector<std::vector<double>> RandomTrials(const std::vector<TunedHyperparameter>& tuned,
                                              size_t tried, Key key) {
  std::vector<std::vector<double>> round;
  for (int64_t i = 0; i < kTrialsPerRound; ++i) {
    std::vector<float> places(tuned.size());
    Uniform(FoldIn(key, tried + static_cast<uint64_t>(i)), places);
    std::vector<double>& values = round.emplace_back();
    for (size_t j = 0; j < tuned.size(); ++j) values.push_back(ValueAt(tuned[j], places[j]));
  }
  return round;
}

size_t BestTrial(std::span<const TunedTrial> trials) {
  const auto best = std::ranges::min_element(trials, {}, Loss);
  return static_cast<size_t>(best - trials.begin());
}

}  // namespace lopt
