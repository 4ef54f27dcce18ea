// A run of meta-training in which one operation on files, or one allocation, fails, for each of
// them in turn: it ends well with the same bits, or says what went wrong, and goes on from its last
// checkpoint to the same bits; under AddressSanitizer nothing leaks besides. Most calls are left
// out, unless LOPT_TEST_EVERY_FAILURE is set: "1/1" for all of them, "2/3" for the 2nd, 5th, 8th...
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/tools/commands.h"
#include "tests/learner_child.h"
#include "tests/like_system_environment.h"
#include "tests/temp_directory.h"

#ifdef __SANITIZE_THREAD__
constexpr bool kTrapsAllocations = false;  // the sanitizer has its own allocator
constexpr int64_t kFileStride = 15;        // where a run takes seconds
#else
constexpr bool kTrapsAllocations = true;
constexpr int64_t kFileStride = 3;
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace lopt {
namespace {

// Counts calls of one kind, and tells one of them to fail.
struct Trap {
  bool Springs() { return armed && ++calls == springs_at; }

  std::atomic<bool> armed = false;
  std::atomic<int64_t> calls = 0;
  int64_t springs_at = 0;  // 0: never
};
constinit Trap allocation_trap;
constinit Trap file_trap;

[[maybe_unused]] bool AllocationFails() {  // unused under ThreadSanitizer
  if (!allocation_trap.Springs()) return false;
  errno = ENOMEM;
  return true;
}

// The system's files, of which the trap lets one call fail.
class TrappedFiles final : public FileSystem {
 public:
  int Open(const std::string& path, OpenFor what) override {
    return Call([&] { return files_.Open(path, what); });
  }
  int Close(int descriptor) override {  // closed in any case, as the system does
    const int result = files_.Close(descriptor);
    return Call([&] { return result; });
  }
  int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) override {
    return Call([&] { return files_.Read(descriptor, bytes, offset); });
  }
  int64_t Write(int descriptor, std::span<const std::byte> bytes) override {
    // Half of it is written before the disk is full.
    if (file_trap.Springs()) {
      files_.Write(descriptor, bytes.first(bytes.size() / 2));
      return -ENOSPC;
    }
    return files_.Write(descriptor, bytes);
  }
  int Flush(int descriptor) override {
    return Call([&] { return files_.Flush(descriptor); });
  }
  int FlushData(int descriptor) override {
    return Call([&] { return files_.FlushData(descriptor); });
  }
  int Cut(const std::string& path, int64_t bytes) override {
    return Call([&] { return files_.Cut(path, bytes); });
  }
  int Look(const std::string& path, FileStatus* status) override {
    return Call([&] { return files_.Look(path, status); });
  }
  int Follow(const std::string& path, std::string* place) override {
    return Call([&] { return files_.Follow(path, place); });
  }
  int MayWrite(const std::string& directory) override {
    return Call([&] { return files_.MayWrite(directory); });
  }
  int MakeDirectory(const std::string& path) override {
    return Call([&] { return files_.MakeDirectory(path); });
  }
  int List(const std::string& directory, std::vector<std::string>* names) override {
    return Call([&] { return files_.List(directory, names); });
  }
  int Rename(const std::string& from, const std::string& to) override {
    return Call([&] { return files_.Rename(from, to); });
  }
  int Link(const std::string& from, const std::string& to) override {
    return Call([&] { return files_.Link(from, to); });
  }
  int Remove(const std::string& path) override {
    return Call([&] { return files_.Remove(path); });
  }
  int Touch(const std::string& path) override {
    return Call([&] { return files_.Touch(path); });
  }
  int Lock(int descriptor) override {
    return Call([&] { return files_.Lock(descriptor); });
  }

 private:
  template <class F>
  auto Call(const F& call) -> decltype(call()) {
    return file_trap.Springs() ? -EIO : call();
  }

  FileSystem& files_ = SystemFiles();
};

}  // namespace
}  // namespace lopt

#ifdef __SANITIZE_ADDRESS__
// The sanitizer keeps the C library's functions for itself: the linker leads the program's calls of
// them here (--wrap), and those of shared libraries not.
extern "C" {
void* __real_malloc(size_t size);
void* __real_aligned_alloc(size_t alignment, size_t size);

void* __wrap_malloc(size_t size) { return lopt::AllocationFails() ? nullptr : __real_malloc(size); }
void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  return lopt::AllocationFails() ? nullptr : __real_aligned_alloc(alignment, size);
}
}
#elif !defined(__SANITIZE_THREAD__)
// The C library's, which operator new and Eigen call, with a trap before them.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) { return lopt::AllocationFails() ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return lopt::AllocationFails() ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  return lopt::AllocationFails() ? nullptr : __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return lopt::AllocationFails() ? nullptr : __libc_memalign(alignment, size);
}
}
#endif

namespace lopt {
namespace {

struct Ended {
  ChildEnd how;
  std::string errors;  // what it wrote to standard error
};

// The preset "smoke" cut down, in a child process. `trap`, where given, springs at a call.
class SmokeRun {
 public:
  explicit SmokeRun(const std::string& directory) : directory_(directory) {}

  std::string out() const { return directory_ + "/run"; }

