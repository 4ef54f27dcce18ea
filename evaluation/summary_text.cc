#include "lopt/evaluation/summary_text.h"

#include <fmt/format.h>

namespace lopt {

std::string Rounded(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "-" : value > 0 ? "inf" : "-inf";
  const int magnitude = value == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::abs(value))));
  if (magnitude < -3 || magnitude > 5) return fmt::format("{:.{}e}", value, digits - 1);
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

}  // namespace lopt
