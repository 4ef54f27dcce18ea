#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lopt/tools/simulate/disk.h"
#include "lopt/tools/simulate/passing_files.h"
#include "lopt/tools/simulate/process.h"

namespace lopt {

// What a start of the job has of the lock of its directory, and what it writes without.
struct LockClaim {
  const Process* learner = nullptr;
  std::string text = {};                  // of the lock file, where the learner has the lock
  std::optional<SimTime> lost_at = {};    // another took it
  bool finishing = false;                 // came to "finish" while it had the lock
  std::set<std::string> written_without;  // by the learner, as PartOf names it

  bool lost() const { return lost_at.has_value(); }
};

// The lock of a run's directory as nobody of the job sees it: who has it, and whether another may
// take it.
class LockWatch {
 public:
  LockWatch(World* world, Disk* disk, std::string path)
      : world_(world), disk_(disk), path_(std::move(path)) {}

  void Add(LockClaim* claim) { claims_[claim->text] = claim; }
  // A process of this claim has changed the lock file, its name or its time.
  void Changed(const LockClaim& by);
  // The power was off: the file is what the disk has kept.
  void LostPower() { Read(); }
  // The lock was taken from one who may still have it, and how; empty: never.
  const std::string& violation() const { return violation_; }

 private:
  void Read();
  void CheckTaken(const LockClaim& from, const LockClaim& by);

  World* world_;
  Disk* disk_;
  std::string path_;
  std::map<std::string, LockClaim*> claims_;  // by the text of the file
  std::string text_;                          // of the file; empty: there is none
  double sign_ = 0;                           // the file's time of change
  double silence_ = 0;                        // between that and the one before
  std::string violation_;
};

// The part of a run that a file belongs to: one write changes one part. Empty for what each process
// may always write: its status, the lock, and temporary names.
std::string PartOf(const std::string& name);

// The files of a process, whose calls the watch sees.
class WatchedFiles final : public PassingFiles {
 public:
  // `directory`: the run's.
  WatchedFiles(FileSystem* files, std::string directory, LockWatch* watch, LockClaim* claim)
      : PassingFiles(files), directory_(std::move(directory)), watch_(watch), claim_(claim) {}

  int Open(const std::string& path, OpenFor what) override;
  int64_t Write(int descriptor, std::span<const std::byte> bytes) override;
  int Cut(const std::string& path, int64_t bytes) override;
  int MakeDirectory(const std::string& path) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Link(const std::string& from, const std::string& to) override;
  int Remove(const std::string& path) override;
  int Touch(const std::string& path) override;

 private:
  // A call has changed what has this name.
  template <class Result>
  Result Note(Result result, const std::string& path);

  std::string directory_;
  LockWatch* watch_;
  LockClaim* claim_;
  std::map<int, std::string> written_;  // by descriptor
};

}  // namespace lopt
