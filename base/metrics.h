#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>

namespace lopt {

// Named numbers of one step: "loss/0/quadratic". Sorted by name.
using Metrics = std::map<std::string, double>;

// `<dir>/metrics.jsonl`, or another file: one object per step, {"step": 12, "<name>": number, ...};
// a number that is not finite is written as the text "nan", "inf" or "-inf", any other so that it
// reads back exactly.
class MetricsWriter {
 public:
  // Appends to the file. With `keep_below` >= 0 first cuts it to the lines whose step is below that
  // (resume); a last line that is not complete is dropped as well. Throws Error if the file cannot
  // be read or written or holds anything else.
  MetricsWriter(const std::string& directory, int64_t keep_below,
                const std::string& file = "metrics.jsonl");
  // Throws Error if a metric is named "step".
  void Write(int64_t step, const Metrics& metrics);
  // Hands what was written to the system; throws Error if that fails (a full disk).
  void Flush();

 private:
  std::string path_;
  std::ofstream stream_;
};

// TensorBoard event files, `<dir>/events.out.tfevents.<seconds>.lopt`: a record is length, masked
// crc32c of it, the Event message, masked crc32c of that.
class TensorBoardWriter {
 public:
  // A new file that starts with the version record; its name sorts after those of the older ones,
  // so TensorBoard shows a resumed run as one. `wall_time_seconds` is that of the first record.
  // With `keep_below` >= 0 the older event files of the directory are cut to the steps below that
  // and a last record that is not complete is dropped. Throws Error if a file cannot be read or
  // written or holds anything else.
  TensorBoardWriter(const std::string& directory, double wall_time_seconds, int64_t keep_below);
  ~TensorBoardWriter();
  void Write(int64_t step, double wall_time_seconds, const Metrics& metrics);
  // As for MetricsWriter.
  void Flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lopt
