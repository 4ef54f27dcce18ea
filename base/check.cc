#include "lopt/base/check.h"

#include <algorithm>
#include <chrono>

#include "lopt/base/error.h"

namespace lopt::checks {

void Findings::Note(std::string message) {
  ++failures_;
  if (messages_.size() < kKept) messages_.push_back(std::move(message));
}

void Findings::ExpectError(std::string_view word, const std::function<void()>& body) {
  std::string got = "nothing was thrown";
  try {
    body();
  } catch (const Error& error) {
    got = error.what();
    if (got.find(word) != std::string::npos) {
      ++comparisons_;
      return;
    }
    got = "'" + got + "'";
  }
  Expect(false, "wanted an Error that speaks of '{}', got: {}", word, got);
}

Findings FindingsOf(const std::function<void(Findings*)>& run, CountAllocations allocations) {
  Findings findings(allocations);
  try {
    run(&findings);
  } catch (const std::exception& error) {
    findings.Expect(false, "it threw: {}", error.what());
  }
  return findings;
}

std::string FailedNeed(const std::vector<std::string>& needs,
                       const std::vector<CheckOutcome>& outcomes) {
  for (const CheckOutcome& outcome : outcomes) {
    if (std::ranges::find(needs, outcome.name) == needs.end()) continue;
    if (!outcome.left_out.empty()) return outcome.left_out;
    if (!outcome.findings.passed()) return outcome.name;
  }
  return "";
}

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace lopt::checks
