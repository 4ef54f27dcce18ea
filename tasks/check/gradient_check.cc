#include "lopt/tasks/check/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/permutation.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/check/task_rows.h"

namespace lopt::checks {
namespace {

// The loss is float32 and may have kinks (ReLU), so no single step size suits every direction: a
// short step loses digits, a long one meets a kink. A wrong gradient disagrees at all of them.
constexpr double kDifferenceSteps[] = {0.01, 0.003, 0.03, 0.001, 0.1, 3e-4};
// Where a kink is too close for any step, the slope lies between those to either side, which steps
// up to this one accept.
constexpr double kOneSidedStep = 0.003;
// Of a slope along any direction, relative to the root mean square of the gradient's elements.
constexpr double kSlopeTolerance = 0.02;
// Of an element relative to its own value, where that is smaller and the digits of the loss suffice
// at the first step; and at least this part of the root mean square. Kinks are then allowed for up
// to a longer step.
constexpr double kElementTolerance = 0.05;
constexpr double kSmallestTolerance = 0.005;
constexpr double kOneSidedStepOfElement = 0.03;
// Coordinates that are tried at each point.
constexpr int64_t kMostCoordinates = 256;
// Of the slope along the gradient, or one tensor's part of it, relative to that slope itself, in
// the median over points, because kinks err to either side; steps at which the loss's own digits
// are not enough are left out.
constexpr double kLengthTolerance = 0.004;
constexpr size_t kFewPoints = 3;
constexpr size_t kManyPoints = 15;
constexpr double kLongestLengthStep = 0.03;
constexpr double kLossRounding = std::numeric_limits<float>::epsilon();
// Steps in a tensor whose part of the gradient is 0, or too short for the loss's digits: along this
// many random directions at each of kFewPoints points, of which this many in all may be wrong.
constexpr double kLongStep = 0.3;
constexpr double kLongestStep = 1;
constexpr uint64_t kFaintDirections = 4;
constexpr int kMostWrongDirections = 3;

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The loss of one task along a direction.
class LossAlong {
 public:
  LossAlong(const TaskFamily& task, const TaskRows& at)
      : task_(task), moved_(at), here_(LossAt(at)) {}

  double here() const { return here_; }

  // Slopes to either side.
  struct Slopes {
    double forward = 0;
    double backward = 0;
    double Central() const { return (forward + backward) / 2; }
  };
  Slopes Measure(const TaskRows& at, const std::vector<float>& direction, double step) {
    const auto loss_at = [&](double distance) {
      for (size_t i = 0; i < direction.size(); ++i) {
        moved_.params[i] = static_cast<float>(at.params[i] + distance * direction[i]);
      }
      return LossAt(moved_);
    };
    return {.forward = (loss_at(step) - here_) / step, .backward = (here_ - loss_at(-step)) / step};
  }

 private:
  double LossAt(const TaskRows& rows) const {
    return double{EvaluateRows(task_, rows, {.gradients = false}).losses[0]};
  }

  const TaskFamily& task_;
  TaskRows moved_;
  double here_;
};

// In percent, without an exponent.
std::string Percent(double part) {
  const double percent = std::max(100 * std::abs(part), 0.001);
  return percent < 100 ? fmt::format("{:.3g} %", percent) : fmt::format("{:.0f} %", percent);
}

// By how much `value` is beside the right one.
std::string ErrorOf(double value, double right) {
  if (value * right < 0) return "it has the opposite sign";
  if (right == 0) return "it should be 0";
  return fmt::format("it is {} too {}", Percent(value / right - 1),
                     std::abs(value) > std::abs(right) ? "large" : "small");
}

// At most kMostCoordinates params, of each tensor as many unless it has fewer; all of a small task.
// Those of the next point are others.
std::vector<int64_t> CoordinatesAt(const Layout& params, int64_t point) {
  const int64_t count = std::min(params.size(), kMostCoordinates);
  Workspace scratch;
  std::vector<Permutation> orders;
  for (const LayoutEntry& entry : params.entries()) {
    orders.emplace_back(FoldIn(KeyFromSeed(9), orders.size()), std::max<int64_t>(entry.size, 1),
                        scratch);
  }
  // In turn of each tensor, as often as the points before this one have taken.
  std::vector<int64_t> coordinates;
  int64_t left_out = params.size() <= count ? 0 : point * count;
  for (int64_t turn = 0; std::ssize(coordinates) < count; turn = (turn + 1) % params.size()) {
    for (size_t t = 0; t < orders.size() && std::ssize(coordinates) < count; ++t) {
      const LayoutEntry& entry = params.entries()[t];
      if (turn >= entry.size || left_out-- > 0) continue;
      coordinates.push_back(entry.offset + orders[t](turn));
    }
  }
  return coordinates;
}

std::vector<float> RandomDirection(int64_t size, Key key) {
  std::vector<float> direction(size);
  Normal(key, direction);
  const double length = std::sqrt(Dot(direction, direction));
  for (float& value : direction) value /= static_cast<float>(length);
  return direction;
}

// Tensors whose part of the gradient is looked at by itself; all of them together come last.
std::vector<LayoutEntry> TensorsAndAll(const Layout& params) {
  std::vector<LayoutEntry> parts;
  if (params.entries().size() > 1) parts = params.entries();
  parts.push_back({.name = "", .shape = {}, .offset = 0, .size = params.size()});
  return parts;
}

// A task near its start, with its gradient there.
struct Point {
  TaskRows at;
  std::vector<float> gradient;
  LossAlong loss;

