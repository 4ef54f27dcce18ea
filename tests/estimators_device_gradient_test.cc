#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "lopt/base/emulated_device.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/device_gradient.h"
#include "tests/error_of.h"
#include "tests/farthest.h"

namespace lopt {
namespace {

constexpr double kStd = 0.1;
constexpr int64_t kSteps = 12;

struct GradientCase {
  int64_t pairs = 3;
  int64_t dimension = 33;
  PerturbationClock clock = {};
  std::optional<double> sign = {};
};

// Window number `window` of pairs whose episodes end after 5 + n steps, twice or more inside it,
// and whose losses are normal numbers; one is not finite.
class Windows {
 public:
  explicit Windows(int64_t pairs)
      : steps_(static_cast<size_t>(pairs)), episodes_(static_cast<size_t>(pairs)) {}

  // Episodes of each pair that ended before the next window.
  const std::vector<int64_t>& episodes() const { return episodes_; }

  UnrollTrace Next() {
    const auto pairs = std::ssize(steps_);
    UnrollTrace trace;
    trace.Resize(kSteps, 2 * pairs);
    std::vector<float> losses(static_cast<size_t>(trace.loss.size()));
    Normal(FoldIn(KeyFromSeed(8), static_cast<uint64_t>(window_)), losses);
    std::ranges::copy(losses, trace.loss.data());
    trace.non_finite.setConstant(false);
    if (window_ == 1) trace.loss(4, 0) = std::numeric_limits<double>::quiet_NaN();
    for (int64_t n = 0; n < pairs; ++n) {
      for (int64_t k = 0; k < kSteps; ++k) {
        const bool last = steps_[n] == 4 + n;
        for (const int64_t b : {n, n + pairs}) {
          trace.iteration(k, b) = steps_[n];
          trace.is_last(k, b) = last;
        }
        steps_[n] = last ? 0 : steps_[n] + 1;
        episodes_[n] += last ? 1 : 0;
      }
    }
    ++window_;
    return trace;
  }

