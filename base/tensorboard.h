#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/metrics.h"

namespace lopt {

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
