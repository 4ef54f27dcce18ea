#include "lopt/learner/transport/mpi_transport.h"

#include <fmt/format.h>
#define MPICH_SKIP_MPICXX 1
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/platform.h"

namespace lopt {
namespace {

// Seconds that MPI_Finalize gets. After the farewell every rank calls it, but on a loaded machine
// some do so late, and a rank that has left by then makes the launcher kill the others.
constexpr unsigned kFinalizeSeconds = 300;
// Before it, after an error, the others may never call it.
constexpr unsigned kFinalizeSecondsAlone = 5;
constexpr std::chrono::milliseconds kOutputGrace{100};

void Check(int code, const char* what) {
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    Fail("{} failed: {}", what, std::string(text, static_cast<size_t>(length)));
  }
}

int RankIn(MPI_Comm communicator) {
  int rank = 0;
  Check(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  return rank;
}

int SizeOf(MPI_Comm communicator) {
  int size = 0;
  Check(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  return size;
}

// The ranks on this one's host, and its place among them.
struct RanksOnHost {
  int count = 0;
  int place = 0;
};

RanksOnHost FindRanksOnHost() {
  MPI_Comm host = MPI_COMM_NULL;
  Check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  const RanksOnHost found{.count = SizeOf(host), .place = RankIn(host)};
  Check(MPI_Comm_free(&host), "MPI_Comm_free");
  return found;
}

// The exit code for when MPI_Finalize does not return.
volatile std::sig_atomic_t code_after_alarm = 0;

void OnAlarm(int /*signal*/) { ::_exit(code_after_alarm); }

// The type of so many bytes, which may be more than an int counts: blocks and a rest. A message on
// its way may outlive it.
class BytesType {
 public:
  BytesType(size_t bytes, size_t block) {
    MPI_Datatype of_block = MPI_DATATYPE_NULL;
    Check(MPI_Type_contiguous(static_cast<int>(block), MPI_BYTE, &of_block), "MPI_Type_contiguous");
    const size_t blocks = bytes / block;
    const std::array<int, 2> counts = {static_cast<int>(blocks), static_cast<int>(bytes % block)};
    const std::array<MPI_Aint, 2> places = {0, static_cast<MPI_Aint>(blocks * block)};
    const std::array<MPI_Datatype, 2> types = {of_block, MPI_BYTE};
    Check(MPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &type_),
          "MPI_Type_create_struct");
    Check(MPI_Type_commit(&type_), "MPI_Type_commit");
    Check(MPI_Type_free(&of_block), "MPI_Type_free");
  }
  ~BytesType() { MPI_Type_free(&type_); }
  BytesType(const BytesType&) = delete;
  BytesType& operator=(const BytesType&) = delete;

  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// Messages on their way, in the order in which they began, from or to `peers` ranks.
class Transfers {
 public:
  explicit Transfers(int peers) : held_up_(static_cast<size_t>(peers)) {}

  bool empty() const { return messages_.empty(); }
  // In a message on its way out, `from` is the rank that it goes to.
  void Add(Message message, MPI_Request request) {
    messages_.push_back(std::move(message));
    requests_.push_back(request);
  }
  // Gives `take` the messages that are complete, those of each peer in order. One look at all.
  template <class Take>
  void TakeDone(const Take& take) {
    if (empty()) {
      return;
    }
    done_.resize(requests_.size());
    int count = 0;
    Check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    if (count == 0) {
      return;
    }
    // What is done has no request any more.
    held_up_.assign(held_up_.size(), false);
    size_t kept = 0;
    for (size_t i = 0; i < messages_.size(); ++i) {
      const auto peer = static_cast<size_t>(messages_[i].from);
      if (requests_[i] == MPI_REQUEST_NULL && !held_up_[peer]) {
        take(std::move(messages_[i]));
        continue;
      }
      held_up_[peer] = true;
      requests_[kept] = requests_[i];
      std::swap(messages_[kept], messages_[i]);
      ++kept;
    }
    messages_.resize(kept);
    requests_.resize(kept);
  }

 private:
  std::vector<Message> messages_;
  std::vector<MPI_Request> requests_;
  std::vector<int> done_;
  std::vector<bool> held_up_;
};

// MPICH's process manager (4.0.2) forgets the exit code of a process that it reaps after all of its
// outputs have closed, once it has passed a signal on: a job that was told to stop would end with
// 0. A child keeps standard error open until this process has been reaped, a second at most.
void KeepExitCode() {
  constexpr int kLooks = 1000;
  constexpr unsigned kLookMicroseconds = 1000;
  const pid_t process = ::getpid();
  if (::fork() != 0) {
    return;
  }
  ::setsid();  // the process manager may kill the group
  while (::getppid() == process) {
    ::usleep(kLookMicroseconds);
  }
  // What closes now makes the manager look for processes that have ended.
  ::close(STDIN_FILENO);
  ::close(STDOUT_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  for (int look = 0; look < kLooks && ::kill(process, 0) == 0; ++look) {
    ::usleep(kLookMicroseconds);
  }
  ::_exit(0);
}

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(size_t block_bytes)
      : block_bytes_(block_bytes),
        rank_(RankIn(MPI_COMM_WORLD)),
        size_(SizeOf(MPI_COMM_WORLD)),
        ranks_on_host_(FindRanksOnHost()),
        sends_(size_),
        receives_(size_) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_host() const override { return ranks_on_host_.count; }
  int rank_on_host() const override { return ranks_on_host_.place; }
  bool RanksAreProcesses() const override { return true; }
  std::string Description() const override {
    return fmt::format("{}, {} rank{}", MpiLibrary(), size_, size_ == 1 ? "" : "s");
  }

  void Send(int to, int kind, std::vector<std::byte> bytes) override {
    Require(to >= 0 && to < size_, "there is no rank {} among {}", to, size_);
    Require(!farewell_done_, "this job has ended on all ranks, so rank {} cannot send any more",
            rank_);
    if (to == rank_) {
      ready_.push_back({.from = rank_, .kind = kind, .bytes = std::move(bytes)});
      return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    WithType(bytes.size(), [&](int count, MPI_Datatype type) {
      Check(MPI_Isend(bytes.data(), count, type, to, kind, MPI_COMM_WORLD, &request), "MPI_Isend");
    });
    sends_.Add({.from = to, .kind = kind, .bytes = std::move(bytes)}, request);
  }

  std::optional<Message> Poll() override {
    if (ready_.empty()) {
      AdvanceSends();
      BeginReceives();
      receives_.TakeDone([this](Message message) { ready_.push_back(std::move(message)); });
    }
    if (ready_.empty()) {
      return std::nullopt;
    }
    Message message = std::move(ready_.front());
    ready_.pop_front();
    return message;
  }

  void BeginFarewell() override {
    farewell_begun_ = true;
    Check(MPI_Ibarrier(MPI_COMM_WORLD, &farewell_), "MPI_Ibarrier");
  }

  bool FarewellDone() override {
    AdvanceSends();
    if (!farewell_begun_) return false;
    int done = 0;
    Check(MPI_Test(&farewell_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    farewell_done_ = done != 0 && sends_.empty();
    return farewell_done_;
  }

  bool NotifyOnArrival(Wakeup* /*wakeup*/) override { return false; }

  int Exit(int exit_code) override {
    std::fflush(nullptr);
    if (exit_code != 0) {
      KeepExitCode();
    }
    if (ranks_on_host_.count != size_) {
      ::_exit(exit_code);
    }
    code_after_alarm = exit_code;
    std::signal(SIGALRM, OnAlarm);
    ::alarm(farewell_done_ ? kFinalizeSeconds : kFinalizeSecondsAlone);
    MPI_Finalize();
    ::alarm(0);
    return exit_code;
  }

 private:
  void DoAbort(int exit_code) override {
    std::fflush(nullptr);
    // The launcher drops what it has not passed on by then.
    std::this_thread::sleep_for(kOutputGrace);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }

  void AdvanceSends() {
    sends_.TakeDone([](const Message&) {});
  }

  // Gives `use` a type, and how many of it so many bytes are.
  template <class Use>
  void WithType(size_t bytes, const Use& use) const {
    if (bytes <= block_bytes_) {
      use(static_cast<int>(bytes), MPI_BYTE);
    } else {
      use(1, BytesType(bytes, block_bytes_).get());
    }
  }

  void BeginReceives() {
    for (;;) {
      int arrived = 0;
      MPI_Status status;
      Check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &arrived, &status),
            "MPI_Iprobe");
      if (arrived == 0) {
        return;
      }
      MPI_Count size = 0;
      Check(MPI_Get_elements_x(&status, MPI_BYTE, &size), "MPI_Get_elements_x");
      Message message{.from = status.MPI_SOURCE,
                      .kind = status.MPI_TAG,
                      .bytes = std::vector<std::byte>(static_cast<size_t>(size))};
      MPI_Request request = MPI_REQUEST_NULL;
      WithType(message.bytes.size(), [&](int count, MPI_Datatype type) {
        Check(MPI_Irecv(message.bytes.data(), count, type, status.MPI_SOURCE, status.MPI_TAG,
                        MPI_COMM_WORLD, &request),
              "MPI_Irecv");
      });
      receives_.Add(std::move(message), request);
    }
  }

  size_t block_bytes_;
  int rank_;
  int size_;
  RanksOnHost ranks_on_host_;
  Transfers sends_;
  Transfers receives_;
  std::deque<Message> ready_;  // arrived, in order
  MPI_Request farewell_ = MPI_REQUEST_NULL;
  bool farewell_begun_ = false;
  bool farewell_done_ = false;
};

}  // namespace

std::string MpiLibrary() {
  // MPICH: "MPICH Version:\t4.0.2\n..."; Open MPI: "Open MPI v4.1.4, package: ...".
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) {
    return "MPI";
  }
  std::string name(text, static_cast<size_t>(length));
  name.resize(std::min(name.find_first_of(",\n"), name.size()));
  const std::string version = " Version:";
  if (const size_t at = name.find(version); at != std::string::npos) {
    name.erase(at, version.size());
  }
  for (char& c : name) {
    c = c == '\t' ? ' ' : c;
  }
  while (name.find("  ") != std::string::npos) {
    name.erase(name.find("  "), 1);
  }
  return name;
}

std::unique_ptr<Transport> MakeMpiTransport(size_t block_bytes) {
  // Sleeps of 15 us are rounded up to 50 us otherwise.
  SleepPrecisely();
  int provided = 0;
  Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  Require(provided >= MPI_THREAD_FUNNELED,
          "this MPI does not allow other threads in the process (MPI_THREAD_FUNNELED)");
  Check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return std::make_unique<MpiTransport>(block_bytes);
}

}  // namespace lopt
