#include "lopt/tools/launch/rank_watch.h"

#include <algorithm>
#include <utility>

namespace lopt {

void RankWatch::Read(double now) {
  for (RankStatus& report : ReadStatusFiles<RankStatus>(out_dir_, kRankStatus)) {
    const auto [place, is_new] = ranks_.try_emplace(report.rank);
    Rank& rank = place->second;
    if (is_new || report.time_seconds != rank.report.time_seconds) rank.changed = now;
    rank.report = std::move(report);
  }
  ends_ = ReadRankEnds(out_dir_);
}

int64_t RankWatch::updates() const {
  int64_t most = 0;
  for (const auto& [number, rank] : ranks_) most = std::max(most, rank.report.updates);
  return most;
}

double RankWatch::last_change() const {
  double last = start_;
  for (const auto& [number, rank] : ranks_) last = std::max(last, rank.changed);
  return last;
}

std::vector<RankStatus> RankWatch::All() const {
  std::vector<RankStatus> all;
  for (const auto& [number, rank] : ranks_) all.push_back(rank.report);
  return all;
}

std::vector<RankEnd> RankWatch::Ends() const {
  std::vector<RankEnd> ends = ends_;
  std::erase_if(ends, [](const RankEnd& end) { return end.stopped; });
  const bool signals =
      std::any_of(ends.begin(), ends.end(), [](const RankEnd& end) { return end.end.by_signal; });
  std::erase_if(ends, [&](const RankEnd& end) { return signals && !end.end.by_signal; });
  return ends;
}

std::vector<RankStatus> RankWatch::Ended() const {
  std::vector<RankStatus> ended;
  for (const RankEnd& end : Ends()) {
    const auto rank = ranks_.find(end.rank);
    ended.push_back(rank == ranks_.end() ? RankStatus{.rank = end.rank, .host = end.host}
                                         : rank->second.report);
  }
  return ended;
}

std::vector<RankStatus> RankWatch::Behind(double seconds) const {
  std::vector<RankStatus> behind;
  const double last = last_change();
  for (const auto& [number, rank] : ranks_) {
    if (last - rank.changed > seconds) behind.push_back(rank.report);
  }
  return behind;
}

}  // namespace lopt
