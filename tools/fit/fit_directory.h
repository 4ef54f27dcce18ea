#pragma once

#include <memory>
#include <string>

#include "lopt/base/run_lock.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tools/fit/fit.h"
#include "lopt/tools/fit/fit_record.h"

namespace lopt {

// Entries of a fit's directory.
inline constexpr const char* kFitFile = "fit.json";
inline constexpr const char* kFitStartFile = "start.safetensors";
inline constexpr const char* kFitBaseFile = "base.safetensors";
inline constexpr const char* kFitThetaFile = "theta.safetensors";
inline constexpr const char* kFitReportFile = "report.txt";
inline constexpr const char* kFitMetaDirectory = "meta";
inline constexpr const char* kFitCompareDirectory = "compare";

// The output directory of a fit, which no other process is in, with what was found so far.
class FitDirectory {
 public:
  // Makes the directory, or goes on with what is in it: then `request` and `start` are not read.
  // What is to be replaced stays until the first Save. Throws Error as RunFit does of a request, a
  // start, a task and a directory.
  FitDirectory(const FitRequest& request, const ThetaFile& start, const FitOptions& options);

  std::string PathOf(const std::string& entry) const { return out_ + "/" + entry; }

  FitRecord& record() { return record_; }
  const FitRecord& record() const { return record_; }
  const FitRequest& request() const { return record_.request; }
  const ThetaFile& start() const { return start_; }
  const std::shared_ptr<const TaskFamily>& task() const { return task_; }

  // Whether what is in the directory is still the fit that this one is to replace.
  bool HoldsAnother() const;
  // Each throws Error if another process has taken the directory over.
  void WriteTheta(const std::string& entry, const ThetaFile& theta) const;
  void WriteReport(const std::string& text) const;
  // Writes the record; the first of a new fit, which replaces what was there, its start too.
  void Save();
  // The same with another status.
  void Save(const char* status);

 private:
  void CheckNew(bool replace) const;
  void Begin();
  void GoOn(int threads, const std::string& data);

  const std::string out_;
  ThetaFile start_;
  FitRecord record_;
  std::shared_ptr<const TaskFamily> task_;
  std::unique_ptr<RunLock> lock_;
  bool begun_ = false;  // what is in the directory is this fit's
};

}  // namespace lopt
