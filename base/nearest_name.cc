#include "lopt/base/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lopt {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// The optimal string alignment distance.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1,
                                 distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

// "lr" abbreviates "learning_rate": its letters in their order, the first one first.
bool Abbreviates(std::string_view name, std::string_view whole) {
  if (name.size() < 2 || whole.empty() || name[0] != whole[0]) {
    return false;
  }
  size_t found = 0;
  for (const char letter : whole) {
    found += found < name.size() && letter == name[found] ? 1 : 0;
  }
  return found == name.size();
}

}  // namespace

const std::string* NearestName(std::string_view name, const std::vector<std::string>& names) {
  constexpr size_t kMaxLength = 100;
  if (name.size() > kMaxLength) {
    return nullptr;
  }
  const std::string wanted = Lower(name);
  const std::string* nearest = nullptr;
  size_t best = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : names) {
    const size_t distance = EditDistance(wanted, Lower(candidate));
    if (distance < best && distance < candidate.size()) {
      best = distance;
      nearest = &candidate;
    }
  }
  if (nearest == nullptr) {
    const auto whole = std::ranges::find_if(
        names, [&](const std::string& candidate) { return Abbreviates(wanted, Lower(candidate)); });
    nearest = whole == names.end() ? nullptr : &*whole;
  }
  return nearest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& names) {
  const std::string* nearest = NearestName(name, names);
  return nearest == nullptr ? "" : fmt::format("; did you mean '{}'?", *nearest);
}

}  // namespace lopt
