#include "lopt/tools/simulate/lock_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lopt/base/environment.h"
#include "lopt/base/run_lock.h"

namespace lopt {
namespace {

constexpr std::string_view kLockName = "run.lock";
// Who shows a sign of life after so long a silence may lose the lock within this time: another has
// looked just before.
constexpr double kRaceSeconds = 1;

std::string TextOf(Disk* disk, const std::string& path) {
  const int descriptor = disk->Open(path, OpenFor::kRead);
  if (descriptor < 0) return "";
  std::array<std::byte, 1000> bytes;
  const int64_t count = std::max<int64_t>(disk->Read(descriptor, bytes, 0), 0);
  disk->Close(descriptor);
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count)};
}

}  // namespace

void LockWatch::Read() {
  const std::string text = TextOf(disk_, path_);
  FileStatus status;
  const double sign = disk_->Look(path_, &status) == 0 ? status.changed : 0;
  if (text != text_) silence_ = 0;
  if (text == text_ && sign != sign_) silence_ = sign - sign_;
  text_ = text;
  sign_ = sign;
}

void LockWatch::Changed(const LockClaim& by) {
  const auto held = claims_.find(text_);
  LockClaim* const holder = held == claims_.end() ? nullptr : held->second;
  if (holder != nullptr && holder != &by && TextOf(disk_, path_) != text_) {
    CheckTaken(*holder, by);
    world_->Trace("{} loses the lock to {}", holder->learner->name(), by.learner->name());
    holder->lost_at = world_->now();
  }
  Read();
}

void LockWatch::CheckTaken(const LockClaim& from, const LockClaim& by) {
  const Process& holder = *from.learner;
  const bool runs = !holder.dead() && !holder.ended();
  const bool same_machine = holder.machine().boot == by.learner->machine().boot;
  const double silent = disk_->Now() - sign_;
  const bool woke_up = silent < kRaceSeconds && silence_ >= kLockSeconds;
  if (same_machine ? !runs : silent >= kLockSeconds || woke_up) return;
  if (!violation_.empty()) return;
  violation_ = fmt::format(
      "{} on {} has taken the lock of {} on {}, which {} and showed a sign of life {:.3f} s ago",
      by.learner->name(), by.learner->machine().host, holder.name(), holder.machine().host,
      runs ? "runs" : "has ended", silent);
}

std::string PartOf(const std::string& name) {
  if (name.starts_with(kLockName) || name.starts_with("status")) return "";
  if (name.starts_with("checkpoints")) return "checkpoints";
  if (name.find(".tmp.") != std::string::npos) return "";
  if (name.starts_with("events.") || name.ends_with(".jsonl")) return "logs";
  if (name == "theta_best.safetensors") return "best.json";
  return name;
}

template <class Result>
Result WatchedFiles::Note(Result result, const std::string& path) {
  if (result < 0 || !path.starts_with(directory_ + "/")) return result;
  const std::string name = path.substr(directory_.size() + 1);
  if (name == kLockName) watch_->Changed(*claim_);
  const std::string part = claim_->lost() ? PartOf(name) : "";
  if (!part.empty()) claim_->written_without.insert(part);
  return result;
}

int WatchedFiles::Open(const std::string& path, OpenFor what) {
  const int descriptor = PassingFiles::Open(path, what);
  if (descriptor >= 0 && Writes(what)) written_[descriptor] = path;
  return what == OpenFor::kReplace || MakesNew(what) ? Note(descriptor, path) : descriptor;
}

int64_t WatchedFiles::Write(int descriptor, std::span<const std::byte> bytes) {
  return Note(PassingFiles::Write(descriptor, bytes), written_[descriptor]);
}

int WatchedFiles::Cut(const std::string& path, int64_t bytes) {
  return Note(PassingFiles::Cut(path, bytes), path);
}

int WatchedFiles::MakeDirectory(const std::string& path) {
  return Note(PassingFiles::MakeDirectory(path), path);
}

int WatchedFiles::Rename(const std::string& from, const std::string& to) {
  return Note(Note(PassingFiles::Rename(from, to), from), to);
}

int WatchedFiles::Link(const std::string& from, const std::string& to) {
  return Note(PassingFiles::Link(from, to), to);
}

int WatchedFiles::Remove(const std::string& path) { return Note(PassingFiles::Remove(path), path); }

int WatchedFiles::Touch(const std::string& path) { return Note(PassingFiles::Touch(path), path); }

}  // namespace lopt
