#include <fmt/format.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/presets.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/hang_up.h"
#include "lopt/tools/own_command.h"

namespace lopt {

namespace {

namespace po = boost::program_options;

constexpr const char* kSweepSynopsis = "lopt sweep LIST.json [OPTIONS]";

constexpr const char* kSweepExamples =
    "A list:\n"
    "  {\"meta_train\": {\"preset\": \"mlp-fast\", \"set\": [\"meta_steps=3000\"]},\n"
    "   \"variants\": {\"base\": [], \"rate-3e-3\": [\"theta_opt.learning_rate=3e-3\"]},\n"
    "   \"seeds\": [0, 1, 2],\n"
    "   \"eval\": {\"preset\": \"generalization\"}}\n"
    "\n"
    "The same command goes on where the last one stopped. The exit code is 0 when all is finished, "
    "75 when there is more to do, and 1 when something failed. It needs Python 3. docs/sweep.md "
    "has the keys of the list, the files and what the table says.\n"
    "\n"
    "Examples:\n"
    "  lopt sweep rates.json --budget 90m\n"
    "  lopt sweep rates.json --table\n";

constexpr EmbeddedFile kSweepScripts[] = {
#include "lopt/tools/sweep.inc"
};

po::options_description SweepOptions() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("out", po::value<std::string>()->value_name("DIR"),
      "Directory of all files. Default: runs/ and the list's name.");
  add("budget", po::value<std::string>()->value_name("TIME"),
      "Wall-clock time of this call: seconds, or 90m, 2h. Nothing begins that would take longer "
      "than what is left. Default: no limit.");
  add("table", "Write the table of what is finished, and run nothing.");
  return options;
}

// Seconds of "90", "90s", "1.5m" or "2h". Throws UsageError.
double SecondsOf(const std::string& budget) {
  const char* end = budget.data() + budget.size();
  double number = 0;
  const auto [rest, error] = std::from_chars(budget.data(), end, number, std::chars_format::fixed);
  const std::string unit(rest, end);
  if (error == std::errc() && number >= 0) {
    if (unit.empty() || unit == "s") return number;
    if (unit == "m") return 60 * number;
    if (unit == "h") return 3600 * number;
  }
  throw UsageError(fmt::format(
      "--budget: wanted seconds, or a number with s, m or h such as 90m, got '{}'", budget));
}

// The script with the words of its command line.
std::vector<std::string> ScriptCommand(const std::string& list, const po::variables_map& values) {
  const std::vector<std::string> program = OwnCommand();
  // Where Python runs lopt, it runs the script too. Isolated, it looks for no modules here.
  std::vector<std::string> words = {program.size() > 1 ? program.front() : "python3", "-I", "-c",
                                    kSweepScripts[0].text, "--list=" + list};
  if (const auto out = TextOption(values, "out")) words.push_back("--out=" + *out);
  if (const auto budget = TextOption(values, "budget")) {
    words.push_back(fmt::format("--budget={}", SecondsOf(*budget)));
  }
  if (values.contains("table")) words.emplace_back("--table");
  for (const std::string& word : program) words.push_back("--program=" + word);
  for (const std::string& plugin : Plugins(values)) words.push_back("--plugin=" + plugin);
  return words;
}

}  // namespace

int SweepCommand(const std::vector<std::string>& arguments) {
  const auto values =
      ParseCommandLine(arguments, SweepOptions(), "list", 1, kSweepSynopsis, kSweepExamples);
  if (!values) return kExitDone;
  const auto list = TextOption(*values, "list");
  if (!list) {
    throw UsageError(fmt::format(
        "Nothing was run: a list is missing; usage: {}\n\n"
        "With a list lopt sweep would tune the baselines once, meta-train every variant\n"
        "with every seed, judge each result as lopt eval does, and write one table.\n"
        "`lopt help sweep` shows a list to begin with.",
        kSweepSynopsis));
  }
  if (values->contains("table") && values->contains("budget")) {
    throw UsageError("--budget has no meaning with --table");
  }
  std::vector<std::string> words = ScriptCommand(*list, *values);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  if (HangUpIsIgnored()) ::signal(SIGHUP, SIG_IGN);  // a library may have taken it
  ::execvp(pointers[0], pointers.data());
  const int error = errno;
  Fail("lopt sweep needs Python 3: '{}' cannot be run: {}; install it (package python3)", words[0],
       SystemReason(error));
}

}  // namespace lopt
