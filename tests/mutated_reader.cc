// A reader of theta files whose code tests/mutate_readers has changed:
//
//   mutated_reader kernel|device < QUESTIONS
//
// A question is a line "MUTANT FILE..."; the answer is a line with "found" if the reader with this
// mutant refuses one of the files, or fails, and "passed" if it opens them all. For the mutant -1
// the answer is which mutants each file runs: "MUTANT...".
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "lopt/lopt/golden_steps.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "tests/device_rule.h"
#include "tests/mutants.h"

namespace lopt {
namespace {

constexpr unsigned kSeconds = 10;  // for a mutant that does not end

struct Opened {
  ThetaFile file;
  GoldenSteps golden;
};

const Opened& Open(const std::string& path) {
  static std::map<std::string, Opened> files;
  const auto found = files.find(path);
  if (found != files.end()) return found->second;
  return files
      .emplace(path, Opened{ReadThetaFile(path, {}, FailedCheck::kWarn),
                            *TakeGoldenSteps(ReadArrayFile(path), path)})
      .first->second;
}

// Whether the reader with a mutant opens the file; one that does not know its type opens all.
bool Opens(const std::string& reader, const std::string& path, int mutant) {
  const Opened& opened = Open(path);
  const auto begin = [&] {
    for (auto& reached : lopt_mutants::reached) reached = lopt_mutants::kNot;
    lopt_mutants::active = mutant;
  };
  if (reader == "device") {
    const auto optimizer = OptimizerRegistry().Make(opened.file.learned_optimizer);
    const auto found = RepeatOnDevice(opened.golden, *optimizer, opened.file.theta, begin);
    if (!found) begin();
    return !found || found->within;
  }
  begin();
  const auto optimizer = OptimizerRegistry().Make(opened.file.learned_optimizer);
  return RepeatGoldenSteps(opened.golden, *optimizer, AsSpan(opened.file.theta)).within;
}

// "found" or "passed", by a process of its own, which may crash.
std::string Try(const std::string& reader, const std::vector<std::string>& paths, int mutant) {
  for (const std::string& path : paths) Open(path);
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSeconds);
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(3);
    try {
      for (const std::string& path : paths) {
        if (!Opens(reader, path, mutant)) _exit(1);
      }
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "passed" : "found";
}

std::string Run(const std::string& reader, const std::string& path) {
  if (!Opens(reader, path, -1)) return "refused";
  std::vector<int> ids;
  for (int id = 0; id < lopt_mutants::kMost; ++id) {
    if (lopt_mutants::reached[id] == lopt_mutants::kRun) ids.push_back(id);
  }
  return fmt::format("{}", fmt::join(ids, " "));
}

int Main(const std::string& reader) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    int mutant = 0;
    words >> mutant;
    std::vector<std::string> paths;
    for (std::string path; words >> path;) paths.push_back(path);
    std::cout << (mutant < 0 ? Run(reader, paths.at(0)) : Try(reader, paths, mutant)) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace lopt

int main(int argc, char** argv) { return argc == 2 ? lopt::Main(argv[1]) : 2; }
