#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>
#include <functional>
#include <optional>
#include <string>

#include "lopt/base/config.h"
#include "lopt/base/presets.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// What the commands that train on the ranks of a job, each with a config and an output directory,
// have in common.

// Where a run's config comes from, and the name that its output directory gets by default.
struct RunSource {
  Config config;
  std::string name;
};

// The config file, --preset where the command has presets, or with --resume the config in --out.
// The synopsis of the command is for messages. Throws UsageError if the run's own config.json would
// replace the config file, and Error if --out holds what is not of this kind.
RunSource ReadRunSource(const boost::program_options::variables_map& values, RunKind kind,
                        const std::string& synopsis, const Presets* presets);

// --out, or what a run from a source of this name has by default.
std::string OutDirectory(const boost::program_options::variables_map& values,
                         const std::string& name);

// The config with what --set, --steps (the value of `steps_key`) and --seed replace in it.
Config WithSettings(const boost::program_options::variables_map& values, Config config,
                    const std::string& steps_key);

// --threads as ThreadsOption has it, or one for each core; the ranks on a host share them, unless
// each was given its own.
int ThreadsOf(const boost::program_options::variables_map& values, const Transport& transport);

// What goes before "lopt" on the line that starts this job again: "mpiexec -n 3 ", or nothing for a
// job of one process, whose results are the same without MPI.
std::string MpiexecWords(const Transport& transport);

// Runs a command as this rank of the job that it was started in, or alone. `parse` gives nothing
// where the user asked for help. Returns the exit code.
int RunAsRank(
    const std::function<std::optional<boost::program_options::variables_map>()>& parse,
    const std::function<int(const boost::program_options::variables_map&, Transport*)>& run);

}  // namespace lopt
