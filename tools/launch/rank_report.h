#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/launch/child_process.h"

namespace lopt {

// What a rank of a run says of itself in "<out>/status/rank-<rank>.json", which it replaces now and
// then while it lives.
struct RankReport {
  int rank = 0;
  std::string host = {};
  int64_t pid = 0;
  int64_t updates = 0;  // of theta that it knows of
  std::string state = {};
  double time_seconds = 0;
};

// How a rank ended, other than by finishing or an interrupt: what its guard writes to
// "<out>/status/end-<rank>.json".
struct RankEnd {
  int rank = 0;
  std::string host = {};
  ProcessEnd end = {};
};

// The status files of a run, by rank. Files that are not complete or not of this kind are left out.
std::vector<RankReport> ReadRankReports(const std::string& out_dir);
// By rank.
std::vector<RankEnd> ReadRankEnds(const std::string& out_dir);
// Throws Error if it cannot be written.
void WriteRankEnd(const std::string& out_dir, const RankEnd& end);
// Removes the files of both kinds. Throws Error if that fails.
void RemoveRankReports(const std::string& out_dir);

// "rank 2 on host node7 (last step 41)"; several are joined by ", ", and after eight comes a count.
std::string DescribeRanks(const std::vector<RankReport>& ranks);

}  // namespace lopt
