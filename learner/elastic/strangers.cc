#include "lopt/learner/elastic/strangers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lopt {

std::optional<int64_t> Strangers::Add(int64_t connection, TimePoint now) {
  since_.emplace(connection, now);
  if (size() <= limits_.number) {
    return std::nullopt;
  }
  ++too_many_;
  const int64_t oldest = since_.begin()->first;
  since_.erase(since_.begin());
  return oldest;
}

bool Strangers::Sent(int64_t connection, int64_t bytes) {
  if (bytes <= limits_.bytes || since_.erase(connection) == 0) {
    return false;
  }
  ++too_much_;
  return true;
}

// They have come in the order of their numbers.
std::vector<int64_t> Strangers::TakeOverdue(TimePoint now) {
  std::vector<int64_t> overdue;
  while (!since_.empty() && now - since_.begin()->second >= limits_.age) {
    overdue.push_back(since_.begin()->first);
    since_.erase(since_.begin());
    ++too_late_;
  }
  return overdue;
}

std::optional<Strangers::TimePoint> Strangers::NextOverdue() const {
  return since_.empty() ? std::nullopt : std::optional(since_.begin()->second + limits_.age);
}

std::string Strangers::TakeEnded() {
  std::vector<std::string> ended;
  if (too_many_ > 0) {
    ended.push_back(fmt::format("{} since there were more than {}", too_many_, limits_.number));
  }
  if (too_much_ > 0) {
    ended.push_back(fmt::format("{} that sent more than {} bytes", too_much_, limits_.bytes));
  }
  if (too_late_ > 0) {
    ended.push_back(fmt::format("{} that took {} s", too_late_, limits_.age.count()));
  }
  too_many_ = too_much_ = too_late_ = 0;
  return fmt::format("{}", fmt::join(ended, ", "));
}

}  // namespace lopt
