#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/record.h"

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

// Reads a file in the format of metrics.jsonl (base/metrics_writer.h), whatever state it is in.
// Throws Error if there is a file that cannot be read.
MetricsFile ReadMetricsFile(const std::string& path);

// The manifest (a record) in a file; none if there is no file, or a damaged one, which gives a line
// of `damage`.
template <class Manifest>
std::optional<Manifest> ReadManifestFile(const std::string& path,
                                         std::vector<std::string>* damage) {
  if (!Exists(path)) return std::nullopt;
  try {
    return ReadRecordFile<Manifest>(path);
  } catch (const Error& error) {
    damage->emplace_back(error.what());
    return std::nullopt;
  }
}

// A member of it as text; empty where there is none.
template <class Manifest, class T>
std::string ManifestText(const std::optional<Manifest>& manifest, T Manifest::*member) {
  if (!manifest) return "";
  const T& value = *manifest.*member;
  if constexpr (std::is_same_v<T, std::optional<std::string>>) {
    return value.value_or("");
  } else {
    return fmt::format("{}", value);
  }
}

}  // namespace lopt
