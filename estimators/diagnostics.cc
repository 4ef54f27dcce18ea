#include "lopt/estimators/diagnostics.h"

#include <array>
#include <cmath>

#include "lopt/base/error.h"

namespace lopt {
namespace {

// The first inner step of range r: 0, 10, 20, 50, 100, ...
int64_t RangeStart(size_t r) {
  if (r == 0) {
    return 0;
  }
  int64_t start = std::array<int64_t, 3>{10, 20, 50}[(r - 1) % 3];
  for (size_t decade = 0; decade < (r - 1) / 3; ++decade) {
    start *= 10;
  }
  return start;
}

// A range that is asked for inner steps one after the other.
class RangeFinder {
 public:
  size_t Find(int64_t inner_step) {
    if (inner_step < RangeStart(range_)) {
      range_ = 0;
      end_ = RangeStart(1);
    }
    while (inner_step >= end_) {
      ++range_;
      end_ = RangeStart(range_ + 1);
    }
    return range_;
  }

 private:
  size_t range_ = 0;
  int64_t end_ = RangeStart(1);
};

Diagnostic OfRange(const char* name, size_t range) {
  return {name, {.first = RangeStart(range), .last = RangeStart(range + 1) - 1}};
}

void SetIfFinite(const Diagnostic& diagnostic, double value, Diagnostics* metrics) {
  if (std::isfinite(value)) {
    (*metrics)[diagnostic] = value;
  }
}

constexpr double kFloatResolution = 0x1p-23;

}  // namespace

void LossDiagnostics::Add(const UnrollTrace& trace) {
  const int64_t pairs = trace.loss.cols() / 2;
  for (int64_t n = 0; n < pairs; ++n) {
    RangeFinder finder;
    for (int64_t k = 0; k < trace.loss.rows(); ++k) {
      const double plus = trace.loss(k, n);
      const double minus = trace.loss(k, n + pairs);
      if (!std::isfinite(plus) || !std::isfinite(minus)) {
        continue;
      }
      squares_ += (plus - minus) * (plus - minus);
      absolutes_ += std::abs(plus) + std::abs(minus);
      ++steps_;
      const size_t range = finder.Find(trace.iteration(k, n));
      if (range >= ranges_.size()) {
        ranges_.resize(range + 1);
      }
      ranges_[range].sum += plus + minus;
      ranges_[range].count += 2;
    }
  }
}

void LossDiagnostics::WriteTo(Diagnostics* metrics) const {
  const auto steps = static_cast<double>(steps_);
  SetIfFinite("loss_difference", std::sqrt(squares_ / steps), metrics);
  SetIfFinite("loss_resolution", kFloatResolution * absolutes_ / (2 * steps), metrics);
  for (size_t r = 0; r < ranges_.size(); ++r) {
    SetIfFinite(OfRange("loss_at", r), ranges_[r].sum / static_cast<double>(ranges_[r].count),
                metrics);
  }
}

void NotedMeans::Add(const UnrollTrace& trace) {
  for (const auto& [name, values] : trace.noted) {
    Sum& sum = sums_[name];
    for (int64_t b = 0; b < values.cols(); ++b) {
      for (int64_t k = 0; k < values.rows(); ++k) {
        if (!std::isfinite(values(k, b))) continue;
        sum.sum += double{values(k, b)};
        ++sum.count;
      }
    }
  }
}

void NotedMeans::WriteTo(Diagnostics* metrics) const {
  for (const auto& [name, sum] : sums_) {
    SetIfFinite(Diagnostic(name.c_str()), sum.sum / static_cast<double>(sum.count), metrics);
  }
}

void WriteGradientSnr(const Eigen::VectorXf& gradient, double squares, int64_t pairs,
                      Diagnostics* metrics) {
  if (pairs < 2) {
    return;
  }
  const auto n = static_cast<double>(pairs);
  const double signal = Dot({gradient.data(), static_cast<size_t>(gradient.size())},
                            {gradient.data(), static_cast<size_t>(gradient.size())});
  const double trace = (squares - n * signal) / (n - 1);
  if (trace > 0) {
    SetIfFinite("gradient_snr", signal / (trace / n), metrics);
  }
}

void WriteAccumulatorNorms(const UnrollTrace& trace, std::span<const double> norms,
                           Diagnostics* metrics) {
  const int64_t pairs = trace.loss.cols() / 2;
  Require(std::ssize(norms) == pairs, "accumulator norms: {} numbers for {} pairs", norms.size(),
          pairs);
  struct Range {
    double sum = 0;
    int64_t count = 0;
  };
  std::vector<Range> ranges;
  for (int64_t n = 0; n < pairs; ++n) {
    const size_t range = RangeFinder().Find(trace.iteration(0, n));
    if (range >= ranges.size()) {
      ranges.resize(range + 1);
    }
    ranges[range].sum += norms[static_cast<size_t>(n)];
    ++ranges[range].count;
  }
  for (size_t r = 0; r < ranges.size(); ++r) {
    SetIfFinite(OfRange("accumulator_norm", r),
                ranges[r].sum / static_cast<double>(ranges[r].count), metrics);
  }
}

double Dot(std::span<const float> a, std::span<const float> b) {
  Require(a.size() == b.size(), "dot product of {} and {} numbers", a.size(), b.size());
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> sums = {};
  size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  double sum = 0;
  for (const double lane : sums) {
    sum += lane;
  }
  for (; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

}  // namespace lopt
