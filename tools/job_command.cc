#include "lopt/tools/job_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "lopt/base/cores.h"
#include "lopt/base/error.h"
#include "lopt/base/platform.h"
#include "lopt/base/print.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/transport/end_job.h"
#include "lopt/learner/transport/job.h"
#include "lopt/learner/transport/local_transport.h"
#include "lopt/learner/transport/mpi_launch.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/shell.h"

namespace lopt {

namespace po = boost::program_options;

std::string OutDirectory(const po::variables_map& values, const std::string& name) {
  return TextOption(values, "out").value_or("runs/" + name);
}

RunSource ReadRunSource(const po::variables_map& values, RunKind kind, const std::string& synopsis,
                        const Presets* presets) {
  const char* command = kind == RunKind::kTraining ? "train" : "meta-train";
  const auto preset = TextOption(values, "preset");
  if (values.contains("config")) {
    if (preset) throw UsageError("Give a config file or --preset, not both");
    const std::string path = *TextOption(values, "config");
    const std::string name = std::filesystem::path(path).stem().string();
    RequireConfigElsewhere(path, OutDirectory(values, name), "run");
    return {Config::Load(path), name};
  }
  if (preset) return {presets->Find(*preset), *preset};
  if (values.contains("resume") && values.contains("out")) {
    const std::string out = values["out"].as<std::string>();
    RunDirectory(out, kind).RequireNoOther();
    try {
      return {InTodaysKeys(Config::Load(out + "/config.json")), ""};
    } catch (const Error& error) {
      Fail("{}; to resume all the same, give the config: lopt {} CONFIG.json --resume --out {}{}",
           error.what(), command, ShellQuoted(out), PluginWords(values));
    }
  }
  throw UsageError(fmt::format(
      "What to train is missing: a config file, {}or --resume with --out DIR; usage: {}",
      presets != nullptr ? "--preset NAME, " : "", synopsis));
}

Config WithSettings(const po::variables_map& values, Config config, const std::string& steps_key) {
  if (values.contains("set")) {
    for (const std::string& assignment : values["set"].as<std::vector<std::string>>()) {
      const size_t equals = assignment.find('=');
      if (equals == std::string::npos || equals == 0) {
        throw UsageError(fmt::format("--set wants KEY=VALUE, not '{}'", assignment));
      }
      config = config.With(assignment.substr(0, equals), assignment.substr(equals + 1));
    }
  }
  if (values.contains("steps")) {
    config = config.With(steps_key, std::to_string(values["steps"].as<int64_t>()));
  }
  if (values.contains("seed")) {
    config = config.With("seed", std::to_string(values["seed"].as<int64_t>()));
  }
  return config;
}

int ThreadsOf(const po::variables_map& values, const Transport& transport) {
  const int cores = ThreadsOption(values);
  if (values.contains("threads")) return cores;
  // A rank that is bound to cores, by itself or with its container, takes all of these. Those of
  // the machine, and a limit of processor time, are for all ranks.
  const bool bound =
      cores == AffinityCores() && cores < static_cast<int>(std::thread::hardware_concurrency());
  return bound ? cores : std::max(1, cores / transport.ranks_on_host());
}

std::string MpiexecWords(const Transport& transport) {
  return StartedByMpi() && transport.size() > 1 ? fmt::format("mpiexec -n {} ", transport.size())
                                                : "";
}

int RunAsRank(const std::function<std::optional<po::variables_map>()>& parse,
              const std::function<int(const po::variables_map&, Transport*)>& run) {
  if (!StartedByMpi()) {
    const auto values = parse();
    if (values) {
      CheckLauncher(1, "");
      if (!values->contains("init-method")) CheckWorldSize("--init-method env:// of meta-train");
    }
    return values ? run(*values, MakeLocalTransports(1)[0].get()) : kExitDone;
  }
  return RunJob([&](Transport* transport) {
    try {
      const auto values = parse();
      return values ? run(*values, transport) : kExitDone;
    } catch (const UsageError& error) {
      EndJob(transport, error.what(), kExitUsage);
    }
  });
}

}  // namespace lopt
