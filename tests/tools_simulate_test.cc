#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/base/record.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/transport/transport.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/simulate/passing_files.h"
#include "lopt/tools/simulate/schedule.h"
#include "lopt/tools/simulate/small_run.h"

// Bugs are put between a process of the simulation and its world. Each must be found.

namespace lopt {
namespace {

// fsync of files, or of directories, does nothing.
class NoFlush final : public PassingFiles {
 public:
  NoFlush(FileSystem* files, bool directories) : PassingFiles(files), directories_(directories) {}

  int Open(const std::string& path, OpenFor what) override {
    const int descriptor = PassingFiles::Open(path, what);
    if (descriptor >= 0 && (what == OpenFor::kDirectory) == directories_) {
      left_out_.push_back(descriptor);
    }
    return descriptor;
  }
  int Flush(int descriptor) override {
    return std::ranges::count(left_out_, descriptor) > 0 ? 0 : PassingFiles::Flush(descriptor);
  }

 private:
  bool directories_;
  std::vector<int> left_out_;
};

// An fsync that fails is taken for one that has worked.
class IgnoresFailedFlush final : public PassingFiles {
 public:
  using PassingFiles::PassingFiles;

  int Flush(int descriptor) override {
    PassingFiles::Flush(descriptor);
    return 0;
  }
};

// A checkpoint has its name from the beginning, and the manifest is there before the other files.
class NamedTooEarly final : public PassingFiles {
 public:
  using PassingFiles::PassingFiles;

  int Open(const std::string& path, OpenFor what) override {
    return PassingFiles::Open(Final(path), what);
  }
  int Look(const std::string& path, FileStatus* status) override {
    return PassingFiles::Look(Final(path), status);
  }
  int MakeDirectory(const std::string& path) override {
    return PassingFiles::MakeDirectory(Final(path));
  }
  int List(const std::string& directory, std::vector<std::string>* names) override {
    return PassingFiles::List(Final(directory), names);
  }
  int Rename(const std::string& from, const std::string& to) override {
    return Final(from) == Final(to) ? 0 : PassingFiles::Rename(Final(from), Final(to));
  }
  int Remove(const std::string& path) override { return PassingFiles::Remove(Final(path)); }

 private:
  static std::string Final(std::string path) {
    const size_t at = path.find("tmp-step-");
    return at == std::string::npos ? path : path.erase(at, 4);
  }
};

bool EndsWith(const std::string& path, std::string_view name) { return path.ends_with(name); }

// What a resumed run is to take back of these files stays.
class KeepsLogs final : public PassingFiles {
 public:
  KeepsLogs(FileSystem* files, std::string name) : PassingFiles(files), name_(std::move(name)) {}

  int Cut(const std::string& path, int64_t bytes) override {
    return Is(path) ? 0 : PassingFiles::Cut(path, bytes);
  }
  int Remove(const std::string& path) override { return Is(path) ? 0 : PassingFiles::Remove(path); }

 private:
  bool Is(const std::string& path) const { return path.find(name_) != std::string::npos; }

  std::string name_;
};

// The best theta of what a run has given up stays.
class KeepsBest final : public PassingFiles {
 public:
  using PassingFiles::PassingFiles;

  int Remove(const std::string& path) override {
    const bool best = EndsWith(path, "/best.json") || EndsWith(path, "/theta_best.safetensors");
    return best ? 0 : PassingFiles::Remove(path);
  }
};

// A process that resumes thinks that its best theta has a high loss.
class ForgetsBest final : public PassingFiles {
 public:
  using PassingFiles::PassingFiles;

  int Open(const std::string& path, OpenFor what) override {
    const int descriptor = PassingFiles::Open(path, what);
    if (what == OpenFor::kRead && EndsWith(path, "/best.json")) opened_.insert(descriptor);
    return descriptor;
  }
  int Close(int descriptor) override {
    opened_.erase(descriptor);
    return PassingFiles::Close(descriptor);
  }
  int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) override {
    const int64_t count = PassingFiles::Read(descriptor, bytes, offset);
    if (count > 0 && opened_.contains(descriptor)) {
      const std::span text(reinterpret_cast<char*>(bytes.data()), static_cast<size_t>(count));
      const std::string_view key = "\"eval_loss\": ";
      auto digit = std::ranges::search(text, key).end();
      for (; *digit != ',' && *digit != '\n'; ++digit) *digit = '9';
    }
    return count;
  }

 private:
  std::set<int> opened_;
};

// A process that had the lock once reads that it still has it.
class BelievesInLock final : public PassingFiles {
 public:
  using PassingFiles::PassingFiles;

