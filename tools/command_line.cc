#include "lopt/tools/command_line.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/any.hpp>
#include <boost/program_options.hpp>
#include <cctype>
#include <utility>

#include "lopt/base/nearest_name.h"
#include "lopt/base/print.h"
#include "lopt/learner/plugin.h"
#include "lopt/tools/help_text.h"
#include "lopt/tools/shell.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

// The answer to an option that is not there, as it was typed: "--stpes=3" or "-steps".
UsageError UnknownOption(const std::string& word, const po::options_description& options) {
  const std::string typed = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const auto& option : options.options()) names.push_back(option->long_name());
  const size_t begin = std::min(typed.find_first_not_of('-'), typed.size());
  const std::string* nearest = NearestName(typed.substr(begin), names);
  return UsageError(fmt::format(
      "{} is not an option here; the options are --{}{}", typed, fmt::join(names, ", --"),
      nearest == nullptr ? "" : fmt::format("; did you mean '--{}'?", *nearest)));
}

// The first word that looks like an option of one dash, but for a number; or null.
const std::string* OneDash(const std::vector<std::string>& arguments) {
  const auto found = std::ranges::find_if(arguments, [](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1]));
  });
  return found == arguments.end() ? nullptr : &*found;
}

// What HelpOf hands to a subcommand, and ParseCommandLine answers by throwing the CommandHelp.
constexpr const char* kHelpAsData = "--help-as-data";

CommandHelp MakeHelp(const std::vector<OptionGroup>& groups, bool has_arguments,
                     const std::string& synopsis, const std::string& examples) {
  CommandHelp help{
      .synopsis = synopsis, .options = {}, .has_arguments = has_arguments, .examples = examples};
  for (const OptionGroup& group : groups) {
    for (const auto& option : group.options.options()) {
      const bool is_flag = option->semantic()->max_tokens() == 0;
      help.options.push_back({group.title, "--" + option->long_name(),
                              is_flag ? "" : option->format_parameter(), option->description()});
    }
  }
  return help;
}

// No option means anything by an empty text, but a variable that is not set gives one.
void RefuseEmptyTexts(const po::variables_map& values, const po::options_description& named,
                      const std::string& positional) {
  const auto refuse = [&](const std::string& name, const std::string& shown) {
    if (!values.contains(name)) return;
    const boost::any& value = values[name].value();
    const auto* text = boost::any_cast<std::string>(&value);
    const auto* words = boost::any_cast<std::vector<std::string>>(&value);
    if ((text != nullptr && text->empty()) ||
        (words != nullptr && std::ranges::find(*words, "") != words->end())) {
      throw UsageError(fmt::format("{} is an empty text; is a variable not set?", shown));
    }
  };
  for (const auto& option : named.options()) {
    if (option->semantic()->max_tokens() > 0) refuse(option->long_name(), option->format_name());
  }
  refuse(positional, "An argument");
}

}  // namespace

CommandHelp HelpOf(const Command& command) {
  try {
    command.run({kHelpAsData});
  } catch (const CommandHelp& help) {
    return help;
  }
  Fail("The command '{}' does not parse its command line first", command.name);
}

std::optional<po::variables_map> ParseCommandLine(const std::vector<std::string>& arguments,
                                                  const po::options_description& options,
                                                  const std::string& positional, int max_positional,
                                                  const std::string& synopsis,
                                                  const std::string& examples) {
  return ParseGroupedCommandLine(arguments, {{"Options", options}}, positional, max_positional,
                                 synopsis, examples);
}

std::optional<po::variables_map> ParseGroupedCommandLine(const std::vector<std::string>& arguments,
                                                         std::vector<OptionGroup> groups,
                                                         const std::string& positional,
                                                         int max_positional,
                                                         const std::string& synopsis,
                                                         const std::string& examples) {
  groups.back().options.add_options()(
      "plugin", po::value<std::vector<std::string>>()->value_name("FILE.so")->composing(),
      "Use the types of a plug-in. May be repeated.")("help",
                                                      "Show this text; -h is short for it.");
  const CommandHelp help = MakeHelp(groups, !positional.empty(), synopsis, examples);
  if (arguments == std::vector<std::string>{kHelpAsData}) throw help;
  po::options_description named;
  for (const OptionGroup& group : groups) named.add(group.options);
  po::options_description all = named;
  po::positional_options_description positions;
  if (!positional.empty()) {
    all.add_options()(positional.c_str(), po::value<std::vector<std::string>>());
    positions.add(positional.c_str(), max_positional);
  }
  try {
    po::variables_map values;
    std::vector<std::string> words = arguments;
    std::ranges::replace(words, "-h", "--help");
    po::store(po::command_line_parser(words)
                  .options(all)
                  .positional(positions)
                  .style(po::command_line_style::allow_long |
                         po::command_line_style::long_allow_adjacent |
                         po::command_line_style::long_allow_next)
                  .run(),
              values);
    if (values.contains("help")) {
      PrintOut("{}", HelpText(help, HelpColumns(stdout)));
      return std::nullopt;
    }
    po::notify(values);
    RefuseEmptyTexts(values, named, positional);
    for (const std::string& plugin : Plugins(values)) LoadPlugin(plugin);
    return values;
  } catch (const po::unknown_option& error) {
    throw UnknownOption(error.get_option_name(), named);
  } catch (const po::too_many_positional_options_error&) {
    if (const std::string* word = OneDash(arguments)) throw UnknownOption(*word, named);
    const std::string wanted =
        max_positional == 0
            ? "No argument is taken"
            : fmt::format("At most {} argument{}", max_positional, max_positional == 1 ? "" : "s");
    throw UsageError(fmt::format("{} without an option name; usage: {}", wanted, synopsis));
  } catch (const po::error& error) {
    throw UsageError(fmt::format("{}; usage: {}", error.what(), synopsis));
  }
}

std::vector<std::string> Plugins(const po::variables_map& values) {
  if (!values.contains("plugin")) return {};
  return values["plugin"].as<std::vector<std::string>>();
}

std::string PluginWords(const po::variables_map& values) {
  std::string words;
  for (const std::string& plugin : Plugins(values)) words += " --plugin " + ShellQuoted(plugin);
  return words;
}

std::optional<std::string> TextOption(const po::variables_map& values, const char* name) {
  if (!values.contains(name)) return std::nullopt;
  const boost::any& value = values[name].value();
  if (const auto* text = boost::any_cast<std::string>(&value)) return *text;
  const auto* words = boost::any_cast<std::vector<std::string>>(&value);
  if (words != nullptr && words->size() == 1) return words->front();
  throw UsageError(fmt::format("--{} takes one text", name));
}

FailedCheck FailedCheckOf(const po::variables_map& values) {
  return values.contains(kDespiteFailedCheck) ? FailedCheck::kWarn : FailedCheck::kError;
}

}  // namespace lopt
