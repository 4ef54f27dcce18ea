#include "lopt/tools/check/outcome_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lopt/base/wrapped.h"

namespace lopt {
namespace {

using checks::CheckOutcome;

constexpr size_t kStatusWidth = 8;
constexpr size_t kNameWidth = 13;
constexpr size_t kMostOfConfig = 300;

// JSON on one line, with spaces to wrap it at.
std::string Spaced(const std::string& json) {
  std::string spaced;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    spaced += json[i];
    if (json[i] == '"' && (i == 0 || json[i - 1] != '\\')) in_text = !in_text;
    if (!in_text && (json[i] == ',' || json[i] == ':')) spaced += ' ';
  }
  return spaced;
}

std::string Row(const std::string& status, const std::string& name, const std::string& text) {
  return Wrapped(fmt::format("  {:<{}}  {:<{}}  ", status, kStatusWidth, name, kNameWidth), text);
}

}  // namespace

OutcomeCounts& OutcomeCounts::operator+=(const OutcomeCounts& other) {
  passed += other.passed;
  failed += other.failed;
  left_out += other.left_out;
  return *this;
}

OutcomeCounts Count(const std::vector<CheckOutcome>& outcomes) {
  OutcomeCounts counts;
  for (const CheckOutcome& outcome : outcomes) {
    if (!outcome.left_out.empty()) {
      ++counts.left_out;
    } else {
      ++(outcome.findings.passed() ? counts.passed : counts.failed);
    }
  }
  return counts;
}

std::string OutcomeTable(const CheckedThing& thing) {
  std::string text = thing.name + "\n";
  const std::string config = Spaced(thing.config);
  if (config.size() > kMostOfConfig) {
    text += Wrapped("  ", config.substr(0, kMostOfConfig) + " ...");
  } else if (!config.empty()) {
    text += Wrapped("  ", config);
  }
  for (const CheckOutcome& outcome : thing.outcomes) {
    const checks::Findings& findings = outcome.findings;
    if (!outcome.left_out.empty()) {
      text += Row("left out", outcome.name, fmt::format("needs '{}'", outcome.left_out));
    } else if (findings.passed()) {
      text += Row("passed", outcome.name, findings.measured());
    } else {
      std::string status = "FAILED";
      std::string name = outcome.name;
      for (const std::string& message : findings.messages()) {
        text += Row(status, name, message);
        status.clear();
        name.clear();
      }
      const auto kept = static_cast<int64_t>(findings.messages().size());
      if (findings.failures() > kept) {
        text += Row("", "", fmt::format("and {} more", findings.failures() - kept));
      }
      text += Row("", "", fmt::format("The promise, in {}: {}", outcome.header, outcome.promise));
    }
  }
  return text + "\n";
}

std::string CheckList(const std::string& title, const std::vector<ListedCheck>& checks) {
  std::string text = title + "\n";
  std::string header;
  for (const ListedCheck& check : checks) {
    if (check.header != header) text += fmt::format("  {}\n", check.header);
    header = check.header;
    text += Wrapped(fmt::format("    {:<{}}  ", check.name, kNameWidth), check.promise);
  }
  return text + "\n";
}

}  // namespace lopt
