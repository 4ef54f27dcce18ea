#include "tasks/check/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tasks/check/task_rows.h"

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
// Of the slope along the gradient, or one tensor's part of it, relative to that slope itself, in
// the median over points, because kinks err to either side; steps at which the loss's own digits
// are not enough are left out.
constexpr double kLengthTolerance = 0.004;
constexpr size_t kFewPoints = 3;
constexpr size_t kManyPoints = 15;
constexpr double kLongestLengthStep = 0.03;
constexpr double kLossRounding = std::numeric_limits<float>::epsilon();

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

struct Direction {
  std::string name;
  std::vector<float> along;  // of length 1
};

// Of a small task every coordinate, and some random ones.
std::vector<Direction> ManyDirections(const Layout& params, Key key) {
  constexpr uint64_t kRandom = 8;
  constexpr int64_t kSmall = 256;
  std::vector<Direction> directions;
  for (int64_t i = 0; params.size() <= kSmall && i < params.size(); ++i) {
    Direction& coordinate = directions.emplace_back(
        Direction{ElementName(params, i), std::vector<float>(params.size())});
    coordinate.along[i] = 1;
  }
  for (uint64_t n = 0; n < kRandom; ++n) {
    std::vector<float> direction(params.size());
    Normal(FoldIn(key, n), direction);
    const double length = std::sqrt(Dot(direction, direction));
    for (float& value : direction) value /= static_cast<float>(length);
    directions.push_back({"a random direction", std::move(direction)});
  }
  return directions;
}

// Tensors whose part of the gradient is looked at by itself; all of them together come last.
std::vector<LayoutEntry> TensorsAndAll(const Layout& params) {
  std::vector<LayoutEntry> parts;
  if (params.entries().size() > 1) parts = params.entries();
  parts.push_back({.name = "", .shape = {}, .offset = 0, .size = params.size()});
  return parts;
}

// Along any direction: accepted at the first step that agrees.
double CheckSlope(LossAlong& loss, const TaskRows& at, const Direction& direction, double slope,
                  double scale, Findings* findings) {
  double best = std::numeric_limits<double>::infinity();
  double nearest = 0;
  for (const double step : kDifferenceSteps) {
    const auto slopes = loss.Measure(at, direction.along, step);
    const double central = std::abs(slopes.Central() - slope);
    const double beside = std::max({0.0, std::min(slopes.forward, slopes.backward) - slope,
                                    slope - std::max(slopes.forward, slopes.backward)});
    const double apart = step <= kOneSidedStep ? beside : central;
    if (apart < best) {
      best = apart;
      nearest = slopes.Central();
    }
    if (best <= kSlopeTolerance * scale) break;
  }
  findings->Expect(best <= kSlopeTolerance * scale,
                   "along {} the gradient is {:.6g}, differences of the loss give {:.6g}: {:.2g} % "
                   "of the size of an element apart, accepted are {:.2g} %",
                   direction.name, slope, nearest, 100 * best / scale, 100 * kSlopeTolerance);
  return best / scale;
}

// A task near its start, with its gradient there.
struct Point {
  TaskRows at;
  std::vector<float> gradient;
  LossAlong loss;

  Point(const TaskFamily& task, uint64_t seed)
      : at(DrawRows(task, 1, seed)), gradient(EvaluateRows(task, at).gradients), loss(task, at) {}
};

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

double Median(std::vector<double>& numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

// Returns the size of the median error over points. Where kinks spread the errors, three standard
// errors of the median are accepted beside the tolerance.
double CheckLength(const TaskFamily& task, std::vector<std::unique_ptr<Point>>& points,
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
    error = Median(errors);
    std::vector<double> distances = errors;
    for (double& distance : distances) distance = std::abs(distance - error);
    const double spread = count == kFewPoints ? 0 : Median(distances);
    accepted = kLengthTolerance + 3 * kStandardErrorOfMedian * spread /
                                      std::sqrt(std::max(1.0, 1.0 * std::ssize(errors)));
    if (std::abs(error) <= accepted) break;
  }
  findings->Expect(std::abs(error) <= accepted,
                   "the gradient of {} is {:.2g} % too {}, in the median of {} points where "
                   "differences of the loss along it were measured; accepted are {:.2g} %",
                   part.name.empty() ? "all params" : "tensor '" + part.name + "'",
                   100 * std::abs(error), error > 0 ? "long" : "short", errors.size(),
                   100 * accepted);
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
  for (const LayoutEntry& part : TensorsAndAll(task.params_layout())) {
    worst_length = std::max(worst_length, CheckLength(task, points, part, findings));
  }
  double worst = 0;
  for (uint64_t seed = 0; seed < kFewPoints; ++seed) {
    const std::vector<float>& gradient = points[seed]->gradient;
    const double scale = std::sqrt(Dot(gradient, gradient) / static_cast<double>(gradient.size()));
    for (const Direction& direction : ManyDirections(task.params_layout(), KeyFromSeed(seed))) {
      const double slope = Dot(gradient, direction.along);
      worst = std::max(worst, CheckSlope(points[seed]->loss, points[seed]->at, direction, slope,
                                         scale, findings));
    }
  }
  findings->Measure("lengths within {:.2g} %, slopes within {:.2g} %", 100 * worst_length,
                    100 * worst);
}

// The mean over many keys, in standard errors.
void CheckNoisy(const TaskFamily& task, Findings* findings) {
  constexpr int kKeys = 400;
  constexpr double kErrors = 4.5;
  constexpr double kDifferenceError = 1e-4;
  TaskRows at = DrawRows(task, 1, 0);
  const std::vector<float> direction =
      ManyDirections(task.params_layout(), KeyFromSeed(5)).back().along;
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
