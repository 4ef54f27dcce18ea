#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lopt {

// What a rank of a job is doing, for whoever supervises it.
struct RankStatus {
  int rank = 0;
  std::string host = {};
  int64_t pid = 0;
  int64_t updates = 0;
  std::string_view state = "running";  // running, computing, waiting, checkpointing, done
};

std::string HostName();

// "<out_dir>/status/rank-<r>.json".
std::string StatusPath(const std::string& out_dir, int rank);

// Writes {"rank", "host", "pid", "updates", "state", "time_seconds" (since 1970)} so that a reader
// sees the old file or the new one, without flushing it to disk. False if it cannot.
bool WriteStatusFile(const std::string& path, const RankStatus& status);

}  // namespace lopt
