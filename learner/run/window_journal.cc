#include "learner/run/window_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace lopt {
WindowJournal::WindowJournal(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  Require(descriptor_ >= 0, "cannot open {}: {}", path_, std::generic_category().message(errno));
  const off_t size = ::lseek(descriptor_, 0, SEEK_END);
  position_ = size / static_cast<off_t>(sizeof(Record));
  // A record that was cut short is dropped.
  if (::ftruncate(descriptor_, position_ * static_cast<off_t>(sizeof(Record))) != 0) {
    const std::string reason = std::generic_category().message(errno);
    ::close(descriptor_);
    Fail("cannot write {}: {}", path_, reason);
  }
}

WindowJournal::~WindowJournal() { ::close(descriptor_); }

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
  std::vector<int64_t> started(windows.begin(), windows.end());
  const auto reset = [&](size_t worker, int64_t to) {
    if (started[worker] > to) {
      ledger->RollBack(static_cast<int64_t>(worker), to, started[worker]);
    }
    started[worker] = to;
  };
  const std::vector<Record> records = Read();
  for (size_t i = std::min(static_cast<size_t>(position), records.size()); i < records.size();
       ++i) {
    const Record& record = records[i];
    Require(record.first >= 0 && record.count >= 1 &&
                record.count <= std::ssize(started) - record.first &&
                (record.kind == kStarted || record.kind == kReset),
            "{} is damaged at record {}", path_, i);
    for (int64_t w = record.first; w < record.first + record.count; ++w) {
      const auto worker = static_cast<size_t>(w);
      if (record.kind == kReset) {
        reset(worker, record.windows);
      } else {
        started[worker] = record.windows;
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
  const std::span<const Record> records(noted_);
  const ssize_t written = ::write(descriptor_, records.data(), records.size_bytes());
  Require(written == static_cast<ssize_t>(records.size_bytes()), "cannot write {}: {}", path_,
          written < 0 ? std::generic_category().message(errno) : "the disk is full");
  position_ += std::ssize(records);
  noted_.clear();
}

std::vector<WindowJournal::Record> WindowJournal::Read() const {
  const std::vector<std::byte> bytes = ReadFile(path_);
  std::vector<Record> records(bytes.size() / sizeof(Record));
  if (!records.empty()) {
    std::memcpy(records.data(), bytes.data(), records.size() * sizeof(Record));
  }
  return records;
}

}  // namespace lopt
