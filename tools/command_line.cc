#include "lopt/tools/command_line.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/any.hpp>
#include <boost/program_options.hpp>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <typeinfo>
#include <utility>

#include "lopt/base/cores.h"
#include "lopt/base/file.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/parallel.h"
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
  const std::string all = fmt::format("{}", fmt::join(names, ", --"));
  if (nearest == nullptr) {
    return UsageError(fmt::format("{} is not an option here; the options are --{}", typed, all));
  }
  return UsageError(fmt::format(
      "{} is not an option here; did you mean '--{}'? The options are --{}", typed, *nearest, all));
}

// Looks like an option of one dash, and no number.
bool HasOneDash(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1]));
}

// Throws UsageError if there are more words without an option name than are taken, or one is an
// option with a dash too few; after "--" none is.
void CheckWords(const std::vector<std::string>& arguments, const std::vector<std::string>& words,
                size_t most, const po::options_description& named, const std::string& synopsis) {
  const auto dashed = std::ranges::find_if(words, HasOneDash);
  const bool all_taken_as_words = std::ranges::find(arguments, "--") != arguments.end();
  if (dashed != words.end() && !all_taken_as_words) throw UnknownOption(*dashed, named);
  if (words.size() <= most) return;
  throw UsageError(fmt::format("'{}' is a word too many; usage: {}", words[most], synopsis));
}

// What the value of an option must be, "; wanted is an integer"; empty for what is no number.
std::string WantedValue(const po::validation_error& error, const po::options_description& named) {
  const std::string name = error.get_option_name();
  const auto* const option = named.find_nothrow(name.substr(name.find_first_not_of('-')), false);
  if (option == nullptr) return "";
  const auto* const value = dynamic_cast<const po::typed_value_base*>(option->semantic().get());
  if (value == nullptr) return "";
  const std::type_info& type = value->value_type();
  if (type == typeid(double)) return "; wanted is a number";
  return type == typeid(int) || type == typeid(int64_t) || type == typeid(uint64_t)
             ? "; wanted is an integer"
             : "";
}

// Where words without an option name are put if the command takes none.
constexpr const char* kNoWords = "(words)";

// What HelpOf hands to a subcommand, and ParseCommandLine answers by throwing the CommandHelp. No
// word of a user's command line holds its last character.
constexpr std::string_view kHelpAsData{"--help-as-data\0", 15};

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
    command.run({std::string(kHelpAsData)});
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
  if (arguments == std::vector<std::string>{std::string(kHelpAsData)}) throw help;
  po::options_description named;
  for (const OptionGroup& group : groups) named.add(group.options);
  po::options_description all = named;
  po::positional_options_description positions;
  const std::string words_name = positional.empty() ? kNoWords : positional;
  all.add_options()(words_name.c_str(), po::value<std::vector<std::string>>());
  positions.add(words_name.c_str(), -1);
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
    if (values.contains(words_name)) {
      CheckWords(arguments, values[words_name].as<std::vector<std::string>>(),
                 positional.empty() ? 0 : static_cast<size_t>(max_positional), named, synopsis);
    }
    RefuseEmptyTexts(values, named, positional);
    for (const std::string& plugin : Plugins(values)) LoadPlugin(plugin);
    return values;
  } catch (const po::unknown_option& error) {
    throw UnknownOption(error.get_option_name(), named);
  } catch (const po::validation_error& error) {
    throw UsageError(
        fmt::format("{}{}; usage: {}", error.what(), WantedValue(error, named), synopsis));
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

std::string WordsAgain(const po::variables_map& values, const std::vector<const char*>& options) {
  std::string words;
  for (const char* option : options) {
    if (!values.contains(option) || values[option].defaulted()) continue;
    words += fmt::format(" --{}", option);
    const boost::any& value = values[option].value();
    if (const auto* text = boost::any_cast<std::string>(&value)) {
      if (!text->empty()) words += " " + ShellQuoted(*text);  // a flag's is
    } else if (const auto* number = boost::any_cast<int>(&value)) {
      words += fmt::format(" {}", *number);
    } else {
      words += fmt::format(" {}", boost::any_cast<int64_t>(value));
    }
  }
  return words;
}

int ThreadsOption(const po::variables_map& values) {
  if (!values.contains("threads")) return AvailableCores();
  const int threads = values["threads"].as<int>();
  if (threads < 1 || threads > kMaxThreads) {
    throw UsageError(fmt::format("--threads must be in [1, {}], got {}", kMaxThreads, threads));
  }
  return threads;
}

void RequireConfigElsewhere(const std::string& config, const std::string& out,
                            const std::string& what) {
  std::error_code none;  // such as that there is no such file
  if (!std::filesystem::equivalent(config, out + "/config.json", none)) return;
  if (Exists(out + "/manifest.json") || Exists(out + "/checkpoints")) return;
  throw UsageError(
      fmt::format("--out: {} holds the config file itself, which the {}'s config.json would "
                  "replace; choose another directory",
                  out, what));
}

FailedCheck FailedCheckOf(const po::variables_map& values) {
  return values.contains(kDespiteFailedCheck) ? FailedCheck::kWarn : FailedCheck::kError;
}

}  // namespace lopt
