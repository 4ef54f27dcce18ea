#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lopt/lopt/theta_file.h"
#include "lopt/tools/commands.h"

namespace lopt {

// What --help shows of one subcommand.
struct CommandHelp {
  // An option as it is listed there.
  struct Option {
    std::string group;  // the title above it; "Options" where the command has no groups
    std::string name;   // "--out"
    std::string value;  // what it takes, "DIR"; empty for a flag
    std::string text;
  };
  std::string synopsis;         // how it is called
  std::vector<Option> options;  // in the order of the list
  bool has_arguments;           // words without an option name
  std::string examples;         // what stands below the options
};

// The help of a subcommand. Throws Error unless it begins with ParseCommandLine.
CommandHelp HelpOf(const Command& command);

// Options that stand together in the help.
struct OptionGroup {
  std::string title;
  boost::program_options::options_description options;
};

// The parsed words of one subcommand; empty if the user asked for --help or -h, which has been
// printed.
// `synopsis` and `examples` stand above and below the list of options there. `positional` names the
// option that words without one go to, a std::vector<std::string> of at most `max_positional` of
// them; empty if there are none. Only long, complete option names and -h are accepted. Every
// subcommand has --plugin, whose types are registered on return. Throws UsageError that names what
// is not understood, lists the options and says which is the nearest, and Error as LoadPlugin does.
std::optional<boost::program_options::variables_map> ParseCommandLine(
    const std::vector<std::string>& arguments,
    const boost::program_options::options_description& options, const std::string& positional,
    int max_positional, const std::string& synopsis, const std::string& examples);
// The same for options in groups; --plugin and --help are in the last one.
std::optional<boost::program_options::variables_map> ParseGroupedCommandLine(
    const std::vector<std::string>& arguments, std::vector<OptionGroup> groups,
    const std::string& positional, int max_positional, const std::string& synopsis,
    const std::string& examples);

// The plug-ins that were given, and the words of a command line that give them again: " --plugin
// FILE" for each.
std::vector<std::string> Plugins(const boost::program_options::variables_map& values);
std::string PluginWords(const boost::program_options::variables_map& values);

// The value of an option that takes text, or the one word of a positional option; nothing if it was
// not given. Throws UsageError that names the option if it has another type or several words.
std::optional<std::string> TextOption(const boost::program_options::variables_map& values,
                                      const char* name);

// The words of a command line that give these options again, as they were given: " --threads 2" for
// each that was.
std::string WordsAgain(const boost::program_options::variables_map& values,
                       const std::vector<const char*>& options);

// --threads, or without it AvailableCores(). Throws UsageError if it is no number of threads.
int ThreadsOption(const boost::program_options::variables_map& values);

// Throws UsageError if the config file that is given would be replaced by what the command writes
// to the directory `out`: it is the config.json there, and no run is. `what` is written there,
// "run".
void RequireConfigElsewhere(const std::string& config, const std::string& out,
                            const std::string& what);

// The option of commands that read theta files, and its help.
inline constexpr const char* kDespiteFailedCheck = "despite-failed-check";
inline constexpr const char* kDespiteFailedCheckText =
    "Use a theta file even if its golden steps come out differently here, with a warning.";
FailedCheck FailedCheckOf(const boost::program_options::variables_map& values);

}  // namespace lopt