  Ended Run(Trap* trap, int64_t springs_at, const std::vector<std::string>& more) const {
    const std::string errors = directory_ + "/errors";
    int64_t calls = 0;
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const ChildEnd how = RunInChild([&] {
      constexpr unsigned kSecondsForAll = 120;
      ::alarm(kSecondsForAll);  // a run that hangs is ended by a signal
      ::dup2(::open(errors.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), STDERR_FILENO);
      ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
      std::vector<std::string> words = {"meta-train",
                                        "--preset",
                                        "smoke",
                                        "--steps",
                                        "4",
                                        "--set",
                                        "checkpoint_steps=2",
                                        "--set",
                                        "eval_every=2",
                                        "--set",
                                        "eval_steps=2",
                                        "--set",
                                        "eval_seeds=1",
                                        "--threads",
                                        "2",
                                        "--out",
                                        out()};
      words.insert(words.end(), more.begin(), more.end());
      EnvironmentWith<TrappedFiles> environment;
      const InEnvironment in(&environment);
      if (trap != nullptr) {
        trap->springs_at = springs_at;
        trap->armed = true;
      }
      const int exit_code = RunProgram(words);
      if (trap != nullptr) {
        trap->armed = false;
        const int64_t made = trap->calls;
        [[maybe_unused]] const auto written = ::write(pipe_ends[1], &made, sizeof made);
      }
#ifdef __SANITIZE_ADDRESS__
      if (__lsan_do_recoverable_leak_check() != 0) ::_exit(kLeak);
#endif
      ::_exit(exit_code);
    });
    ::close(pipe_ends[1]);
    calls_ = ::read(pipe_ends[0], &calls, sizeof calls) == sizeof calls ? calls : 0;
    ::close(pipe_ends[0]);
    return {how, ReadTextFile(errors)};
  }
  // That the trap of the last run has seen.
  int64_t calls() const { return calls_; }

  std::vector<std::byte> Theta() const { return ReadFile(out() + "/theta.safetensors"); }

  static constexpr int kLeak = 77;

 private:
  std::string directory_;
  mutable int64_t calls_ = 0;
};

std::string Shown(const Ended& ended) {
  return fmt::format("exit code {}, signal {}: {}", ended.how.exit_code, ended.how.signal,
                     ended.errors);
}

// The destructors of the JSON library (3.11) allocate, and where that fails nothing can be caught.
bool IsAllocationInDestructor(const Ended& ended) {
  return ended.how.signal == SIGABRT && ended.errors.find("std::bad_alloc") != std::string::npos;
}

void FailEach(Trap* trap, int64_t stride) {
  const TempDirectory directory;
  const SmokeRun run(directory.path());
  const Ended undisturbed = run.Run(trap, 0, {});
  INFO(Shown(undisturbed));
  REQUIRE(undisturbed.how.exit_code == 0);
  const std::vector<std::byte> wanted = run.Theta();
  const int64_t calls = run.calls();
  REQUIRE(calls > 100);
  int64_t first = 1;
  if (const char* which = std::getenv("LOPT_TEST_EVERY_FAILURE")) {
    REQUIRE(std::sscanf(which, "%" SCNd64 "/%" SCNd64, &first, &stride) == 2);
  }
  int64_t failed = 0;
  int64_t aborted = 0;
  for (int64_t call = first; call <= calls; call += stride) {
    CAPTURE(call);
    RemoveAll(run.out());
    const Ended ended = run.Run(trap, call, {});
    CAPTURE(Shown(ended));
    if (ended.how.exit_code == 0) {
      CHECK(run.Theta() == wanted);
      continue;
    }
    ++failed;
    if (trap == &allocation_trap && IsAllocationInDestructor(ended)) {
      ++aborted;
    } else {
      CHECK(ended.how.exit_code == 1);
      CHECK(ended.errors.find("lopt: ") != std::string::npos);
    }
    const std::string checkpoints = run.out() + "/checkpoints";
    const bool resumes = CheckpointStore(checkpoints, {}).ReadNewest().has_value();
    const Ended again = run.Run(nullptr, 0, {resumes ? "--resume" : "--overwrite"});
    CAPTURE(Shown(again));
    CHECK(again.how.exit_code == 0);
    CHECK(run.Theta() == wanted);
  }
  MESSAGE(calls << " calls, each failed from " << first << " in steps of " << stride << ": "
                << failed << " runs ended so, " << aborted << " of them by abort");
  CHECK(failed > 0);
}

TEST_CASE("A file operation that fails ends a run with a message or does no harm: one in 90") {
  FailEach(&file_trap, 30 * kFileStride);
}

TEST_CASE("An allocation that fails ends a run with a message or does no harm: one in 6,000" *
          doctest::skip(!kTrapsAllocations)) {
  FailEach(&allocation_trap, 6000);
}

TEST_SUITE("nightly") {
  TEST_CASE("A file operation that fails ends a run with a message or does no harm: one in 3") {
    FailEach(&file_trap, kFileStride);
  }

  TEST_CASE("An allocation that fails ends a run with a message or does no harm: one in 500" *
            doctest::skip(!kTrapsAllocations)) {
    FailEach(&allocation_trap, 500);
  }
}

}  // namespace
}  // namespace lopt
