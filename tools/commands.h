#pragma once

#include <span>
#include <string>
#include <vector>

#include "lopt/base/error.h"

namespace lopt {

// A command line that cannot be understood. main answers with exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

inline constexpr int kExitDone = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 75;  // stopped by a signal, can be resumed (EX_TEMPFAIL)

// A subcommand of `lopt`. `arguments` are the words after its name. Returns the exit code; throws
// Error and UsageError.
struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& arguments);
  bool for_developers = false;
};

// All of them, as `lopt --help` lists them; those for developers are the last.
std::span<const Command> Commands();

int MetaTrainCommand(const std::vector<std::string>& arguments);
int WorkerCommand(const std::vector<std::string>& arguments);
int TrainCommand(const std::vector<std::string>& arguments);
int PredictCommand(const std::vector<std::string>& arguments);
int LaunchCommand(const std::vector<std::string>& arguments);
int EvalCommand(const std::vector<std::string>& arguments);
int FitCommand(const std::vector<std::string>& arguments);
int ReportCommand(const std::vector<std::string>& arguments);
int SweepCommand(const std::vector<std::string>& arguments);
int DistillCommand(const std::vector<std::string>& arguments);
int BenchCommand(const std::vector<std::string>& arguments);
int CheckCommand(const std::vector<std::string>& arguments);
int ConfigCommand(const std::vector<std::string>& arguments);
int DescribeCommand(const std::vector<std::string>& arguments);
int ExportCommand(const std::vector<std::string>& arguments);
int ImportCommand(const std::vector<std::string>& arguments);
int InspectCommand(const std::vector<std::string>& arguments);
int CompletionCommand(const std::vector<std::string>& arguments);
int ManualCommand(const std::vector<std::string>& arguments);
int PresetCommand(const std::vector<std::string>& arguments);
int SelftestCommand(const std::vector<std::string>& arguments);
int SimulateCommand(const std::vector<std::string>& arguments);
int VerifyKernelsCommand(const std::vector<std::string>& arguments);
int VersionCommand(const std::vector<std::string>& arguments);

// The program `lopt`: runs the subcommand that the first word names. What is thrown is said on
// standard error. Returns the exit code.
int RunProgram(const std::vector<std::string>& words);

}  // namespace lopt
