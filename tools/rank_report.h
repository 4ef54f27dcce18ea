#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// The status files of a run, by rank. Files that are not complete or not of this kind are left out.
std::vector<RankReport> ReadRankReports(const std::string& out_dir);
// Throws Error if a file cannot be removed.
void RemoveRankReports(const std::string& out_dir);

// "rank 2 on host node7 (last step 41)"; several are joined by ", ", and after eight comes a count.
std::string DescribeRanks(const std::vector<RankReport>& ranks);

}  // namespace lopt
