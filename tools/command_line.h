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

// The parsed words of one subcommand; empty if the user asked for --help, which has been printed.
// `synopsis` and `examples` stand above and below the list of options there. `positional` names the
// option that words without one go to, a std::vector<std::string> of at most `max_positional` of
// them; empty if there are none. Only long, complete option names are accepted. Every subcommand
// has --plugin, whose types are registered on return. Throws UsageError that names what is not
// understood and lists the options, and Error as LoadPlugin does.
std::optional<boost::program_options::variables_map> ParseCommandLine(
    const std::vector<std::string>& arguments,
    const boost::program_options::options_description& options, const std::string& positional,
    int max_positional, const std::string& synopsis, const std::string& examples);

// The plug-ins that were given, and the words of a command line that give them again: " --plugin
// FILE" for each.
std::vector<std::string> Plugins(const boost::program_options::variables_map& values);
std::string PluginWords(const boost::program_options::variables_map& values);

// The value of an option that takes text, or the one word of a positional option; nothing if it was
// not given. Throws UsageError that names the option if it has another type or several words.
std::optional<std::string> TextOption(const boost::program_options::variables_map& values,
                                      const char* name);

// The option of commands that read theta files, and its help.
inline constexpr const char* kDespiteFailedCheck = "despite-failed-check";
inline constexpr const char* kDespiteFailedCheckText =
    "Use a theta file also where its golden steps come out otherwise here, with a warning.";
FailedCheck FailedCheckOf(const boost::program_options::variables_map& values);

}  // namespace lopt
