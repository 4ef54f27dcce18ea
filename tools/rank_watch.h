#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/rank_report.h"

namespace lopt {

// Follows the ranks of one job through their status files, and those on this host as processes too.
// Times are seconds of one clock of the caller's; those in the files are not compared with it.
class RankWatch {
 public:
  // `now`: when the job was started. Status files of earlier jobs must have been removed.
  RankWatch(std::string out_dir, double now);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Reads the files.
  void Read(double now);
  // Descriptors of the processes of ranks on this host; each becomes readable when its process has
  // ended.
  std::vector<int> Processes() const;
  // Notes who ended first: those whose processes have ended by the first call that finds any.
  void NoteEnded();

  bool any() const { return !ranks_.empty(); }
  int64_t count() const { return static_cast<int64_t>(ranks_.size()); }
  int64_t updates() const;     // the most that any rank knew of; 0 if there is no rank
  double last_change() const;  // of any file; the start of the job if there is none
  std::vector<RankReport> All() const;
  std::vector<RankReport> EndedFirst() const;
  // Those whose file last changed more than `seconds` before that of another rank.
  std::vector<RankReport> Behind(double seconds) const;

 private:
  struct Rank {
    RankReport report;
    double changed = 0;
    int process = -1;  // descriptor; -1 if it runs elsewhere or cannot be watched
    bool ended_first = false;
  };

  std::string out_dir_;
  std::string host_;
  double start_;
  std::map<int, Rank> ranks_;
  bool ended_ = false;
};

}  // namespace lopt
