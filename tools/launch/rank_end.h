#pragma once

#include <string>
#include <vector>

#include "lopt/learner/run/status_file.h"
#include "lopt/tools/launch/child_process.h"

namespace lopt {

// How a rank ended, other than by finishing or an interrupt: what its guard writes to
// "<out>/status/end-<rank>.json".
struct RankEnd {
  int rank = 0;
  std::string host = {};
  ProcessEnd end = {};
  bool stopped = false;  // after its guard had been told to stop

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("rank", rank);
    visit("host", host);
    visit("exit_code", end.exit_code);
    visit("by_signal", end.by_signal);
    visit("stopped", stopped);
  }
};

// By rank; ReadStatusFiles.
std::vector<RankEnd> ReadRankEnds(const std::string& out_dir);
// Throws Error if it cannot be written.
void WriteRankEnd(const std::string& out_dir, const RankEnd& end);

// Removes what earlier ranks said of themselves and how they ended. Throws Error if that fails.
void RemoveStatusFiles(const std::string& out_dir);

// "rank 2 on host node7 (last step 41)"; several are joined by ", ", and after eight comes a count.
std::string DescribeRanks(const std::vector<RankStatus>& ranks);

}  // namespace lopt
