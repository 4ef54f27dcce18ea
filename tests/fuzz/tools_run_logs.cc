// The logs of a run that is resumed: TensorBoard's event file and metrics.jsonl, brought back to
// where a checkpoint's manifest says that they were.
#include <stdexcept>

#include "lopt/base/file.h"
#include "lopt/base/record.h"
#include "lopt/base/tensorboard.h"
#include "lopt/learner/run/run_logs.h"
#include "lopt/tools/report/files.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

constexpr const char* kLines = "metrics.jsonl";
constexpr const char* kEvents = "events.out.tfevents.0000000001.lopt";

void ReadLogs(std::string_view input) {
  const std::vector<std::string> parts = SplitParts(input, 3);
  const std::string directory = FreshDirectory();
  const std::string lines = PutFile(directory, kLines, parts[1]);
  PutFile(directory, kEvents, parts[2]);
  ReadMetricsFile(lines);
  const auto state = ParseRecord<LogState>(parts[0], "state");
  CutLogs(directory, state);
  for (const auto& [name, bytes] : LogBytes(directory)) {
    if (!state.bytes.contains(name) || bytes > state.bytes.at(name)) {
      throw std::logic_error("a log is longer than the checkpoint says: " + name);
    }
  }
  TensorBoardWriter(directory, 1).Write(1, 1, {{"a", 1}});
}

std::vector<std::string> LogSeeds() {
  const std::string directory = FreshDirectory();
  TensorBoardWriter(directory, 1).Write(7, 2, {{"a", 0}, {"b/c", 1.5}});
  const std::string events = ReadTextFile(directory + "/" + kEvents);
  const std::string lines = "{\"step\": 1, \"a\": 0.5}\n{\"step\": 2, \"a\": \"nan\", \"b\": 1}\n";
  const auto state = [&](size_t line_bytes, size_t event_bytes) {
    return RecordText(LogState{.seconds = 1.5,
                               .bytes = {{kLines, static_cast<int64_t>(line_bytes)},
                                         {kEvents, static_cast<int64_t>(event_bytes)}}});
  };
  return {JoinParts({state(lines.size(), events.size()), lines, events}),
          JoinParts({state(22, 40), lines, events}),
          JoinParts({state(lines.size() + 9, events.size() + 9), lines + "{\"step", events})};
}

const AddFuzzTarget logs_target({"tools_run_logs", ReadLogs, LogSeeds});

}  // namespace
}  // namespace lopt
