#include "lopt/learner/run/window_journal.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"

namespace lopt {
namespace {

// Records are forgotten when there are so many (1.2 MB).
constexpr int64_t kMany = 50000;
// No run comes so far; sums of positions and of bytes stay in range.
constexpr int64_t kLastPosition = int64_t{1} << 56;

FileSystem& JournalFiles() { return Environment::Current().files(); }

}  // namespace

WindowJournal::WindowJournal(std::string path) : path_(std::move(path)) { Open(); }

void WindowJournal::Open() {
  file_.emplace(path_, OpenFor::kAppend, "cannot open");
  begin_ = header_ = 0;
  // A record that was cut short is dropped.
  end_ = FileSize(path_).value_or(0) / static_cast<int64_t>(sizeof(Record));
  CutAt(end_);
  if (end_ > 0) {
    const Record first = Read(0, 1)[0];
    if (first.kind == kForgotten) {
      RequirePosition(first.count);
      header_ = 1;
      begin_ = first.count;
      end_ += begin_ - 1;
    }
  }
}

void WindowJournal::RequirePosition(int64_t position) const {
  Require(
      position >= 0 && position <= kLastPosition,
      "{} cannot go on at record {}, wanted 0 to {}: the run's list of windows or its checkpoint "
      "is damaged",
      path_, position, kLastPosition);
}

int64_t WindowJournal::Offset(int64_t position) const {
  return (position - begin_ + header_) * static_cast<int64_t>(sizeof(Record));
}

// Whether it is a record of windows of workers that there are.
bool WindowJournal::Names(const Record& record, int64_t workers) {
  return (record.kind == kStarted || record.kind == kReset) && record.first >= 0 &&
         record.count >= 1 && record.count <= workers - record.first && record.windows >= 0;
}

// Workers in a row that are as far as each other share a record.
void WindowJournal::Note(int32_t kind, int64_t worker, int64_t windows) {
  if (!noted_.empty()) {
    Record& last = noted_.back();
    if (last.kind == kind && last.windows == windows && last.first + last.count == worker) {
      ++last.count;
      return;
    }
  }
  noted_.push_back(
      {.kind = kind, .first = static_cast<int32_t>(worker), .count = 1, .windows = windows});
}

void WindowJournal::GoOnFrom(int64_t position, std::span<const int64_t> windows, Ledger* ledger) {
  RequirePosition(position);
  std::vector<int64_t> started(windows.begin(), windows.end());
  const auto reset = [&](size_t worker, int64_t to) {
    if (started[worker] > to) {
      ledger->RollBack(static_cast<int64_t>(worker), to, started[worker]);
    }
    started[worker] = to;
  };
  if (position < begin_ || position > end_) {
    spdlog::warn(
        "{} holds the records {} to {}, and the checkpoint goes on at {}: windows that began in "
        "between and were lost are not counted",
        path_, begin_, end_, position);
  }
  if (position > end_) {
    Rewrite(position);
  }
  constexpr int64_t kAtOnce = 4096;
  for (int64_t at = std::max(position, begin_); at < end_;) {
    for (const Record& record : Read(at, std::min(kAtOnce, end_ - at))) {
      if (!Names(record, std::ssize(started))) {
        spdlog::warn(
            "{} is damaged from record {} on, which is cut off: what was lost of the {} "
            "records there is not counted",
            path_, at, end_ - at);
        CutAt(at);
        break;
      }
      ++at;
      for (int64_t w = record.first; w < record.first + record.count; ++w) {
        const auto worker = static_cast<size_t>(w);
        if (record.kind == kReset) {
          reset(worker, record.windows);
        } else {
          started[worker] = record.windows;
        }
      }
    }
  }
  for (size_t w = 0; w < started.size(); ++w) {
    reset(w, windows[w]);
    Note(kReset, static_cast<int64_t>(w), windows[w]);
  }
  Write();
}

void WindowJournal::Write() {
  const int error = file_->Write(std::as_bytes(std::span(noted_)));
  if (error != 0) Fail("cannot write {}: {}", path_, SystemReason(error));
  end_ += std::ssize(noted_);
  noted_.clear();
}

void WindowJournal::Sync() const {
  const int error = -JournalFiles().FlushData(file_->number());
  if (error != 0) Fail("cannot flush {}: {}", path_, SystemReason(error));
}

void WindowJournal::ForgetBefore(int64_t position) {
  if (position - begin_ >= kMany) {
    Rewrite(position);
  }
}

std::vector<WindowJournal::Record> WindowJournal::Read(int64_t position, int64_t count) const {
  std::vector<Record> records(static_cast<size_t>(count));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(records));
  const int64_t read = JournalFiles().Read(file_->number(), bytes, Offset(position));
  Require(read == std::ssize(bytes), "cannot read {}: {}", path_,
          read < 0 ? SystemReason(static_cast<int>(-read)) : "it ends too early");
  return records;
}

void WindowJournal::Rewrite(int64_t begin) {
  std::vector<Record> records = {{.kind = kForgotten, .first = 0, .count = begin, .windows = 0}};
  if (begin < end_) {
    std::ranges::copy(Read(begin, end_ - begin), std::back_inserter(records));
  }
  WriteFile(path_, std::as_bytes(std::span(records)), Flush::kNo);
  Open();
}

// The records before the position stay.
void WindowJournal::CutAt(int64_t position) {
  CutFile(path_, Offset(position));
  end_ = position;
}

}  // namespace lopt
