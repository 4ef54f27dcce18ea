#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/ledger.h"
#include "lopt/learner/run/window_journal.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// A gradient whose estimators ran these inner steps, one of them with a loss that was not finite.
AggregatedGradient Steps(const std::vector<int64_t>& steps) {
  AggregatedGradient gradient;
  for (const int64_t count : steps) {
    gradient.estimators.push_back({.counts = {.inner_steps = count, .non_finite = 1}});
  }
  return gradient;
}

StepShares Shares(const std::map<Outcome, int64_t>& steps) {
  StepShares shares;
  for (const auto& [outcome, count] : steps) shares[outcome] = count;
  return shares;
}

TEST_CASE("Every step is accounted once, by worker and estimator") {
  Ledger ledger(2, 2);
  ledger.Account(Outcome::kUsed, {.worker = 0, .first = 0, .windows = 1}, Steps({10, 20}));
  ledger.Account(Outcome::kStale, {.worker = 0, .first = 1, .windows = 1}, Steps({11, 21}));
  ledger.Account(Outcome::kLate, {.worker = 1, .first = 0, .windows = 1}, Steps({12, 22}));
  ledger.Account(Outcome::kLost, {.worker = 1, .first = 1, .windows = 1}, Steps({13, 23}));
  ledger.Account(Outcome::kNonFinite, {.worker = 1, .first = 2, .windows = 1}, Steps({14, 24}));
  CHECK(ledger.Of(0, 0) ==
        Shares({{Outcome::kUsed, 9}, {Outcome::kStale, 11}, {Outcome::kNonFinite, 1}}));
  CHECK(ledger.Of(1, 1) ==
        Shares({{Outcome::kLate, 22}, {Outcome::kLost, 23}, {Outcome::kNonFinite, 24}}));
  CHECK(ledger.OfWorker(0) ==
        Shares({{Outcome::kUsed, 28}, {Outcome::kStale, 32}, {Outcome::kNonFinite, 2}}));
  CHECK(ledger.OfEstimator(0) == Shares({{Outcome::kUsed, 9},
                                         {Outcome::kStale, 11},
                                         {Outcome::kLate, 12},
                                         {Outcome::kLost, 13},
                                         {Outcome::kNonFinite, 15}}));
  CHECK(ledger.Total().Total() == 10 + 20 + 11 + 21 + 12 + 22 + 13 + 23 + 14 + 24);
  CHECK_THROWS_AS(ledger.Account(Outcome::kUsed, {.worker = 2}, Steps({1, 1})), Error);
  CHECK_THROWS_AS(ledger.Account(Outcome::kUsed, {.worker = 0}, Steps({1})), Error);
}

TEST_CASE("Windows that were rolled back are counted as lost each time that they were") {
  Ledger ledger(1, 1);
  ledger.RollBack(0, 2, 6);
  ledger.RollBack(0, 2, 4);
  CHECK(ledger.UnknownWindows() == 6);
  CHECK(Ledger::FromArrays(ledger.ToArrays()) == ledger);
  for (int64_t first = 2; first < 8; first += 2) {
    CHECK(ledger.UnknownWindows() == (first == 2 ? 6 : first == 4 ? 2 : 0));
    ledger.Account(Outcome::kUsed, {.worker = 0, .first = first, .windows = 2},
                   Steps({10 + first}));
  }
  CHECK(ledger.UnknownWindows() == 0);
  CHECK(ledger.Of(0, 0)[Outcome::kLost] == 12 * 2 + 14);
  CHECK(ledger.Total().Total() == 12 * 3 + 14 * 2 + 16);
  CHECK(Ledger::FromArrays(ledger.ToArrays()) == ledger);
}

// Worker `first` and those after it have started all windows below these.
void NoteStarted(int64_t first, const std::vector<int64_t>& windows, WindowJournal* journal) {
  for (const int64_t started : windows) journal->Started(first++, started);
  journal->Write();
}

