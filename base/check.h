#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lopt::checks {

// What a program has taken by `new` so far.
struct Allocations {
  int64_t count = 0;
  int64_t bytes = 0;
};
using CountAllocations = Allocations (*)();

// What a check found: how many comparisons it made, which did not hold, and what it measured.
class Findings {
 public:
  static constexpr size_t kKept = 3;  // messages

  // Without `allocations` memory is not looked at.
  explicit Findings(CountAllocations allocations = nullptr) : allocations_(allocations) {}

  // One comparison. Where it is not `ok`, the message says what was found; the first kKept are
  // kept. Returns `ok`.
  template <class... Args>
  bool Expect(bool ok, fmt::format_string<Args...> message, Args&&... args) {
    ++comparisons_;
    if (!ok) Note(fmt::format(message, std::forward<Args>(args)...));
    return ok;
  }
  // One comparison: whether `body` throws an Error whose message has `word` in it.
  void ExpectError(std::string_view word, const std::function<void()>& body);
  // A number for whoever reads the outcome.
  template <class... Args>
  void Measure(fmt::format_string<Args...> what, Args&&... args) {
    if (!measured_.empty()) measured_ += ", ";
    measured_ += fmt::format(what, std::forward<Args>(args)...);
  }

  CountAllocations allocations() const { return allocations_; }
  bool passed() const { return failures_ == 0; }
  int64_t comparisons() const { return comparisons_; }
  int64_t failures() const { return failures_; }
  const std::vector<std::string>& messages() const { return messages_; }
  const std::string& measured() const { return measured_; }

 private:
  void Note(std::string message);

  CountAllocations allocations_;
  int64_t comparisons_ = 0;
  int64_t failures_ = 0;
  std::vector<std::string> messages_;
  std::string measured_;
};

// One promise that every Subject keeps, and what tries it.
template <class Subject>
struct Check {
  const char* name;
  const char* promise;  // a sentence
  const char* header;   // which states it
  void (*run)(const Subject&, Findings*);
  // Checks without which this one says nothing: it is left out where one of them failed.
  std::vector<std::string> needs = {};
};

struct CheckOutcome {
  std::string name;
  std::string promise;
  std::string header;
  Findings findings;
  std::string left_out;  // the failed check that this one needs; empty: it was made
  double seconds = 0;
};

// What `run` finds; what it throws is a finding.
Findings FindingsOf(const std::function<void(Findings*)>& run, CountAllocations allocations);

template <class Subject>
Findings RunCheck(const Check<Subject>& check, const Subject& subject,
                  CountAllocations allocations = nullptr) {
  return FindingsOf([&](Findings* findings) { check.run(subject, findings); }, allocations);
}

// The failed check of `outcomes` that one of `needs` names, or that was left out for another;
// empty if there is none.
std::string FailedNeed(const std::vector<std::string>& needs,
                       const std::vector<CheckOutcome>& outcomes);
double SecondsNow();  // of a steady clock

// All of them, in their order. Checks may need some of `before` too: what came of the checks of
// something that the subject is made of.
template <class Subject>
std::vector<CheckOutcome> RunChecks(const std::vector<Check<Subject>>& checks,
                                    const Subject& subject, CountAllocations allocations = nullptr,
                                    const std::vector<CheckOutcome>& before = {}) {
  std::vector<CheckOutcome> outcomes;
  for (const Check<Subject>& check : checks) {
    CheckOutcome outcome{.name = check.name,
                         .promise = check.promise,
                         .header = check.header,
                         .findings = Findings(),
                         .left_out = FailedNeed(check.needs, before)};
    if (outcome.left_out.empty()) outcome.left_out = FailedNeed(check.needs, outcomes);
    const double start = SecondsNow();
    if (outcome.left_out.empty()) outcome.findings = RunCheck(check, subject, allocations);
    outcome.seconds = SecondsNow() - start;
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace lopt::checks
