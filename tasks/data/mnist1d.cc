#include "lopt/tasks/data/mnist1d.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "lopt/base/permutation.h"
#include "lopt/base/workspace.h"

namespace lopt {
namespace {

constexpr uint64_t kMnist1dSeed = 4;
constexpr int64_t kPublished = 5000;  // signals of the published set, in an order of their own
constexpr int64_t kTrainSignals = 4000;
constexpr int64_t kTestSignals = 10000;
constexpr int64_t kSignals = kTrainSignals + kTestSignals;
constexpr int64_t kLeastPadding = 36;
constexpr int64_t kMostPadding = 60;
constexpr int64_t kShifts = 48;

constexpr int64_t kTemplate = 12;
constexpr double kTemplates[Mnist1d::kClasses][kTemplate] = {
    {5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5},
    {5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5},
    {5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5},
    {5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5},
    {5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5},
    {5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5},
    {5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5},
    {5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5},
    {5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5},
    {5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5},
};
// What is not padding differs from 0 by at least this much.
constexpr double kNotPadding = 1e-8;

struct SignalMoments {
  double mean = 0;
  double deviation = 0;
};

template <class Value>
SignalMoments MomentsOf(std::span<const Value> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const Value value : values) squares += (value - mean) * (value - mean);
  return {.mean = mean, .deviation = std::sqrt(squares / n)};
}

// `out` evenly spaced points of the line through evenly spaced points `in`, ends on ends.
void Stretch(std::span<const double> in, std::span<double> out) {
  const auto last = std::ssize(in) - 1;
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const int64_t scaled = i * last;
    const int64_t steps = std::ssize(out) - 1;
    const int64_t low = std::min(scaled / steps, last - 1);
    const double fraction = static_cast<double>(scaled - low * steps) / static_cast<double>(steps);
    const auto at = static_cast<size_t>(low);
    out[static_cast<size_t>(i)] = in[at] + fraction * (in[at + 1] - in[at]);
  }
}

// A Gaussian of standard deviation 2, cut off at 8 points, the signal mirrored about its ends.
std::array<double, Mnist1d::kPadded> Smooth(const std::array<double, Mnist1d::kPadded>& in) {
  constexpr int64_t kRadius = 8;
  constexpr double kDeviation = 2;
  std::array<double, 2 * kRadius + 1> weights;
  for (int64_t k = -kRadius; k <= kRadius; ++k) {
    const auto distance = static_cast<double>(k);
    weights[static_cast<size_t>(k + kRadius)] =
        std::exp(-distance * distance / (2 * kDeviation * kDeviation));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::array<double, Mnist1d::kPadded> out{};
  for (int64_t i = 0; i < Mnist1d::kPadded; ++i) {
    for (int64_t k = -kRadius; k <= kRadius; ++k) {
      int64_t from = i + k;
      if (from < 0) from = -1 - from;
      if (from >= Mnist1d::kPadded) from = 2 * Mnist1d::kPadded - 1 - from;
      out[static_cast<size_t>(i)] +=
          weights[static_cast<size_t>(k + kRadius)] / total * in[static_cast<size_t>(from)];
    }
  }
  return out;
}

}  // namespace

Mnist1d::Draws DrawMnist1d(Key key) {
  Mnist1d::Draws draws;
  draws.padding = Randint(FoldIn(key, 0), kLeastPadding, kMostPadding + 1);
  draws.scale = 0.8 + 0.4 * Uniform(FoldIn(key, 1));
  draws.shift = Randint(FoldIn(key, 2), 0, kShifts);
  draws.slope = 0.75 * (Uniform(FoldIn(key, 3)) - 0.5);
  std::array<float, 2 * Mnist1d::kPadded> normal;
  Normal(FoldIn(key, 4), normal);
  for (size_t i = 0; i < Mnist1d::kPadded; ++i) {
    draws.correlated_noise[i] = 0.25 * normal[i];
    draws.noise[i] = 0.02 * normal[Mnist1d::kPadded + i];
  }
  return draws;
}

std::array<double, Mnist1d::kPoints> Mnist1dSignal(int64_t label, const Mnist1d::Draws& draws) {
  const std::span<const double> shape = kTemplates[label];
  const double deviation = MomentsOf(shape).deviation;
  std::array<double, kTemplate + kMostPadding> padded{};
  for (size_t i = 0; i < kTemplate; ++i) {
    padded[i] = (shape[i] - shape[0]) / deviation / 6 + kNotPadding;
  }
  std::array<double, Mnist1d::kPadded> signal;
  Stretch({padded.data(), static_cast<size_t>(kTemplate + draws.padding)}, signal);
  std::rotate(signal.begin(), signal.end() - draws.shift, signal.end());
  const std::array<double, Mnist1d::kPadded> background = Smooth(draws.correlated_noise);
  for (size_t i = 0; i < Mnist1d::kPadded; ++i) {
    const double along = static_cast<double>(i) / (Mnist1d::kPadded - 1) - 0.5;
    signal[i] = (signal[i] != 0 ? draws.scale * signal[i] : background[i]) + draws.noise[i] -
                draws.slope * along;
  }
  std::array<double, Mnist1d::kPoints> points;
  Stretch(signal, points);
  return points;
}

RawSignals MakeMnist1d() {
  const Key key = KeyFromSeed(kMnist1dSeed);
  Workspace scratch;
  const Permutation order(FoldIn(key, 0), kPublished, scratch);
  RawSignals all{.count = kSignals, .height = Mnist1d::kPoints, .width = 1};
  std::vector<double> values;
  for (int64_t row = 0; row < kSignals; ++row) {
    const bool published = row < kPublished;
    const int64_t signal = published ? order(row) : row;
    const int64_t label =
        published ? signal / (kPublished / Mnist1d::kClasses) : signal % Mnist1d::kClasses;
    const auto points =
        Mnist1dSignal(label, DrawMnist1d(FoldIn(FoldIn(key, 1), static_cast<uint64_t>(signal))));
    values.insert(values.end(), points.begin(), points.end());
    all.labels.push_back(static_cast<uint8_t>(label));
  }
  const SignalMoments moments =
      MomentsOf(std::span<const double>(values).first(kPublished * Mnist1d::kPoints));
  for (const double value : values) {
    all.pixels.push_back(static_cast<float>((value - moments.mean) / moments.deviation));
  }
  SplitTrainAndTest(kTrainSignals, kTestSignals, all.splits);
  return all;
}

}  // namespace lopt
