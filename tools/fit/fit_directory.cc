#include "lopt/tools/fit/fit_directory.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/option_words.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/parallel.h"
#include "lopt/base/record.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/tasks/data/data_checksums.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/fit/fit_candidate.h"
#include "lopt/tools/fit/fit_plan.h"

namespace lopt {
namespace {

constexpr int64_t kFewestSteps = 20;
constexpr int64_t kFewestFitSeeds = 3;
constexpr int64_t kMostFitSeeds = 10000;

constexpr std::string_view kFitFiles[] = {
    kFitFile,       kFitStartFile,     kFitBaseFile,        kFitThetaFile,
    kFitReportFile, kFitMetaDirectory, kFitCompareDirectory};

void CheckFitRequest(const FitRequest& request) {
  Require(request.steps >= kFewestSteps, "fit: wanted at least {} steps, got {}", kFewestSteps,
          request.steps);
  Require(request.seeds >= kFewestFitSeeds, "fit: wanted at least {} seeds, got {}",
          kFewestFitSeeds, request.seeds);
  Require(request.seeds <= kMostFitSeeds, "fit: wanted at most {} seeds, got {}", kMostFitSeeds,
          request.seeds);
  Require(request.seed >= 0, "fit: seed must be at least 0, got {}", request.seed);
  Require(request.minutes || (request.updates && request.trials),
          "fit: wanted minutes, or both updates and trials, to know when to end");
  Require(!(request.minutes && request.updates && request.trials),
          "fit: wanted minutes, or both updates and trials, got all three: minutes would change "
          "nothing");
  Require(!request.minutes || (*request.minutes > 0 && std::isfinite(*request.minutes)),
          "fit: minutes must be above 0, got {}", request.minutes.value_or(0));
  Require(request.updates.value_or(0) >= 0, "fit: updates must be at least 0, got {}",
          request.updates.value_or(0));
  const int64_t trials = request.trials.value_or(kFewestTrials);
  Require(trials >= kFewestTrials && trials <= kMostTrials,
          "fit: trials must be between {} and {}, got {}", kFewestTrials, kMostTrials, trials);
}

// Whether a fit got beyond measuring, or is one of another version, of which that is not known.
bool IsBegun(const std::string& file) {
  try {
    return ReadRecordFile<FitRecord>(file).measured.has_value();
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

FitDirectory::FitDirectory(const FitRequest& request, const ThetaFile& start,
                           const FitOptions& options)
    : out_(options.out_dir), start_(start) {
  Require(options.threads >= 1 && options.threads <= kMaxThreads,
          "fit: threads must be between 1 and {}, got {}", kMaxThreads, options.threads);
  const bool resume = options.existing == ExistingFit::kResume;
  record_.request = resume ? ReadFitRequest(out_) : request;
  if (!resume) {
    CheckFitRequest(request);
    CheckFitStart(start);
    RequireUsable(start, "fit: the start");
  }
  const TaskResources resources(record_.request.data_dir);
  task_ = TaskRegistry().Make(record_.request.task, resources);
  Require(record_.request.data_dir.empty() || resources.data_dir_used(),
          "fit: data_dir is {}, but the task reads nothing from it", record_.request.data_dir);
  MakeOutputDirectory(out_);
  lock_ = std::make_unique<RunLock>(out_, "fit");
  if (resume) {
    GoOn(options.threads, resources.DataChecksums());
    return;
  }
  record_.version = options.version;
  record_.isa = CurrentIsa();
  record_.data = resources.DataChecksums();
  CheckNew(options.existing == ExistingFit::kReplace);
}

void FitDirectory::GoOn(int threads, const std::string& data) {
  begun_ = true;
  record_ = ReadRecordFile<FitRecord>(PathOf(kFitFile));
  start_ = ReadThetaFile(PathOf(kFitStartFile));
  Require(record_.isa == CurrentIsa(),
          "cannot resume {}: it was computed on instruction set {}, this process uses {}; pin "
          "it ({})",
          out_, record_.isa, CurrentIsa(), OptionWords("isa"));
  RequireSameData(out_, record_.data, data);
  const FitRequest& asked = record_.request;
  const int64_t measured = record_.measured ? record_.measured->threads.value_or(threads) : threads;
  Require(measured == threads || (asked.updates && asked.trials) || record_.status == "finished",
          "cannot resume {}: it was begun with {} threads, by whose speed its time is divided, and "
          "this process has {}; give as many ({})",
          out_, measured, threads, OptionWords("threads"));
}

void FitDirectory::CheckNew(bool replace) const {
  const std::string record = PathOf(kFitFile);
  const bool has_fit = HoldsRecord(record, "lopt fit");
  Require(has_fit || !RunDirectory(out_).HoldsRunOfLopt(),
          "{} holds a run of another command; choose another directory ({})", out_,
          OptionWords("out"));
  for (const std::string_view name : kFitFiles) {
    Require(has_fit || !Exists(PathOf(std::string(name))),
            "{} holds no fit, but something called {}, which a fit would replace: choose another "
            "directory ({})",
            out_, name, OptionWords("out"));
  }
  Require(replace || !has_fit || !IsBegun(record),
          "{} holds a fit already: resume it ({}), replace it ({}) or choose another directory "
          "({})",
          out_, FlagWords("resume"), FlagWords("overwrite"), OptionWords("out"));
}

bool FitDirectory::HoldsAnother() const {
  return !begun_ && Exists(PathOf(kFitFile)) && IsBegun(PathOf(kFitFile));
}

void FitDirectory::WriteTheta(const std::string& entry, const ThetaFile& theta) const {
  lock_->RequireHeld();
  WriteThetaFile(PathOf(entry), theta);
}

void FitDirectory::WriteReport(const std::string& text) const {
  lock_->RequireHeld();
  WriteTextFile(PathOf(kFitReportFile), text);
}

void FitDirectory::Begin() {
  // The record comes before the others are removed and written, which it says are a fit's; until
  // all are there, as that of a fit that is not begun.
  FitRecord not_begun = record_;
  not_begun.measured.reset();
  WriteRecordFile(PathOf(kFitFile), not_begun);
  RemoveMatching(out_, [](std::string_view name) {
    return name != kFitFile && std::ranges::find(kFitFiles, name) != std::end(kFitFiles);
  });
  WriteTheta(kFitStartFile, start_);
  WriteTheta(kFitThetaFile, start_);
  begun_ = true;
}

void FitDirectory::Save() {
  lock_->RequireHeld();
  if (!begun_) Begin();
  WriteRecordFile(PathOf(kFitFile), record_);
}

void FitDirectory::Save(const char* status) {
  record_.status = status;
  Save();
}

FitRequest ReadFitRequest(const std::string& out_dir) {
  const std::string path = out_dir + "/" + kFitFile;
  Require(Exists(path), "cannot resume: {} holds no fit (there is no {})", out_dir, path);
  return ReadRecordFile<FitRecord>(path).request;
}

}  // namespace lopt
