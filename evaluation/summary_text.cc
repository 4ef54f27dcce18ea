#include "lopt/evaluation/summary_text.h"

#include <fmt/format.h>

#include <set>

namespace lopt {

std::string Rounded(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "-" : value > 0 ? "inf" : "-inf";
  // Of the rounded number: 0.9998 is 1.00 in three digits.
  std::string scientific = fmt::format("{:.{}e}", value, digits - 1);
  const int magnitude = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (magnitude < -3 || magnitude > 5) return scientific;
  return fmt::format("{:.{}f}", value, std::max(0, digits - 1 - magnitude));
}

std::vector<SummaryRows> Sections(const Summary& summary) {
  const auto same = [](const SummaryRow& a, const SummaryRow& b) {
    return a.task == b.task && a.steps == b.steps;
  };
  std::vector<SummaryRows> sections;
  for (auto first = summary.rows.begin(); first != summary.rows.end();) {
    const auto last = std::find_if_not(first, summary.rows.end(),
                                       [&](const SummaryRow& row) { return same(row, *first); });
    sections.emplace_back(first, last);
    first = last;
  }
  return sections;
}

std::string NumberOfSections(const std::vector<SummaryRows>& sections) {
  std::set<std::string> tasks;
  for (const SummaryRows section : sections) tasks.insert(section.front().task);
  if (tasks.size() == sections.size()) {
    return fmt::format("{} task{}", sections.size(), sections.size() == 1 ? "" : "s");
  }
  return fmt::format("{} {}lengths", sections.size(), tasks.size() == 1 ? "" : "tasks and ");
}

}  // namespace lopt
