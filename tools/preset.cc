#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "lopt/base/nearest_name.h"
#include "lopt/base/presets.h"
#include "lopt/base/print.h"
#include "lopt/evaluation/presets.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/help_text.h"

namespace lopt {

namespace {

namespace po = boost::program_options;

constexpr const char* kPresetSynopsis = "lopt preset [show NAME] [OPTIONS]";

// The presets of a command.
struct PresetsOf {
  std::string command;
  const Presets* presets;
};

// Those of --for, or all.
std::vector<PresetsOf> ChosenPresets(const po::variables_map& values) {
  std::vector<PresetsOf> all = {{"meta-train", &MetaTrainPresets()},
                                {"eval", &EvaluationPresets()}};
  const auto command = TextOption(values, "for");
  if (!command) return all;
  std::erase_if(all, [&](const PresetsOf& of) { return of.command != *command; });
  if (all.empty()) {
    throw UsageError(fmt::format("--for must be meta-train or eval, got '{}'", *command));
  }
  return all;
}

// The text of the preset of this name. Throws Error with the names if there is none, UsageError if
// two commands have one.
std::string TextOfPreset(const std::string& name, const std::vector<PresetsOf>& all) {
  std::vector<std::string> found;
  std::vector<std::string> names;
  for (const PresetsOf& of : all) {
    for (const Preset& preset : of.presets->all()) {
      names.push_back(preset.name);
      if (preset.name == name) found.emplace_back(preset.text);
    }
  }
  if (found.size() > 1) {
    throw UsageError(fmt::format(
        "'{}' is a preset of meta-train and one of eval; say which: --for meta-train or --for eval",
        name));
  }
  Require(!found.empty(), "There is no preset '{}'; the presets are {}{}", name,
          fmt::join(names, ", "), DidYouMean(name, names));
  return found.front();
}

}  // namespace

int PresetCommand(const std::vector<std::string>& arguments) {
  po::options_description options("Options");
  options.add_options()("for", po::value<std::string>()->value_name("COMMAND"),
                        "Only presets of this command, meta-train or eval.");
  const auto values =
      ParseCommandLine(arguments, options, "preset", 2, kPresetSynopsis,
                       "Alone it lists the presets; `show` prints one, to copy and change.\n\n"
                       "Example:\n  lopt preset show fast >config.json\n");
  if (!values) return kExitDone;
  const std::vector<PresetsOf> all = ChosenPresets(*values);
  if (!values->contains("preset")) {
    for (const PresetsOf& of : all) {
      PrintOut("Presets of lopt {}:\n", of.command);
      for (const Preset& preset : of.presets->all()) {
        PrintOut("{}", HelpEntry("  " + preset.name, preset.summary, 18, HelpColumns(stdout)));
      }
    }
    return kExitDone;
  }
  const auto words = (*values)["preset"].as<std::vector<std::string>>();
  if (words[0] != "show" || words.size() != 2) {
    const bool name_alone = words.size() == 1 && words[0] != "show";
    throw UsageError(fmt::format("'{}' is not understood; wanted is `lopt preset show {}`",
                                 fmt::join(words, " "), name_alone ? words[0] : "NAME"));
  }
  PrintOut("{}", TextOfPreset(words[1], all));
  return kExitDone;
}

}  // namespace lopt
