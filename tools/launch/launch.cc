#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/launch/rank_guard.h"
#include "lopt/tools/launch/supervisor.h"
#include "lopt/tools/own_command.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

constexpr const char* kLaunchSynopsis =
    "lopt launch -n RANKS [OPTIONS] -- meta-train ... --out DIR";

constexpr const char* kLaunchExamples =
    "Runs meta-train on many ranks under mpiexec, and starts it again from its last checkpoint "
    "when a\n"
    "rank dies or hangs. DIR/restarts.jsonl tells of every failure. SIGTERM, SIGHUP or Ctrl-C: "
    "the\n"
    "ranks save a checkpoint and the exit code is 75. It is 0 only if the run has finished.\n"
    "\n"
    "Examples:\n"
    "  lopt launch -n 4 -- meta-train --preset tutorial-16 --out runs/first\n"
    "  lopt launch -n 16 --min-ranks 8 --mpiexec 'mpiexec -f hosts' \\\n"
    "    -- meta-train config.json --out runs/first\n"
    "  lopt launch -n 4 -- meta-train --resume --out runs/first --steps 2000\n";

po::options_description LaunchOptions() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("ranks", po::value<int>()->value_name("N"), "Processes to start; -n is short for it.");
  add("max-restarts", po::value<int>()->value_name("R")->default_value(5),
      "Give up after more than R failures in a row without progress (a newer checkpoint or more "
      "updates).");
  add("min-ranks", po::value<int>()->value_name("M"),
      "After two failed starts in a row try half as many ranks, but not fewer than M. Default: "
      "always N.");
  add("mpiexec", po::value<std::string>()->value_name("COMMAND")->default_value("mpiexec"),
      "The program that starts ranks, with options of its own after spaces; it gets -n N.");
  add("start-timeout", po::value<double>()->value_name("S")->default_value(300),
      "Kill a job whose learner has not reported S seconds after its start: mpiexec starts the "
      "ranks in this time, and they load the program, the data and a checkpoint.");
  add("worker-timeout", po::value<double>()->value_name("S")->default_value(60),
      "Kill a started job from which no rank has reported for S + 5 seconds; choose no less than "
      "the config's worker_timeout_seconds.");
  return options;
}

std::vector<std::string> SplitAtSpaces(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

int AtLeast(const po::variables_map& values, const char* name, int least) {
  const int value = values[name].as<int>();
  if (value < least)
    throw UsageError(fmt::format("--{} wants at least {}, not {}", name, least, value));
  return value;
}

double Positive(const po::variables_map& values, const char* name) {
  const double value = values[name].as<double>();
  if (!(value > 0)) throw UsageError(fmt::format("--{} wants more than 0, not {}", name, value));
  return value;
}

// The directory that --out names in the words of meta-train.
std::string OutOfJob(const std::vector<std::string>& words) {
  const std::string prefix = "--out=";
  for (size_t i = 0; i < words.size(); ++i) {
    std::string directory;
    if (words[i] == "--out" && i + 1 < words.size()) directory = words[i + 1];
    if (words[i].starts_with(prefix)) directory = words[i].substr(prefix.size());
    if (!directory.empty()) return directory;
  }
  throw UsageError(fmt::format(
      "meta-train wants --out DIR here: a restart goes on from there; usage: {}", kLaunchSynopsis));
}

// Takes an option with this many values out of the words, and returns it; empty if it is not there.
std::vector<std::string> Take(const std::string& name, size_t values,
                              std::vector<std::string>* words) {
  for (auto word = words->begin(); word != words->end(); ++word) {
    const bool joined = values > 0 && word->starts_with(name + "=");
    if (*word != name && !joined) continue;
    const auto left = static_cast<size_t>(words->end() - word);
    const auto end = word + static_cast<ptrdiff_t>(joined ? 1 : std::min(values + 1, left));
    std::vector<std::string> taken(word, end);
    words->erase(word, end);
    return taken;
  }
  return {};
}

// The number in the words of --from; none if there are no words.
std::optional<int64_t> StepOf(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  const std::string& word = words.back();
  const size_t equals = word.find('=');
  const char* begin = word.c_str() + (equals == std::string::npos ? 0 : equals + 1);
  const char* end = word.c_str() + word.size();
  int64_t step = 0;
  const auto [read, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || read != end)
    throw UsageError("--from wants the step of a checkpoint");
  return step;
}

}  // namespace

int LaunchCommand(const std::vector<std::string>& arguments) {
  // What mpiexec runs as a rank: --guard DIR -- meta-train ...
  if (arguments.size() > 3 && arguments[0] == "--guard") {
    std::vector<std::string> program = OwnCommand();
    program.insert(program.end(), arguments.begin() + 3, arguments.end());
    return GuardRank(arguments[1], program);
  }
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  std::vector<std::string> own(arguments.begin(), dashes);
  std::replace(own.begin(), own.end(), std::string("-n"), std::string("--ranks"));
  const auto parsed =
      ParseCommandLine(own, LaunchOptions(), "", 0, kLaunchSynopsis, kLaunchExamples);
  if (!parsed) return kExitDone;
  const po::variables_map& values = *parsed;
  if (dashes == arguments.end() || dashes + 1 == arguments.end()) {
    throw UsageError(fmt::format("What to launch is missing; usage: {}", kLaunchSynopsis));
  }
  std::vector<std::string> program(dashes + 1, arguments.end());
  if (program[0] != "meta-train") {
    throw UsageError(fmt::format("lopt launch runs meta-train, not '{}'; usage: {}", program[0],
                                 kLaunchSynopsis));
  }
  // No rank is needed for it.
  if (std::ranges::any_of(
          program, [](const std::string& word) { return word == "--help" || word == "-h"; })) {
    return MetaTrainCommand({"--help"});
  }
  if (!values.contains("ranks")) {
    throw UsageError(fmt::format("-n RANKS is missing; usage: {}", kLaunchSynopsis));
  }

  SupervisorOptions options;
  options.mpiexec = SplitAtSpaces(values["mpiexec"].as<std::string>());
  if (options.mpiexec.empty()) throw UsageError("--mpiexec wants a command, not ''");
  options.out_dir = OutOfJob(program);
  options.resume = !Take("--resume", 0, &program).empty();
  options.from = StepOf(Take("--from", 1, &program));
  if (options.from && !options.resume) {
    throw UsageError("--from says where to go on; it wants --resume");
  }
  options.overwrite = !Take("--overwrite", 0, &program).empty();
  if (options.resume && options.overwrite) {
    throw UsageError("Give --resume or --overwrite, not both");
  }
  for (const std::string& plugin : Plugins(values)) program.push_back("--plugin=" + plugin);
  options.program = GuardedProgram(options.out_dir, program);
  options.restart.ranks = AtLeast(values, "ranks", 1);
  options.restart.min_ranks =
      values.contains("min-ranks") ? AtLeast(values, "min-ranks", 1) : options.restart.ranks;
  if (options.restart.min_ranks > options.restart.ranks) {
    throw UsageError(fmt::format("--min-ranks wants at most the {} of -n, not {}",
                                 options.restart.ranks, options.restart.min_ranks));
  }
  options.restart.max_restarts = AtLeast(values, "max-restarts", 0);
  options.start_timeout_seconds = Positive(values, "start-timeout");
  options.worker_timeout_seconds = Positive(values, "worker-timeout");
  return Supervise(options);
}

}  // namespace lopt
