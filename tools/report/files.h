#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lopt {

// One metric over a run, in the order of the file.
struct Series {
  std::vector<double> step = {};
  std::vector<double> value = {};  // may be infinite or NaN
};

struct MetricsFile {
  std::map<std::string, Series> series = {};
  int64_t records = 0;
  // What could not be read, for people: a missing file, a last line that was cut off, damaged lines
  // by their numbers. All else is in `series`.
  std::vector<std::string> damage = {};
};

// Reads a file in the format of metrics.jsonl (base/metrics.h), whatever state it is in. Throws
// Error if there is a file that cannot be read.
MetricsFile ReadMetricsFile(const std::string& path);

// The members of a manifest.json as text, nested ones as JSON. Empty if there is none; a damaged
// one gives a line of `damage`.
std::map<std::string, std::string> ReadManifestFile(const std::string& path,
                                                    std::vector<std::string>* damage);

}  // namespace lopt