TEST_CASE("The journal knows what was started after a checkpoint, over several processes") {
  const TempDirectory directory;
  const std::string path = directory / "windows.bin";
  Ledger ledger(2, 1);
  const std::vector<int64_t> none = {0, 0};
  {
    WindowJournal journal(path);
    journal.GoOnFrom(0, none, &ledger);
    NoteStarted(0, {1, 1}, &journal);
    NoteStarted(0, {2, 2}, &journal);
  }
  CHECK(ledger.UnknownWindows() == 0);
  const std::vector<int64_t> one = {1, 1};
  int64_t position = 0;
  {
    // Back to the start: two windows each are lost. A checkpoint after the first.
    WindowJournal journal(path);
    journal.GoOnFrom(0, none, &ledger);
    CHECK(ledger.UnknownWindows() == 4);
    NoteStarted(0, one, &journal);
    position = journal.position();
    NoteStarted(0, {2, 2}, &journal);
    NoteStarted(1, {3}, &journal);
  }
  for (int64_t times = 1; times <= 2; ++times) {
    // From the checkpoint: one window and two, and once more in the second round one of worker 0.
    Ledger from_checkpoint(2, 1);
    WindowJournal journal(path);
    journal.GoOnFrom(position, one, &from_checkpoint);
    CHECK(from_checkpoint.UnknownWindows() == (times == 1 ? 3 : 4));
    NoteStarted(0, {2}, &journal);
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  CHECK_NOTHROW(WindowJournal(path).position());
}

TEST_CASE("Windows that many workers start together are one record") {
  const TempDirectory directory;
  WindowJournal journal(directory / "windows.bin");
  for (int64_t w = 0; w < 1000; ++w) journal.Started(w, 1);
  CHECK(journal.position() == 0);
  journal.Write();
  CHECK(journal.position() == 1);
  for (int64_t w = 0; w < 1000; ++w) {
    if (w != 500) journal.Started(w, 2);
  }
  journal.Write();
  CHECK(journal.position() == 3);
}

// How many windows after `position` the journal in this file says were lost.
int64_t LostAfter(const std::string& path, int64_t position, int64_t windows = 0) {
  Ledger ledger(1, 1);
  WindowJournal(path).GoOnFrom(position, std::vector<int64_t>{windows}, &ledger);
  return ledger.UnknownWindows();
}

TEST_CASE("A journal forgets what is older than the oldest checkpoint, and positions stay") {
  const TempDirectory directory;
  const std::string path = directory / "windows.bin";
  int64_t position = 0;
  {
    WindowJournal journal(path);
    for (int64_t window = 1; window <= 100000; ++window) {
      NoteStarted(0, {window}, &journal);
      if (window == 60000) position = journal.position();
    }
    const auto size = std::filesystem::file_size(path);
    journal.ForgetBefore(position);
    CHECK(std::filesystem::file_size(path) < size / 2);
    CHECK(journal.position() == 100000);
    NoteStarted(0, {100001}, &journal);
  }
  CHECK(WindowJournal(path).position() == 100001);
  std::filesystem::copy_file(path, directory / "other.bin");
  CHECK(LostAfter(path, position, 60000) == 40001);
  CHECK(LostAfter(directory / "other.bin", 100000, 100000) == 1);
}

TEST_CASE("A position that no run comes to is an Error, before anything is computed with it") {
  const TempDirectory directory;
  const std::string path = directory / "windows.bin";
  for (const int64_t position :
       {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const std::string error = fmt::format(
        "{} cannot go on at record {}, wanted 0 to 72057594037927936: the run's list of windows or "
        "its checkpoint is damaged",
        path, position);
    CHECK_THROWS_WITH_AS(LostAfter(path, position), error.c_str(), Error);
    std::vector<int64_t> header = {3, position, 0};  // the kind kForgotten, and the place
    WriteFile(directory / "other.bin", std::as_bytes(std::span(header)));
    CHECK_THROWS_AS(WindowJournal(directory / "other.bin"), Error);
  }
}

TEST_CASE("What a crash of the machine took from a journal is left out, and the run goes on") {
  const TempDirectory directory;
  const std::string path = directory / "windows.bin";
  {
    WindowJournal journal(path);
    for (int64_t window = 1; window <= 10; ++window) NoteStarted(0, {window}, &journal);
  }
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 3 * size / 10);
  std::filesystem::resize_file(path, size);  // zeros in place of the last three records
  std::filesystem::copy_file(path, directory / "zeros.bin");
  CHECK(LostAfter(path, 5, 5) == 2);
  CHECK(LostAfter(directory / "zeros.bin", 8, 8) == 0);
  // One that ends before the checkpoint, or is gone.
  for (const bool gone : {false, true}) {
    if (gone) std::filesystem::remove(path);
    CHECK(LostAfter(path, 50, 50) == 0);
    WindowJournal journal(path);
    CHECK(journal.position() > 50);
    NoteStarted(0, {51}, &journal);
    CHECK(LostAfter(path, 50, 50) == 1);
  }
}

TEST_CASE("The ledger of a sync run has every step used, by worker") {
  const LocalJob job = RunLocalJob(SmallExperiment(3, 5), 2);
  const StepShares total = job.result.ledger.Total();
  CHECK(total[Outcome::kUsed] == total.Total());
  int64_t inner_steps = 0;
  for (const StepCounts& counts : job.result.totals) inner_steps += counts.inner_steps;
  CHECK(total.Total() == inner_steps);
  for (int64_t w = 0; w < 3; ++w) {
    CHECK(job.result.ledger.Of(w, 0)[Outcome::kUsed] == 5 * 120);
  }
}

TEST_CASE("What is rolled back at a resume is in the ledger, and the rest as if undisturbed") {
  const TempDirectory directory;
  const MetaTrainConfig config = SmallExperiment(2, 12);
  const MetaTrainResult whole = RunMetaTraining(config, {});
  // Ends with an error after update 10: the newest checkpoint is of update 7.
  const LocalJob failed = RunLocalJob(config, 2, [&](int rank) {
    MetaTrainerOptions options{.out_dir = directory.path()};
    if (rank == 0) {
      options.on_event = [](std::string_view event) {
        if (event == "step:10") throw Error("enough");
      };
    }
    return options;
  });
  CHECK(failed.errors[0] == "enough");
  const LocalJob resumed =
      RunLocalJob(config, 2, MetaTrainerOptions{.out_dir = directory.path(), .resume = true});
  const Ledger& ledger = resumed.result.ledger;
  CHECK(resumed.result.learner.theta == whole.learner.theta);
  CHECK(ledger.Total()[Outcome::kUsed] == whole.ledger.Total()[Outcome::kUsed]);
  CHECK(ledger.UnknownWindows() == 0);
  // Updates 7, 8 and 9 were rolled back: 120 steps each of estimator 0 and 32 of estimator 1.
  for (int64_t w = 0; w < 2; ++w) {
    CHECK(ledger.Of(w, 0)[Outcome::kLost] == 3 * 120);
    CHECK(ledger.Of(w, 1)[Outcome::kLost] == 3 * 32);
    CHECK(ledger.Of(w, 2)[Outcome::kLost] > 0);
  }
  CHECK(CheckpointStore(directory / "checkpoints", {}).ReadNewest()->ledger == ledger);
}

}  // namespace
}  // namespace lopt
