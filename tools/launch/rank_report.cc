#include "tools/launch/rank_report.h"

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

// The files "<prefix>-<rank>.json" of a run's status directory.
std::vector<fs::path> StatusFiles(const std::string& out_dir, const std::string& prefix) {
  std::vector<fs::path> files;
  std::error_code error;  // no directory: no rank has started
  for (const auto& entry : fs::directory_iterator(out_dir + "/status", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix + "-") && name.ends_with(".json")) files.push_back(entry.path());
  }
  return files;
}

// What `parse` makes of each file, by rank. Files that are not of this kind are left out.
template <class Entry, class Parse>
std::vector<Entry> ReadEntries(const std::string& out_dir, const std::string& prefix, Parse parse) {
  std::vector<Entry> entries;
  for (const fs::path& path : StatusFiles(out_dir, prefix)) {
    try {
      entries.push_back(parse(nlohmann::json::parse(ReadTextFile(path))));
    } catch (const nlohmann::json::exception&) {
      continue;
    } catch (const Error&) {
      continue;
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
  return entries;
}

}  // namespace

std::vector<RankReport> ReadRankReports(const std::string& out_dir) {
  return ReadEntries<RankReport>(out_dir, "rank", [](const nlohmann::json& json) {
    return RankReport{.rank = json.at("rank"),
                      .host = json.at("host"),
                      .pid = json.at("pid"),
                      .updates = json.at("updates"),
                      .state = json.at("state"),
                      .time_seconds = json.at("time_seconds")};
  });
}

std::vector<RankEnd> ReadRankEnds(const std::string& out_dir) {
  return ReadEntries<RankEnd>(out_dir, "end", [](const nlohmann::json& json) {
    return RankEnd{.rank = json.at("rank"),
                   .host = json.at("host"),
                   .end = {.exit_code = json.at("exit_code"), .by_signal = json.at("by_signal")}};
  });
}

void WriteRankEnd(const std::string& out_dir, const RankEnd& end) {
  const std::string directory = out_dir + "/status";
  std::error_code ignored;  // the write tells
  fs::create_directories(directory, ignored);
  const nlohmann::ordered_json json = {{"rank", end.rank},
                                       {"host", end.host},
                                       {"exit_code", end.end.exit_code},
                                       {"by_signal", end.end.by_signal}};
  WriteTextFile(fmt::format("{}/end-{}.json", directory, end.rank), json.dump() + "\n");
}

void RemoveRankReports(const std::string& out_dir) {
  for (const char* prefix : {"rank", "end"}) {
    for (const fs::path& path : StatusFiles(out_dir, prefix)) {
      std::error_code error;
      fs::remove(path, error);
      Require(!error, "cannot remove {}: {}", path.string(), error.message());
    }
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
