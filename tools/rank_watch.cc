#include "tools/rank_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lopt {

namespace {

// The C library declares no pidfd_open for C++. -1 if there is no such process.
int PidDescriptor(int64_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
}

std::string HostName() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

RankWatch::RankWatch(std::string out_dir, double now)
    : out_dir_(std::move(out_dir)), host_(HostName()), start_(now) {}

RankWatch::~RankWatch() {
  for (const auto& [number, rank] : ranks_) {
    if (rank.process >= 0) ::close(rank.process);
  }
}

void RankWatch::Read(double now) {
  for (RankReport& report : ReadRankReports(out_dir_)) {
    const auto [place, is_new] = ranks_.try_emplace(report.rank);
    Rank& rank = place->second;
    if (is_new && report.host == host_) {
      rank.process = PidDescriptor(report.pid);
    }
    if (is_new || report.time_seconds != rank.report.time_seconds) rank.changed = now;
    rank.report = std::move(report);
  }
}

std::vector<int> RankWatch::Processes() const {
  std::vector<int> processes;
  for (const auto& [number, rank] : ranks_) {
    if (rank.process >= 0 && !ended_) processes.push_back(rank.process);
  }
  return processes;
}

void RankWatch::NoteEnded() {
  if (ended_) return;
  for (auto& [number, rank] : ranks_) {
    pollfd process = {.fd = rank.process, .events = POLLIN, .revents = 0};
    rank.ended_first = rank.process >= 0 && ::poll(&process, 1, 0) == 1;
    ended_ = ended_ || rank.ended_first;
  }
}

int64_t RankWatch::updates() const {
  int64_t most = 0;
  for (const auto& [number, rank] : ranks_) most = std::max(most, rank.report.updates);
  return most;
}

double RankWatch::last_change() const {
  double last = start_;
  for (const auto& [number, rank] : ranks_) last = std::max(last, rank.changed);
  return last;
}

std::vector<RankReport> RankWatch::All() const {
  std::vector<RankReport> all;
  for (const auto& [number, rank] : ranks_) all.push_back(rank.report);
  return all;
}

std::vector<RankReport> RankWatch::EndedFirst() const {
  std::vector<RankReport> ended;
  for (const auto& [number, rank] : ranks_) {
    if (rank.ended_first) ended.push_back(rank.report);
  }
  return ended;
}

std::vector<RankReport> RankWatch::Behind(double seconds) const {
  std::vector<RankReport> behind;
  const double last = last_change();
  for (const auto& [number, rank] : ranks_) {
    if (last - rank.changed > seconds) behind.push_back(rank.report);
  }
  return behind;
}

}  // namespace lopt
