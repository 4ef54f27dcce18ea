#include <fmt/core.h>

#include <boost/program_options.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "lopt/base/print.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/simulate/schedule.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

// Schedules between two lines that say how far it is.
constexpr int64_t kProgress = 10'000;

}  // namespace

int SimulateCommand(const std::vector<std::string>& arguments) {
  po::options_description options("Options");
  auto add = options.add_options();
  add("schedules", po::value<int64_t>()->value_name("N")->default_value(1000), "How many are run.");
  add("from", po::value<int64_t>()->value_name("SEED")->default_value(0),
      "Seed of the first of them, at least 0; the next has SEED + 1, and so on.");
  add("seed", po::value<int64_t>()->value_name("SEED"), "Run the schedule of this seed alone.");
  add("trace", "Print all that happens in one schedule, that of --seed or --from.");
  const auto values = ParseCommandLine(
      arguments, options, "", 0, "lopt simulate [OPTIONS]",
      "A small job of meta-training runs in a simulated world, whose messages are late, whose\n"
      "processes are killed, whose disk is full and whose power fails, and is started again until "
      "it\n"
      "has finished. Each schedule is another course of events, a function of its seed. Exits with "
      "1 if\n"
      "what must hold after any of them does not; the line says how to see it again.\n"
      "\n"
      "Examples:\n"
      "  lopt simulate --schedules 10000\n"
      "  lopt simulate --from 10000 --schedules 10000\n"
      "  lopt simulate --seed 17 --trace\n");
  if (!values) return kExitDone;
  const auto schedules = (*values)["schedules"].as<int64_t>();
  const bool trace = values->contains("trace");
  const bool alone = values->contains("seed");
  const char* const first = alone ? "seed" : "from";
  const auto seed = (*values)[first].as<int64_t>();
  if (seed < 0) {
    throw UsageError(fmt::format("simulate: --{} must be at least 0, got {}", first, seed));
  }
  if (schedules < 1) {
    throw UsageError(fmt::format("simulate: --schedules must be at least 1, got {}", schedules));
  }
  if (alone && !(*values)["from"].defaulted()) {
    throw UsageError("simulate: --seed is of one schedule, --from of the first; leave one out");
  }
  if ((trace || alone) && !(*values)["schedules"].defaulted() && schedules != 1) {
    throw UsageError(fmt::format("simulate: --{} is of one schedule; leave --schedules out{}",
                                 trace ? "trace" : "seed", trace ? "" : ", or say --from"));
  }
  // A simulated process asks for it again and again, and each time the machine would be asked anew.
  PinIsa(CurrentIsa());
  const int64_t count = trace || alone ? 1 : schedules;
  const auto start = std::chrono::steady_clock::now();
  int64_t failed = 0;
  int64_t attempts = 0;
  int64_t deaths = 0;
  double simulated = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0 && i % kProgress == 0) {
      PrintOut("{} of {} schedules, {} failed\n", i, count, failed);
      std::fflush(stdout);
    }
    const ScheduleResult result =
        RunSchedule({.seed = static_cast<uint64_t>(seed + i), .trace = trace});
    PrintOut("{}", result.trace);
    attempts += result.attempts;
    deaths += result.deaths;
    simulated += result.seconds;
    if (result.violation.empty()) continue;
    ++failed;
    PrintOut("seed {}: {}\n", seed + i, result.violation);
    if (!trace) PrintOut("  to see it: lopt simulate --seed {} --trace\n", seed + i);
    std::fflush(stdout);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  PrintOut(
      "{} schedules with {} starts of the job, of which faults ended {}; {:.0f} simulated seconds "
      "in {:.1f}, {:.0f} schedules/s\n",
      count, attempts, deaths, simulated, seconds.count(),
      static_cast<double>(count) / seconds.count());
  if (failed == 0) {
    PrintOut("All invariants hold.\n");
    return kExitDone;
  }
  PrintOut("An invariant does not hold in {} of them.\n", failed);
  return kExitError;
}

}  // namespace lopt
