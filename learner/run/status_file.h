#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/record.h"

namespace lopt {

// What a rank of a job says of itself in "<out_dir>/status/rank-<rank>.json", which it replaces now
// and then while it lives, for whoever supervises it.
struct RankStatus {
  int rank = 0;
  std::string host = {};
  int64_t pid = 0;
  int64_t updates = 0;            // of theta that it knows of
  std::string state = "running";  // running, computing, waiting, checkpointing, done
  double time_seconds = 0;        // of the writing, since 1970

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("rank", rank);
    visit("host", host);
    visit("pid", pid);
    visit("updates", updates);
    visit("state", state);
    visit("time_seconds", time_seconds);
  }
};

// A run's status directory holds files "<out_dir>/status/<kind>-<rank>.json". This kind holds a
// RankStatus; tools/launch/ has another.
inline constexpr const char* kRankStatus = "rank";
std::string StatusPath(const std::string& out_dir, int rank, const std::string& kind = kRankStatus);

// Writes the record, without flushing it to disk. Throws Error if it cannot.
template <class Record>
void WriteStatusFile(const std::string& path, const Record& record) {
  MakeDirectories(std::filesystem::path(path).parent_path());
  WriteTextFile(path, RecordText(record) + "\n", Flush::kNo);
}

// The files of a run that are named like a status file of this kind, and those that killed writes
// of one left behind.
struct StatusFiles {
  std::vector<std::string> complete = {};
  std::vector<std::string> unfinished = {};
};
StatusFiles FindStatusFiles(const std::string& out_dir, const std::string& kind);

// The records of those files, by rank. Files that are not complete or not of this kind are left
// out.
template <class Record>
std::vector<Record> ReadStatusFiles(const std::string& out_dir, const std::string& kind) {
  std::vector<Record> records;
  for (const std::string& path : FindStatusFiles(out_dir, kind).complete) {
    try {
      records.push_back(ReadRecordFile<Record>(path));
    } catch (const Error&) {
      continue;
    }
  }
  std::ranges::sort(records, {}, &Record::rank);
  return records;
}

}  // namespace lopt