  int Link(const std::string& from, const std::string& to) override {
    const int error = PassingFiles::Link(from, to);
    if (error == 0 && IsLock(to)) text_ = RecordText(Environment::Current().ThisProcess()) + "\n";
    return error;
  }
  int Open(const std::string& path, OpenFor what) override {
    return Held(path) ? kLockDescriptor : PassingFiles::Open(path, what);
  }
  int Close(int descriptor) override {
    return descriptor == kLockDescriptor ? 0 : PassingFiles::Close(descriptor);
  }
  int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) override {
    if (descriptor != kLockDescriptor) return PassingFiles::Read(descriptor, bytes, offset);
    const auto left = std::as_bytes(std::span(text_)).subspan(static_cast<size_t>(offset));
    const size_t count = std::min(left.size(), bytes.size());
    std::copy_n(left.begin(), count, bytes.begin());
    return static_cast<int64_t>(count);
  }
  int Look(const std::string& path, FileStatus* status) override {
    const int error = PassingFiles::Look(path, status);
    if (error == 0 || !Held(path)) return error;
    *status = {.kind = FileKind::kFile, .bytes = std::ssize(text_), .links = 1};
    return 0;
  }

 private:
  static constexpr int kLockDescriptor = 1'000'000'000;
  static bool IsLock(const std::string& path) { return EndsWith(path, "/run.lock"); }
  bool Held(const std::string& path) const { return IsLock(path) && !text_.empty(); }

  std::string text_;  // that it wrote there; empty: it never had the lock
};

// The lock of another host is taken when it has shown no sign of life for some seconds.
class TakesLocksEarly final : public PassingFiles {
 public:
  using PassingFiles::PassingFiles;

  int Look(const std::string& path, FileStatus* status) override {
    const int error = PassingFiles::Look(path, status);
    if (EndsWith(path, "/run.lock")) status->changed -= 40;
    return error;
  }
};

// Messages that are passed on.
class OtherTransport : public Transport {
 public:
  explicit OtherTransport(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  int ranks_on_host() const override { return transport_->ranks_on_host(); }
  int rank_on_host() const override { return transport_->rank_on_host(); }
  std::string Description() const override { return transport_->Description(); }
  void Send(int to, int kind, std::vector<std::byte> bytes) override {
    transport_->Send(to, kind, std::move(bytes));
  }
  std::optional<Message> Poll() override { return transport_->Poll(); }
  void BeginFarewell() override { transport_->BeginFarewell(); }
  bool FarewellDone() override { return transport_->FarewellDone(); }
  bool NotifyOnArrival(Wakeup* wakeup) override { return transport_->NotifyOnArrival(wakeup); }
  bool RefuseAnswer(int from, const std::string& why) override {
    return transport_->RefuseAnswer(from, why);
  }
  int Exit(int exit_code) override { return transport_->Exit(exit_code); }

 private:
  void DoAbort(int exit_code) override { transport_->Abort(exit_code); }

  std::unique_ptr<Transport> transport_;
};

// When rank 0's own gradients come after those of others, they count as nothing.
class LosesUpdates final : public OtherTransport {
 public:
  using OtherTransport::OtherTransport;

  std::optional<Message> Poll() override {
    std::optional<Message> message = OtherTransport::Poll();
    if (!message || message->kind != kGradients) return message;
    if (message->from == 0 && last_from_ > 0) {
      auto gradients = FromWire<std::vector<WorkerGradient>>(message->bytes);
      for (WorkerGradient& gradient : gradients) {
        gradient.gradient.gradient.setZero();
        for (auto& estimator : gradient.gradient.estimators) estimator.gradient.setZero();
      }
      message->bytes = ToWire(gradients);
    }
    last_from_ = message->from;
    return message;
  }

 private:
  int last_from_ = 0;
};

// Gradients come once more after the next weights have been sent.
class CountsTwice final : public OtherTransport {
 public:
  using OtherTransport::OtherTransport;

  void Send(int to, int kind, std::vector<std::byte> bytes) override {
    if (kind == kWeights && kept_) again_ = std::exchange(kept_, std::nullopt);
    OtherTransport::Send(to, kind, std::move(bytes));
  }
  std::optional<Message> Poll() override {
    if (again_) return std::exchange(again_, std::nullopt);
    std::optional<Message> message = OtherTransport::Poll();
    if (message && message->kind == kGradients) kept_ = *message;
    return message;
  }

 private:
  std::optional<Message> kept_;
  std::optional<Message> again_;
};

TEST_CASE("Every invariant holds after each of 300 simulated schedules") {
  int64_t deaths = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ScheduleResult result = RunSchedule({.seed = seed});
    CHECK_MESSAGE(result.violation.empty(), "seed ", seed, ": ", result.violation);
    deaths += result.deaths;
  }
  CHECK_GT(deaths, 100);
}

TEST_CASE("Every invariant holds after schedules in which one did not") {
  // A process that had lost its lock ended with another error.
  for (const uint64_t seed : {7001863}) {
    CHECK_EQ(RunSchedule({.seed = seed}).violation, "");
  }
}

TEST_CASE("The same seed gives the same course of events, whether it is traced or not") {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const ScheduleResult one = RunSchedule({.seed = seed, .trace = true});
    const ScheduleResult two = RunSchedule({.seed = seed, .trace = true});
    const ScheduleResult quiet = RunSchedule({.seed = seed});
    CHECK_EQ(one.trace, two.trace);
    CHECK_GT(one.trace.size(), 1000);
    CHECK_EQ(one.steps, quiet.steps);
    CHECK_EQ(one.seconds, quiet.seconds);
  }
}