  Point(const TaskFamily& task, uint64_t seed)
      : at(DrawRows(task, 1, seed)), gradient(EvaluateRows(task, at).gradients), loss(task, at) {}
};

// Compares the gradient with differences of the loss along a direction of length 1: within
// `accepted` at some step or, where that takes more digits than the loss has or there is a kink,
// within `at_most`.
bool CheckSlope(Point& point, const std::string& name, const std::vector<float>& direction,
                double accepted, double at_most, double* worst, Findings* findings) {
  const double slope = Dot(point.gradient, direction);
  // Of the loss, and of the sums that it is made of.
  const double rounding = 2 * kLossRounding * std::abs(point.loss.here());
  if (rounding / kDifferenceSteps[0] > accepted) accepted = at_most;
  const bool own = accepted < at_most;
  double best = std::numeric_limits<double>::infinity();
  double nearest = 0;
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -lowest;
  for (const double step : kDifferenceSteps) {
    if (own && rounding / step > accepted) continue;
    const auto slopes = point.loss.Measure(point.at, direction, step);
    const double central = std::abs(slopes.Central() - slope);
    const double beside = std::max({0.0, std::min(slopes.forward, slopes.backward) - slope,
                                    slope - std::max(slopes.forward, slopes.backward)});
    const double apart = step <= (own ? kOneSidedStepOfElement : kOneSidedStep) ? beside : central;
    if (apart < best) {
      best = apart;
      nearest = slopes.Central();
    }
    if (best <= accepted) break;
    lowest = std::min(lowest, slopes.Central());
    highest = std::max(highest, slopes.Central());
  }
  // A kink: differences do not agree with one another either.
  if (own && best > accepted && highest - lowest > best / 2) {
    return CheckSlope(point, name, direction, at_most, at_most, worst, findings);
  }
  *worst = std::max(*worst, best / at_most * kSlopeTolerance);
  const std::string why =
      rounding / std::ranges::max(kDifferenceSteps) <= accepted
          ? ""
          : fmt::format("; the loss, {:.6g}, has too few digits to tell", point.loss.here());
  return findings->Expect(best <= accepted,
                          "along {} the gradient is {:.6g}, differences of the loss give {:.6g}: "
                          "{}, {:.3g} apart, accepted is {:.3g}{}",
                          name, slope, nearest, ErrorOf(slope, nearest), best, accepted, why);
}

// Along coordinates, of which one that is wrong is so at two points, and where none is along some
// random directions, which are of all of them.
void CheckSlopes(const Layout& params, std::vector<std::unique_ptr<Point>>& points,
                 Findings* findings) {
  constexpr uint64_t kRandom = 8;
  double worst = 0;
  std::set<int64_t> tried;
  std::set<int64_t> wrong;
  const auto tolerance_at = [&](size_t p) {
    const std::vector<float>& gradient = points[p]->gradient;
    return kSlopeTolerance *
           std::sqrt(Dot(gradient, gradient) / static_cast<double>(gradient.size()));
  };
  const auto agrees = [&](size_t p, int64_t i, double* error, Findings* to) {
    const double at_most = tolerance_at(p);
    const double at_least = at_most * kSmallestTolerance / kSlopeTolerance;
    const double own = kElementTolerance * std::abs(points[p]->gradient[i]);
    std::vector<float> direction(params.size());
    direction[i] = 1;
    return CheckSlope(*points[p], ElementName(params, i), direction,
                      std::clamp(own, at_least, at_most), at_most, error, to);
  };
  for (size_t p = 0; p < kFewPoints; ++p) {
    for (const int64_t i : CoordinatesAt(params, static_cast<int64_t>(p))) {
      if (wrong.contains(i)) continue;
      tried.insert(i);
      double error = 0;
      Findings here;
      if (agrees(p, i, &error, &here)) {
        worst = std::max(worst, error);
        continue;
      }
      // Between kinks a right one may seem wrong, but hardly so at another point.
      Findings elsewhere;
      for (size_t other = 0; other < kFewPoints && elsewhere.passed(); ++other) {
        if (other != p) agrees(other, i, &error, &elsewhere);
      }
      findings->Expect(elsewhere.passed(), "{}", here.messages()[0]);
      if (!elsewhere.passed()) wrong.insert(i);
    }
  }
  for (size_t p = 0; p < kFewPoints && wrong.empty(); ++p) {
    const double accepted = tolerance_at(p);
    for (uint64_t n = 0; n < kRandom; ++n) {
      CheckSlope(*points[p], "a random direction",
                 RandomDirection(params.size(), FoldIn(KeyFromSeed(p), n)), accepted, accepted,
                 &worst, findings);
    }
  }
  findings->Measure("slopes along {} of {} coordinates within {}", tried.size(), params.size(),
                    Percent(worst));
}

// By how much a part of the gradient is longer than differences of the loss along it say, relative
// to them; none if they say too little.
std::optional<double> LengthError(Point& point, const LayoutEntry& part) {
  std::vector<float> direction(point.gradient.size());
  std::copy_n(point.gradient.begin() + part.offset, part.size, direction.begin() + part.offset);
  const double length = std::sqrt(Dot(direction, direction));
  if (length == 0) return std::nullopt;
  for (float& value : direction) value = static_cast<float>(value / length);
  std::optional<double> best;
  for (const double step : kDifferenceSteps) {
    const double rounding = kLossRounding * std::abs(point.loss.here()) / step;
    if (step > kLongestLengthStep || rounding > kLengthTolerance * length) continue;
    const double slope = point.loss.Measure(point.at, direction, step).Central();
    const double error = length / slope - 1;
    if (!best || std::abs(error) < std::abs(*best)) best = error;
    if (std::abs(*best) <= kLengthTolerance / 4) break;
  }
  return best;
}

std::string WordsOf(const LayoutEntry& part) {
  return part.name.empty() ? "all params" : "tensor '" + part.name + "'";
}

// What CheckLength does where no length can be measured. Where kinks or plateaus are near, slopes
// of long steps do not agree with one another, and say nothing about the gradient.
void CheckFaintPart(std::vector<std::unique_ptr<Point>>& points, const LayoutEntry& part,
                    Findings* findings) {
  int wrong = 0;
  std::string example;
  for (size_t p = 0; p < kFewPoints; ++p) {
    Point& point = *points[p];
    const double rounding = 4 * kLossRounding * std::abs(point.loss.here());
    for (uint64_t n = 0; n < kFaintDirections; ++n) {
      std::vector<float> direction(point.gradient.size());
      std::ranges::copy(RandomDirection(part.size, FoldIn(KeyFromSeed(p), 100 + n)),
                        direction.begin() + part.offset);
      const double claimed = Dot(point.gradient, direction);
      const auto near = point.loss.Measure(point.at, direction, kLongStep);
      const double slope = near.Central();
      const double far = point.loss.Measure(point.at, direction, kLongestStep).Central();
      const auto [lowest, highest] = std::minmax({near.forward, near.backward, far});
      const bool agree = highest - lowest <= std::abs(slope) / 2 + 2 * rounding / kLongStep;
      const auto is_off = [&](double measured, double step) {
        return std::abs(measured - claimed) > std::max(rounding / step, std::abs(measured) / 2);
      };
      if (!agree || !is_off(slope, kLongStep) || !is_off(far, kLongestStep)) continue;
      if (++wrong > 1) continue;
      example = fmt::format("it is {:.3g} and differences of the loss give {:.3g}", claimed, slope);
    }
  }
  findings->Expect(
      wrong <= kMostWrongDirections,
      "the gradient of {} is wrong along {} of {} random directions, such as one where "
      "{}; accepted are {}",
      WordsOf(part), wrong, kFewPoints * kFaintDirections, example, kMostWrongDirections);
}

double Median(std::vector<double>& numbers) {
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

// Returns the size of the median error over points; none where no length can be measured. Where
// kinks spread the errors, three standard errors of the median are accepted beside the tolerance.
std::optional<double> CheckLength(const TaskFamily& task,
                                  std::vector<std::unique_ptr<Point>>& points,
                                  const LayoutEntry& part, Findings* findings) {
  constexpr double kStandardErrorOfMedian = 1.4826 * 1.2533;  // of the median distance from it
  std::vector<double> errors;
  double error = 0;
  double accepted = 0;
  for (const size_t count : {kFewPoints, kManyPoints}) {
    while (points.size() < count) points.push_back(std::make_unique<Point>(task, points.size()));
    errors.clear();
    for (size_t p = 0; p < count; ++p) {
      if (const auto found = LengthError(*points[p], part)) errors.push_back(*found);
    }
    if (errors.empty()) {
      CheckFaintPart(points, part, findings);
      return std::nullopt;
    }
    error = Median(errors);
    std::vector<double> distances = errors;
    for (double& distance : distances) distance = std::abs(distance - error);
    const double spread = count == kFewPoints ? 0 : Median(distances);
    accepted = kLengthTolerance +
               3 * kStandardErrorOfMedian * spread / std::sqrt(1.0 * std::ssize(errors));
    if (std::abs(error) <= accepted) break;
  }
  // A length is not negative, but a slope along it may be.
  const std::string found =
      error < -1 ? "has the opposite sign"
                 : fmt::format("is {} too {}", Percent(error), error > 0 ? "long" : "short");
  findings->Expect(std::abs(error) <= accepted,
                   "the gradient of {} {}, in the median of {} points where differences of the "
                   "loss along it were measured; accepted are {}",
                   WordsOf(part), found, errors.size(), Percent(accepted));
  return std::abs(error);
}

void CheckOfLoss(const TaskFamily& task, Findings* findings) {
  std::vector<std::unique_ptr<Point>> points;
  for (uint64_t seed = 0; seed < kFewPoints; ++seed) {
    points.push_back(std::make_unique<Point>(task, seed));
    const std::vector<float>& gradient = points.back()->gradient;
    const auto bad = std::ranges::find_if(gradient, [](float v) { return !std::isfinite(v); });
    if (!findings->Expect(bad == gradient.end(), "the gradient of {} is {}",
                          ElementName(task.params_layout(), bad - gradient.begin()),
                          bad == gradient.end() ? 0 : *bad)) {
      return;
    }
    if (!findings->Expect(Dot(gradient, gradient) > 0, "the gradient is 0")) return;
  }
  // Lengths first: they name the tensor.
  double worst_length = 0;
  int tensors = 0;
  int measured = 0;
  const std::vector<LayoutEntry> parts = TensorsAndAll(task.params_layout());
  for (const LayoutEntry& part : parts) {
    if (part.size == 0) continue;
    const std::optional<double> error = CheckLength(task, points, part, findings);
    worst_length = std::max(worst_length, error.value_or(0));
    if (parts.size() > 1 && &part == &parts.back()) continue;
    ++tensors;
    measured += error ? 1 : 0;
  }
  findings->Measure("{} within {}",
                    measured == tensors
                        ? "lengths"
                        : fmt::format("lengths of {} of {} tensors", measured, tensors),
                    Percent(worst_length));
  CheckSlopes(task.params_layout(), points, findings);
}

// The mean over many keys, in standard errors.
void CheckNoisy(const TaskFamily& task, Findings* findings) {
  constexpr int kKeys = 400;
  constexpr double kErrors = 4.5;
  constexpr double kDifferenceError = 1e-4;
  TaskRows at = DrawRows(task, 1, 0);
  const std::vector<float> direction = RandomDirection(task.params_layout().size(), KeyFromSeed(5));
  double sum = 0;
  double square_sum = 0;
  double slopes = 0;
  for (const Key key : SplitKey(KeyFromSeed(6), kKeys)) {
    at.keys = {key};
    const double slope = LossAlong(task, at).Measure(at, direction, 0.01).Central();
    const double error = Dot(EvaluateRows(task, at).gradients, direction) - slope;
    slopes += std::abs(slope);
    sum += error;
    square_sum += error * error;
  }
  const double mean = sum / kKeys;
  const double deviation = std::sqrt(square_sum / kKeys - mean * mean);
  // Where there is hardly any noise the differences' own error shows.
  const double error = deviation / std::sqrt(kKeys) + kDifferenceError * slopes / kKeys;
  findings->Expect(std::abs(mean) <= kErrors * error,
                   "the mean of the noisy gradient over {} keys is {:.3g} off the slope of the "
                   "loss, {:.2g} standard errors; accepted are {:.2g}",
                   kKeys, mean, std::abs(mean) / error, kErrors);
  findings->Measure("noisy; the mean over {} keys is off by {:.2g} standard errors", kKeys,
                    std::abs(mean) / error);
}

void CheckOther(const TaskFamily& task, Findings* findings) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    findings->Expect(AllFinite(EvaluateRows(task, DrawRows(task, 1, seed)).gradients),
                     "the gradient is not finite");
  }
  findings->Measure("another than the loss's, as the family says; not compared");
}

}  // namespace

void CheckTaskGradient(const TaskFamily& task, Findings* findings) {
  switch (task.parts().gradients) {
    case Gradients::kOfLoss:
      return CheckOfLoss(task, findings);
    case Gradients::kNoisy:
      return CheckNoisy(task, findings);
    case Gradients::kOther:
      return CheckOther(task, findings);
  }
}

}  // namespace lopt::checks
