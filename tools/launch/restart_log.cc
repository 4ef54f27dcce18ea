#include "lopt/tools/launch/restart_log.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lopt/base/error.h"
#include "lopt/base/file.h"

namespace lopt {

namespace {

std::string LogPath(const std::string& out_dir) { return out_dir + "/restarts.jsonl"; }

}  // namespace

void AppendRestartLog(const std::string& out_dir, const FailedAttempt& attempt) {
  auto culprits = nlohmann::ordered_json::array();
  for (const RankStatus& rank : attempt.culprits) {
    culprits.push_back({{"rank", rank.rank}, {"host", rank.host}, {"last_step", rank.updates}});
  }
  const nlohmann::ordered_json line = {
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
      {"attempt", attempt.attempt},
      {"ranks", attempt.ranks},
      {"exit_code", attempt.exit_code},
      {"reason", attempt.reason},
      {"culprits", culprits},
      {"updates", attempt.updates},
      {"checkpoint", attempt.checkpoint},
      {"restarted", attempt.restarted},
      {"delay_seconds", attempt.delay_seconds}};
  const std::string path = LogPath(out_dir);
  std::error_code error;
  std::filesystem::create_directories(out_dir, error);
  RequireFile(path, "cannot write");
  std::ofstream file(path, std::ios::app);
  file << line.dump() + "\n" << std::flush;
  Require(file.good(), "cannot write to {}: {}", path, SystemReason(errno));
}

void RemoveRestartLog(const std::string& out_dir) {
  std::error_code error;
  std::filesystem::remove(LogPath(out_dir), error);
  Require(!error, "cannot remove {}: {}", LogPath(out_dir), error.message());
}

}  // namespace lopt
