#include "lopt/tools/launch/rank_end.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lopt/base/error.h"

namespace lopt {

namespace {

constexpr const char* kEnd = "end";
constexpr size_t kMostDescribed = 8;

}  // namespace

std::vector<RankEnd> ReadRankEnds(const std::string& out_dir) {
  return ReadStatusFiles<RankEnd>(out_dir, kEnd);
}

void WriteRankEnd(const std::string& out_dir, const RankEnd& end) {
  WriteStatusFile(StatusPath(out_dir, end.rank, kEnd), end);
}

void RemoveStatusFiles(const std::string& out_dir) {
  for (const char* kind : {kRankStatus, kEnd}) {
    const StatusFiles files = FindStatusFiles(out_dir, kind);
    for (const auto& paths : {files.complete, files.unfinished}) {
      for (const std::string& path : paths) {
        std::error_code error;
        std::filesystem::remove(path, error);
        Require(!error, "cannot remove {}: {}", path, error.message());
      }
    }
  }
}

std::string DescribeRanks(const std::vector<RankStatus>& ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMostDescribed); ++i) {
    text += fmt::format("{}rank {} on host {} (last step {})", i == 0 ? "" : ", ", ranks[i].rank,
                        ranks[i].host, ranks[i].updates);
  }
  if (ranks.size() > kMostDescribed) {
    text += fmt::format(" and {} more", ranks.size() - kMostDescribed);
  }
  return text;
}

}  // namespace lopt
