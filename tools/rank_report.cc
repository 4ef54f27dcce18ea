#include "tools/rank_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace lopt {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostDescribed = 8;

std::vector<fs::path> StatusFiles(const std::string& out_dir) {
  std::vector<fs::path> files;
  std::error_code error;  // no directory: no rank has started
  for (const auto& entry : fs::directory_iterator(out_dir + "/status", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("rank-") && name.ends_with(".json")) files.push_back(entry.path());
  }
  return files;
}

}  // namespace

std::vector<RankReport> ReadRankReports(const std::string& out_dir) {
  std::vector<RankReport> reports;
  for (const fs::path& path : StatusFiles(out_dir)) {
    try {
      const auto json = nlohmann::json::parse(ReadTextFile(path));
      reports.push_back({.rank = json.at("rank"),
                         .host = json.at("host"),
                         .pid = json.at("pid"),
                         .updates = json.at("updates"),
                         .state = json.at("state"),
                         .time_seconds = json.at("time_seconds")});
    } catch (const nlohmann::json::exception&) {
      continue;
    } catch (const Error&) {
      continue;
    }
  }
  std::sort(reports.begin(), reports.end(),
            [](const RankReport& a, const RankReport& b) { return a.rank < b.rank; });
  return reports;
}

void RemoveRankReports(const std::string& out_dir) {
  for (const fs::path& path : StatusFiles(out_dir)) {
    std::error_code error;
    fs::remove(path, error);
    Require(!error, "cannot remove {}: {}", path.string(), error.message());
  }
}

std::string DescribeRanks(const std::vector<RankReport>& ranks) {
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
