#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lopt {

// The logs of a run: metrics.jsonl, throughput.jsonl and TensorBoard's event files. They only grow,
// so where they were when a checkpoint was made is a number of bytes for each.
struct LogState {
  double seconds = 0;                         // of meta-training, as throughput.jsonl counts them
  std::map<std::string, int64_t> bytes = {};  // by file name

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("seconds", seconds);
    visit("bytes", bytes);
  }
  bool operator==(const LogState&) const = default;
};

// The bytes of the logs that the directory has.
std::map<std::string, int64_t> LogBytes(const std::string& directory);

// Flushes them to disk: what a checkpoint counts on must not be lost when the machine crashes.
void SyncLogs(const std::string& directory, const LogState& state);

// Brings the logs back to a state: what was appended since is cut off and event files begun since
// are removed, with a line in the log. Nothing is read, but of a log that has lost something: what
// is left of it stays, to its last whole line, with a warning.
void CutLogs(const std::string& directory, const LogState& state);

}  // namespace lopt
