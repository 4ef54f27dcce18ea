#include "lopt/tools/selftest/trainings.h"

#include <fmt/format.h>
#include <poll.h>

#include <atomic>
#include <chrono>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/options.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/launch/child_process.h"
#include "lopt/tools/own_command.h"
#include "lopt/tools/shell.h"

namespace lopt {
namespace {

constexpr const char* kPreset = "smoke";
constexpr int kUpdatesOfRanks = 5;
constexpr std::chrono::seconds kJobTime(120);
constexpr size_t kMostOutput = 600;  // of a job that failed

std::vector<float> Numbers(const Eigen::VectorXf& theta) {
  return {theta.data(), theta.data() + theta.size()};
}

MetaTrainConfig Smoke(const std::string& isa) {
  auto config = ReadOptions<MetaTrainConfig>(MetaTrainPresets().Find(kPreset));
  config.isa = isa;
  return config;
}

// The end of what a job has written.
std::string EndOf(const std::string& path) {
  std::string text = ReadTextFile(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.size() <= kMostOutput ? text : "..." + text.substr(text.size() - kMostOutput);
}

}  // namespace

std::vector<float> TrainSmoke(const std::string& isa) {
  return Numbers(RunMetaTraining(Smoke(isa), {}).theta.theta);
}

std::vector<float> TrainSmokeWithAStop(const std::string& isa, const std::string& directory) {
  const MetaTrainConfig config = Smoke(isa);
  std::atomic<bool> stop = false;
  MetaTrainerOptions options;
  options.out_dir = directory;
  options.threads = 2;
  options.stop = &stop;
  options.on_step = [&](const MetaTrainProgress& progress) {
    stop = progress.updates == config.meta_steps / 2;
  };
  Require(RunMetaTraining(config, options).interrupted,
          "the training went on after it was stopped");
  options.resume = true;
  options.on_step = {};
  stop = false;
  RunMetaTraining(config, options);
  return Numbers(ReadThetaFile(directory + "/theta.safetensors").theta);
}

std::vector<float> TrainTwoWorkers(const std::string& isa) {
  MetaTrainConfig config = Smoke(isa);
  config.workers = 2;
  config.meta_steps = kUpdatesOfRanks;
  return Numbers(RunMetaTraining(config, {}).theta.theta);
}

std::vector<float> TrainOnTwoRanks(const std::string& isa, const std::string& mpiexec,
                                   const std::string& directory, const std::atomic<bool>* stop) {
  MakeDirectories(directory);
  const std::string run = directory + "/run";
  const std::string log = directory + "/log";
  // Open MPI wants to be told that it may run two ranks on one core, and as root.
  std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 "
      "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe exec " +
      mpiexec + " -n 2";
  for (const std::string& word : OwnCommand()) command += " " + ShellQuoted(word);
  command += fmt::format(
      " meta-train --preset {} --set workers=2 --steps {} --isa {} --threads 1 --out {} >{} 2>&1",
      kPreset, kUpdatesOfRanks, ShellQuoted(isa), ShellQuoted(run), ShellQuoted(log));
  const ProcessReaper reaper;
  ChildProcess job({"/bin/sh", "-c", command});
  const auto end = std::chrono::steady_clock::now() + kJobTime;
  while (!job.Poll()) {
    Require(stop == nullptr || !*stop, "stopped before '{} -n 2' had ended", mpiexec);
    if (std::chrono::steady_clock::now() > end) {
      Fail("'{} -n 2' did not end within {} s: {}", mpiexec, kJobTime.count(), EndOf(log));
    }
    ::poll(nullptr, 0, 10);
  }
  const int code = job.Poll()->exit_code;
  if (code != 0) Fail("'{} -n 2' ended with exit code {}: {}", mpiexec, code, EndOf(log));
  if (ReadTextFile(log).find("2 ranks x ") == std::string::npos) {
    Fail(
        "'{} -n 2' started no job of two ranks; it is to be of the MPI that lopt was built with "
        "(--mpiexec names another): {}",
        mpiexec, EndOf(log));
  }
  return Numbers(ReadThetaFile(run + "/theta.safetensors").theta);
}

}  // namespace lopt
