#include "lopt/learner/transport/mpi_launch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>

#include "lopt/base/error.h"

namespace lopt {

namespace {

std::optional<int> NumberFromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  const std::string_view text = value;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct Launched {
  int processes = 0;
  const char* variable = nullptr;  // that says so
};

// How many processes the launcher started, as the first of these variables says.
std::optional<Launched> FirstOf(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const auto number = NumberFromEnvironment(variable)) return Launched{*number, variable};
  }
  return std::nullopt;
}

std::optional<Launched> WhatLauncherSays() {
  if (const auto launched = FirstOf({"PMI_SIZE", "OMPI_COMM_WORLD_SIZE"})) return launched;
  // Where MPI's launcher used srun to come to its hosts, Slurm counts something else. A batch
  // script, which is no step, is one process.
  if (StartedByMpi() || std::getenv("SLURM_STEP_ID") == nullptr) return std::nullopt;
  return FirstOf({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
}

}  // namespace

bool StartedByMpi() {
  // Hydra and Slurm's pmi2; PMIx (Open MPI 4 and later, Slurm's pmix); Open MPI.
  static constexpr const char* kMarks[] = {"PMI_RANK", "PMI_FD", "PMIX_RANK",
                                           "OMPI_COMM_WORLD_SIZE"};
  return std::any_of(std::begin(kMarks), std::end(kMarks),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

void CheckLauncher(int size, const std::string& library) {
  const std::optional<Launched> launched = WhatLauncherSays();
  if (!launched || launched->processes == size) return;
  Fail(
      "{} says that the launcher started {} process{}, but {} sees {}: each would make a run of "
      "its own. Start it with the mpiexec of {}",
      launched->variable, launched->processes, launched->processes == 1 ? "" : "es",
      library.empty() ? "lopt, which is built without MPI or was started without it," : library,
      size, library.empty() ? "the MPI that lopt is built with" : library);
}

void CheckWorldSize(const std::string& option) {
  const std::optional<int> world_size = NumberFromEnvironment("WORLD_SIZE");
  if (std::getenv("RANK") == nullptr || !world_size || *world_size <= 1) return;
  Fail(
      "RANK and WORLD_SIZE say that this is one of {} processes, each of which would make a run "
      "of its own. {} makes them one job; unset WORLD_SIZE if they are none",
      *world_size, option);
}

}  // namespace lopt
