#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/metrics.h"
#include "lopt/base/pictures.h"

namespace lopt {

// Names of the directory's event files, in the order in which TensorBoard reads them. Throws Error
// if it cannot be listed.
std::vector<std::string> EventFiles(const std::string& directory);

// TensorBoard event files, `<dir>/events.out.tfevents.<seconds>.lopt`: a record is length, masked
// crc32c of it, the Event message, masked crc32c of that.
class TensorBoardWriter {
 public:
  // A new file that starts with the version record; its name sorts after those of the older ones,
  // so TensorBoard shows a resumed run as one. `wall_time_seconds` is that of the first record.
  // Throws Error if it cannot be opened.
  TensorBoardWriter(const std::string& directory, double wall_time_seconds);
  ~TensorBoardWriter();
  void Write(int64_t step, double wall_time_seconds, const Metrics& metrics);
  // A picture, as PNG.
  void WriteImage(int64_t step, double wall_time_seconds, const std::string& tag,
                  const Bitmap& bitmap);
  // As for MetricsWriter.
  void Flush();
  void Drop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lopt
