#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/learner/run/ledger.h"

namespace lopt {

// A file that notes windows when they start, so that a later process knows which ones a process
// that died had begun. It survives the death of processes; what the death of a machine takes from
// its end is told at the next start, and not counted. It only has to reach back to the oldest
// checkpoint.
class WindowJournal {
 public:
  // Opens the file, makes it where there is none. Throws Error (path and reason) if that fails.
  explicit WindowJournal(std::string path);

  // A worker is about to have started all windows below this one. Write puts all that was noted
  // since the last Write into the file, in one piece.
  void Started(int64_t worker, int64_t windows) { Note(kStarted, worker, windows); }
  void Write();
  // Records written since the run began; a checkpoint keeps it.
  int64_t position() const { return end_; }
  // Flushes to disk what was written. May run on another thread, beside Write.
  void Sync() const;
  // Forgets the records before `position`, once they take some space.
  void ForgetBefore(int64_t position);

  // To be called when a run goes on from a checkpoint that was made at `position` and in which the
  // workers have run these numbers of windows (all 0 from the beginning). Tells the ledger which
  // windows were started after it and rolled back, and notes where the run goes on. What is missing
  // or damaged after `position` is left out, with a warning.
  void GoOnFrom(int64_t position, std::span<const int64_t> windows, Ledger* ledger);

 private:
  static constexpr int32_t kStarted = 1;
  static constexpr int32_t kReset = 2;
  static constexpr int32_t kForgotten = 3;  // the first of the file: `count` records were before

  // Of workers [first, first + count).
  struct Record {
    int32_t kind = 0;
    int32_t first = 0;
    int64_t count = 0;
    int64_t windows = 0;
  };

  void Open();
  static bool Names(const Record& record, int64_t workers);
  void Note(int32_t kind, int64_t worker, int64_t windows);
  void RequirePosition(int64_t position) const;
  int64_t Offset(int64_t position) const;  // in bytes
  std::vector<Record> Read(int64_t position, int64_t count) const;
  // Makes the file one of the records from `begin` on.
  void Rewrite(int64_t begin);
  void CutAt(int64_t position);

  std::string path_;
  std::optional<OpenFile> file_;
  int64_t begin_ = 0;   // position of the first record in the file
  int64_t header_ = 0;  // records of the kind kForgotten
  int64_t end_ = 0;
  std::vector<Record> noted_;
};

}  // namespace lopt
