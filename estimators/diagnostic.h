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
  int64_t first = 0;
  int64_t last = 0;

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
  std::string name = {};
  std::optional<StepRange> steps = {};

  Diagnostic() = default;
  Diagnostic(const char* of) : name(of) {}  // NOLINT(google-explicit-constructor)
  Diagnostic(std::string of, StepRange range) : name(std::move(of)), steps(range) {}

  auto operator<=>(const Diagnostic&) const = default;  // NOLINT(modernize-use-nullptr): as above

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("steps", steps);
  }
};

using Diagnostics = std::map<Diagnostic, double>;

// The metric of a diagnostic, "loss_at_10-19" or "gradient_snr", and back.
std::string MetricName(const Diagnostic& diagnostic);
Diagnostic DiagnosticOfMetric(std::string_view metric);

}  // namespace lopt