TEST_CASE("What schedules are compared with is the run outside of the simulation") {
  for (const GradientSum sum : {GradientSum::kInOrder, GradientSum::kTree}) {
    const MetaTrainConfig config = SmallRun({.sum = sum});
    const UndisturbedRun& undisturbed = Undisturbed({.sum = sum});
    REQUIRE_EQ(std::ssize(undisturbed.checkpoints), config.meta_steps + 1);
    CHECK_EQ(undisturbed.checkpoints.back().learner.theta,
             RunMetaTraining(config, {}).learner.theta);
  }
}

// Looks for every `every`-th of the bugs.
void FindBugs(size_t every) {
  struct Bug {
    std::string name;
    ScheduleOptions options;
  };
  const auto files = [](auto make) {
    return ScheduleOptions{.files = [=](int, FileSystem* files) { return make(files); }};
  };
  const auto learners = [](auto make) {
    return ScheduleOptions{.transport = [=](std::unique_ptr<Transport> transport) {
      return transport->rank() == 0 ? make(std::move(transport)) : std::move(transport);
    }};
  };
  using Files = std::unique_ptr<FileSystem>;
  using Link = std::unique_ptr<Transport>;
  const std::vector<Bug> bugs = {
      {"a lost update",
       learners([](Link link) -> Link { return std::make_unique<LosesUpdates>(std::move(link)); })},
      {"a gradient counted twice",
       learners([](Link link) -> Link { return std::make_unique<CountsTwice>(std::move(link)); })},
      {"a manifest before its files",
       files([](FileSystem* f) -> Files { return std::make_unique<NamedTooEarly>(f); })},
      {"fsync of files left out",
       files([](FileSystem* f) -> Files { return std::make_unique<NoFlush>(f, false); })},
      {"fsync of directories left out",
       files([](FileSystem* f) -> Files { return std::make_unique<NoFlush>(f, true); })},
      {"an fsync's error ignored",
       files([](FileSystem* f) -> Files { return std::make_unique<IgnoresFailedFlush>(f); })},
      {"event files that are not cut", files([](FileSystem* f) -> Files {
         return std::make_unique<KeepsLogs>(f, "/events.out.");
       })},
      {"a throughput.jsonl that is not cut", files([](FileSystem* f) -> Files {
         return std::make_unique<KeepsLogs>(f, "/throughput.jsonl");
       })},
      {"a metrics.jsonl that is not cut", files([](FileSystem* f) -> Files {
         return std::make_unique<KeepsLogs>(f, "/metrics.jsonl");
       })},
      {"the best theta of a future that was given up",
       files([](FileSystem* f) -> Files { return std::make_unique<KeepsBest>(f); })},
      {"the best theta forgotten at a resume",
       files([](FileSystem* f) -> Files { return std::make_unique<ForgetsBest>(f); })},
      {"another host's lock taken early",
       files([](FileSystem* f) -> Files { return std::make_unique<TakesLocksEarly>(f); })},
      {"a lock that is lost and not missed",
       files([](FileSystem* f) -> Files { return std::make_unique<BelievesInLock>(f); })},
      {"a dead heir kept", {.keeps_dead_heirs = true}},
  };
  for (size_t i = 0; i < bugs.size(); i += every) {
    const Bug& bug = bugs[i];
    CAPTURE(bug.name);
    std::string found;
    for (uint64_t seed = 0; seed < 3000 && found.empty(); ++seed) {
      ScheduleOptions options = bug.options;
      options.seed = seed;
      const std::string violation = RunSchedule(options).violation;
      if (!violation.empty()) found = fmt::format("seed {}: {}", seed, violation);
    }
    CHECK_FALSE(found.empty());
    MESSAGE(bug.name, ": ", found);
  }
}

TEST_CASE("Bugs that are put in on purpose are found, each within 3000 schedules: every fourth") {
  FindBugs(4);
}

TEST_CASE("Bugs that are put in on purpose are found, each within 3000 schedules" *
          doctest::test_suite("nightly")) {
  FindBugs(1);
}

TEST_CASE("The command runs schedules and refuses what makes no sense") {
  CHECK_EQ(RunProgram({"simulate", "--from", "3", "--schedules", "2"}), kExitDone);
  CHECK_EQ(RunProgram({"simulate", "--seed", "3"}), kExitDone);
  CHECK_EQ(RunProgram({"simulate", "--seed", "3", "--trace"}), kExitDone);
  CHECK_EQ(RunProgram({"simulate", "--schedules", "0"}), kExitUsage);
  CHECK_EQ(RunProgram({"simulate", "--seed", "-1"}), kExitUsage);
  CHECK_EQ(RunProgram({"simulate", "--from", "-1"}), kExitUsage);
  CHECK_EQ(RunProgram({"simulate", "--seed", "3", "--from", "3"}), kExitUsage);
  CHECK_EQ(RunProgram({"simulate", "--seed", "3", "--schedules", "2"}), kExitUsage);
  CHECK_EQ(RunProgram({"simulate", "--trace", "--schedules", "2"}), kExitUsage);
}

}  // namespace
}  // namespace lopt
