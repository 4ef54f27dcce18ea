#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "learner/run/ledger.h"

namespace lopt {

// A file that notes windows when they start, so that a later process knows which ones a process
// that died had begun. It survives the death of processes, and is not flushed to disk for that of
// the machine.
class WindowJournal {
 public:
  // Opens the file, makes it where there is none. Throws Error (path and reason) if that fails or
  // if it holds anything else.
  explicit WindowJournal(std::string path);
  ~WindowJournal();
  WindowJournal(const WindowJournal&) = delete;
  WindowJournal& operator=(const WindowJournal&) = delete;

  // A worker is about to have started all windows below this one. Write puts all that was noted
  // since the last Write into the file, in one piece.
  void Started(int64_t worker, int64_t windows) { Note(kStarted, worker, windows); }
  void Write();
  // Records written so far; a checkpoint keeps it.
  int64_t position() const { return position_; }

  // To be called when a run goes on from a checkpoint that was made at `position` and in which the
  // workers have run these numbers of windows (all 0 from the beginning). Tells the ledger which
  // windows were started after it and rolled back, and notes where the run goes on.
  void GoOnFrom(int64_t position, std::span<const int64_t> windows, Ledger* ledger);

 private:
  static constexpr int32_t kStarted = 1;
  static constexpr int32_t kReset = 2;

  // Of workers [first, first + count).
  struct Record {
    int32_t kind = 0;
    int32_t first = 0;
    int64_t count = 0;
    int64_t windows = 0;
  };

  void Note(int32_t kind, int64_t worker, int64_t windows);
  std::vector<Record> Read() const;

  std::string path_;
  int descriptor_;
  int64_t position_ = 0;
  std::vector<Record> noted_;
};

}  // namespace lopt
