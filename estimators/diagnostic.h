#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lopt {

// Inner steps [first, last] of an episode, counted from 0.
struct StepRange {
  int64_t first = 0;  // inclusive
  int64_t last = 0;   // inclusive

  auto operator<=>(const StepRange&) const = default;  // NOLINT(modernize-use-nullptr): none here

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("first", first);
    visit("last", last);
  }
};

// What a number tells that an estimator gives besides the gradient, such as "loss_at" of the inner
// steps [10, 19]; without steps it is of the whole window.
struct Diagnostic {
  std::string name = {};                // of the figure, the beginning of its metric's name
  std::optional<StepRange> steps = {};  // of the episode; none: the whole window

  Diagnostic() = default;
  Diagnostic(const char* of) : name(of) {}  // NOLINT(google-explicit-constructor)
  // Of these inner steps.
  Diagnostic(std::string of, StepRange range) : name(std::move(of)), steps(range) {}

  auto operator<=>(const Diagnostic&) const = default;  // NOLINT(modernize-use-nullptr): as above

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("steps", steps);
  }
};

// The figures of one estimate.
using Diagnostics = std::map<Diagnostic, double>;

// The metric of a diagnostic, "loss_at_10-19" or "gradient_snr", and back.
std::string MetricName(const Diagnostic& diagnostic);
// The reverse.
Diagnostic DiagnosticOfMetric(std::string_view metric);

}  // namespace lopt