 private:
  int64_t window_ = 0;
  std::vector<int64_t> steps_;
  std::vector<int64_t> episodes_;
};

Perturbations Named(const GradientCase& of, int64_t window, std::vector<int64_t> episodes) {
  if (of.clock.block == PerturbationClock::kWindow) {
    const Key key = FoldIn(KeyFromSeed(7), static_cast<uint64_t>(window));
    return {SplitKey(key, of.pairs), kStd, of.dimension};
  }
  return {SplitKey(KeyFromSeed(7), of.pairs), std::move(episodes), of.clock, kStd, of.dimension};
}

// Four windows on the host and on devices whose threads run in several orders.
void CompareWithHost(const GradientCase& of) {
  CAPTURE(of.pairs);
  CAPTURE(of.dimension);
  CAPTURE(of.clock.block);
  const bool has_accumulator = of.clock.block != PerturbationClock::kEpisode;
  const EmulatedDevice devices[] = {EmulatedDevice(),
                                    EmulatedDevice(kGradientFloats * 4, ThreadOrder::kBackward),
                                    EmulatedDevice(kGradientFloats * 4, ThreadOrder::kMixed)};
  const Shape shape = {of.pairs, of.dimension};
  Array accumulator(DType::kFloat32, shape);
  Array accumulator_there[] = {accumulator.To(devices[0].memory()),
                               accumulator.To(devices[1].memory()),
                               accumulator.To(devices[2].memory())};
  Windows windows(of.pairs);
  for (int64_t w = 0; w < 4; ++w) {
    CAPTURE(w);
    const Perturbations perturbations = Named(of, w, windows.episodes());
    const PairsLosses losses = LossGroupsOf(windows.Next(), of.clock, of.sign);
    std::vector<double> norms;
    for (int64_t n = 0; has_accumulator && n < of.pairs; ++n) {
      const auto row = accumulator.As<float>().subspan(n * of.dimension, of.dimension);
      norms.push_back(std::sqrt(Dot(row, row)));
    }
    double squares = 0;
    Array nothing(DType::kFloat32, shape);
    const Eigen::VectorXf gradient = PersistentGradient(
        losses, [&](auto... draw) { perturbations.Draw(draw...); }, kStd,
        (has_accumulator ? accumulator : nothing).As<float>(), &squares);
    std::optional<PairsGradient> first;
    for (int d = 0; d < 3; ++d) {
      CAPTURE(d);
      const PairsGradient there = GradientOnDevice(
          devices[d], perturbations, losses, has_accumulator ? &accumulator_there[d] : nullptr);
      CHECK_LT(FarthestOfLargest(there.gradient, gradient), 1e-5);
      CHECK(there.squares == doctest::Approx(squares).epsilon(1e-5));
      CHECK_LT(FarthestOfLargest(there.accumulator_norms, norms), 1e-5);
      if (has_accumulator) {
        CHECK_LT(FarthestOfLargest(accumulator_there[d].To(HostMemory()).As<float>(),
                                   accumulator.As<float>()),
                 2e-6);
        CHECK(accumulator_there[d] == accumulator_there[0]);
      }
      if (!first) first = there;
      CHECK(there.gradient == first->gradient);
      CHECK_EQ(there.squares, first->squares);
      CHECK(there.accumulator_norms == first->accumulator_norms);
    }
  }
}

TEST_CASE("Gradients of pairs are added up on a device as on the host, through ends of episodes") {
  for (const int64_t block : {PerturbationClock::kWindow, int64_t{1}, int64_t{4}, int64_t{12},
                              PerturbationClock::kEpisode}) {
    CompareWithHost({.clock = {block}});
    CompareWithHost({.clock = {block}, .sign = 0.5});
  }
}

TEST_CASE("Any number of pairs and of theta's numbers has its place on a device") {
  for (const int64_t pairs : {1, 2, 7, 8, 9, 17}) CompareWithHost({.pairs = pairs});
  for (const int64_t dimension : {1, 31, 32, 257}) CompareWithHost({.dimension = dimension});
  CompareWithHost({.pairs = 5, .dimension = 131, .clock = {3}});
}

TEST_CASE("Without sums a device gives the gradient of plain evolution strategies") {
  constexpr int64_t kPairs = 11;
  constexpr int64_t kDimension = 45;
  const Perturbations perturbations(SplitKey(KeyFromSeed(2), kPairs), kStd, kDimension);
  std::vector<double> differences;
  PairsLosses losses;
  for (int64_t n = 0; n < kPairs; ++n) {
    differences.push_back(static_cast<double>(n * n % 5) - 1.5);
    losses.push_back({{.weight = differences.back()}});
  }
  const PairsGradient there = GradientOnDevice(EmulatedDevice(), perturbations, losses, nullptr);
  CHECK_LT(FarthestOfLargest(there.gradient,
                             WeightedPerturbations(differences, perturbations.Rows(), kStd)),
           1e-5);
  CHECK(there.squares ==
        doctest::Approx(SumOfSquaredGradients(differences, perturbations.Rows(), kStd))
            .epsilon(1e-5));
  CHECK(there.accumulator_norms.empty());
}

TEST_CASE("Too little memory, sums elsewhere and losses of other pairs are errors") {
  const Perturbations perturbations(SplitKey(KeyFromSeed(2), 2), kStd, 5);
  PairsLosses losses(2, {{.weight = 1}});
  CHECK(ErrorOf([&] { GradientOnDevice(EmulatedDevice(4095), perturbations, losses, nullptr); }) ==
        "device 'emulated': the gradient takes 4096 bytes of the 4095 that a block has");
  Array accumulator(DType::kFloat32, {2, 5});
  CHECK(ErrorOf([&] { GradientOnDevice(EmulatedDevice(), perturbations, losses, &accumulator); }) ==
        "device gradient: the sums are in the memory 'host', wanted 'emulated'");
  losses.pop_back();
  CHECK(ErrorOf([&] { GradientOnDevice(EmulatedDevice(), perturbations, losses, nullptr); }) ==
        "device gradient: losses of 1 pairs, wanted 2");
}

}  // namespace
}  // namespace lopt
