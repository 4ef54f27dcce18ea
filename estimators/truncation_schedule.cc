#include "lopt/estimators/truncation_schedule.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {

namespace {

// Normal gives sqrt(2) erfinv(u) of a float32 u < 1, and so no more (base/key.h).
constexpr double kAboveNormals = 5.5;

}  // namespace

void ConstantTruncationSchedule::Options::Visit(FieldVisitor& v) {
  v.Field("total_length", &total_length, Between(1, 1e7), "Inner steps of every episode.");
}

ConstantTruncationSchedule::ConstantTruncationSchedule(const Options& options) : options_(options) {
  CheckOptions("ConstantTruncationSchedule", options_);
}

void LogUniformLengthSchedule::Options::Visit(FieldVisitor& v) {
  v.Field("min_length", &min_length, Between(1, 1e7), "Shortest episode, in inner steps.");
  v.Field("max_length", &max_length, Between(2, 1e7),
          "Episodes are shorter than this, in inner steps.");
}

LogUniformLengthSchedule::LogUniformLengthSchedule(const Options& options) : options_(options) {
  CheckOptions("LogUniformLengthSchedule", options_);
  Require(options.min_length < options.max_length,
          "LogUniformLengthSchedule: min_length {} must be below max_length {}", options.min_length,
          options.max_length);
}

int64_t LogUniformLengthSchedule::Length(Key key, const OuterState&) const {
  const double low = std::log(static_cast<double>(options_.min_length));
  const double high = std::log(static_cast<double>(options_.max_length));
  const double length = std::exp(low + static_cast<double>(Uniform(key)) * (high - low));
  // exp(log(n)) may fall a rounding below n.
  return std::max(options_.min_length, static_cast<int64_t>(length));
}

void ScheduledTruncationSchedule::Options::Visit(FieldVisitor& v) {
  v.Field("outer_steps", &outer_steps, AtLeast(0),
          "Outer steps of the points between which the length is linear; increasing.");
  v.Field("lengths", &lengths, Between(1, 1e7), "Lengths at these points, in inner steps.");
  v.Field("std", &std, Between(0, 1e7), "Standard deviation of a normal added to each length.");
  v.Field("min_length", &min_length, Between(1, 1e7), "No episode is shorter, in inner steps.");
}

ScheduledTruncationSchedule::ScheduledTruncationSchedule(const Options& options)
    : options_(options) {
  CheckOptions("ScheduledTruncationSchedule", options_);
  Require(!options.outer_steps.empty() && options.outer_steps.size() == options.lengths.size(),
          "ScheduledTruncationSchedule: {} outer_steps for {} lengths; there must be as many, and "
          "at least one",
          options.outer_steps.size(), options.lengths.size());
  for (size_t i = 1; i < options.outer_steps.size(); ++i) {
    Require(options.outer_steps[i - 1] < options.outer_steps[i],
            "ScheduledTruncationSchedule: outer_steps must increase, got {} after {}",
            options.outer_steps[i], options.outer_steps[i - 1]);
  }
}

int64_t ScheduledTruncationSchedule::MeanLength(int64_t outer_step) const {
  const auto& at = options_.outer_steps;
  const auto& lengths = options_.lengths;
  const auto next = std::ranges::upper_bound(at, outer_step) - at.begin();
  double length = 0;
  if (next == 0) {
    length = static_cast<double>(lengths.front());
  } else if (next == std::ssize(at)) {
    length = static_cast<double>(lengths.back());
  } else {
    const double share = static_cast<double>(outer_step - at[next - 1]) /
                         static_cast<double>(at[next] - at[next - 1]);
    length = static_cast<double>(lengths[next - 1]) +
             share * static_cast<double>(lengths[next] - lengths[next - 1]);
  }
  return static_cast<int64_t>(length);
}

int64_t ScheduledTruncationSchedule::Length(Key key, const OuterState& outer) const {
  int64_t steps = MeanLength(outer.outer_step);
  if (options_.std > 0) {
    float normal = 0;
    Normal(key, {&normal, 1});
    steps += static_cast<int64_t>(options_.std * static_cast<double>(normal));
  }
  return std::max(steps, options_.min_length);
}

int64_t ScheduledTruncationSchedule::Longest(int64_t outer_steps) const {
  int64_t longest = MeanLength(outer_steps - 1);
  for (size_t i = 0; i < options_.lengths.size(); ++i) {
    if (options_.outer_steps[i] < outer_steps) longest = std::max(longest, options_.lengths[i]);
  }
  longest += static_cast<int64_t>(options_.std * kAboveNormals);
  return std::max(longest, options_.min_length);
}

int64_t ScheduledTruncationSchedule::Shortest(int64_t outer_steps) const {
  if (options_.std > 0) return options_.min_length;
  int64_t shortest = MeanLength(outer_steps - 1);
  for (size_t i = 0; i < options_.lengths.size(); ++i) {
    if (options_.outer_steps[i] < outer_steps) shortest = std::min(shortest, options_.lengths[i]);
  }
  return std::max(shortest, options_.min_length);
}

}  // namespace lopt
