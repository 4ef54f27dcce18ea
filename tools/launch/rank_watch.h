#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lopt/tools/launch/rank_end.h"

namespace lopt {

// Follows the ranks of one job through the files of its status directory. Times are seconds of one
// clock of the caller's; those in the files are not compared with it.
class RankWatch {
 public:
  // `now`: when the job was started. Files of earlier jobs must have been removed.
  RankWatch(std::string out_dir, double now) : out_dir_(std::move(out_dir)), start_(now) {}

  // Reads the files, those of the guards included.
  void Read(double now);

  // Whether the learner has reported: it does when what it resumes or starts from is loaded.
  bool started() const { return ranks_.contains(0); }
  int64_t updates() const;     // the most that any rank knew of; 0 if none has reported
  double last_change() const;  // of any report; the start of the job if there is none
  std::vector<RankStatus> All() const;
  // Whether a rank has ended otherwise than by finishing or an interrupt: the others are to end
  // too.
  bool AnyEnded() const { return !ends_.empty(); }
  // How those ended that did by themselves or were killed, and not by mpiexec since another had
  // ended (srun then tells them to stop). If signals ended some, only these: the others met what
  // followed.
  std::vector<RankEnd> Ends() const;
  std::vector<RankStatus> Ended() const;  // the same ranks
  // Those whose report last changed more than `seconds` before that of another rank.
  std::vector<RankStatus> Behind(double seconds) const;

 private:
  struct Rank {
    RankStatus report;
    double changed = 0;
  };

  std::string out_dir_;
  double start_;
  std::map<int, Rank> ranks_;
  std::vector<RankEnd> ends_;
};

}  // namespace lopt
