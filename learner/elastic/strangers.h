#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lopt {

// What connections may take that have not shown the token.
struct StrangerLimits {
  int64_t number = 256;          // at once
  int64_t bytes = 64 << 10;      // that each of them sends, whatever they are
  std::chrono::seconds age{60};  // of each
};

// The connections of a learner whose other ends have not shown the token yet. Says which of them
// are to end; knows nothing of sockets. A connection that is to end is forgotten.
class Strangers {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Strangers(const StrangerLimits& limits) : limits_(limits) {}

  // One more has come, whose number is higher than all before. The one that is to end for it: the
  // oldest; none if there is room.
  std::optional<int64_t> Add(int64_t connection, TimePoint now);
  // Whether a connection is to end that has sent so many bytes since it has come.
  bool Sent(int64_t connection, int64_t bytes);
  // It is a stranger no more.
  void Remove(int64_t connection) { since_.erase(connection); }
  // Those that are to end since they have been strangers for too long.
  std::vector<int64_t> TakeOverdue(TimePoint now);
  // When there is one next; none while there are no strangers.
  std::optional<TimePoint> NextOverdue() const;

  int64_t size() const { return std::ssize(since_); }
  // Of those that were to end since the last call, as "3 since there were more than 256, 1 that
  // sent more than 4096 bytes, 2 that took 60 s"; empty if there were none.
  std::string TakeEnded();

 private:
  StrangerLimits limits_;
  std::map<int64_t, TimePoint> since_;
  int64_t too_many_ = 0;
  int64_t too_much_ = 0;
  int64_t too_late_ = 0;
};

}  // namespace lopt
