#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/print.h"
#include "lopt/evaluation/baselines.h"
#include "lopt/evaluation/presets.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/describe.h"
#include "lopt/tools/shell.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {

namespace {

enum class Takes { kNothing, kOther, kFile, kDirectory, kChoice };

// What a shell completes in one place.
struct Completed {
  Takes takes = Takes::kOther;
  std::vector<std::string> words = {};  // the choices; of kFile, what it may be beside a file
};

// An option of a subcommand, and what follows it.
struct CompletedOption {
  std::string name;  // "--out"
  std::string text;
  Completed value;
};

std::vector<std::string> Names(const Presets& presets) {
  std::vector<std::string> names;
  for (const Preset& preset : presets.all()) names.push_back(preset.name);
  return names;
}

std::vector<std::string> BaselineNames() {
  std::vector<std::string> names = {"all", "classic", "strong", "untuned", "none"};
  for (const Baseline& baseline : Baselines()) names.push_back(baseline.name);
  return names;
}

// "c|npz|hub" are three words to choose from, "FILE|JSON" are none.
std::vector<std::string> ChoicesOfValue(const std::string& value) {
  const bool choices = value.find('|') != std::string::npos &&
                       std::ranges::none_of(value, [](char c) { return c >= 'A' && c <= 'Z'; });
  std::vector<std::string> words;
  std::istringstream parts(choices ? value : "");
  for (std::string word; std::getline(parts, word, '|');) words.push_back(word);
  return words;
}

std::vector<std::string> Choices(const std::string& command, const CommandHelp::Option& option) {
  if (option.name == "--for" && command == "config") return {"meta-train", "eval", "train"};
  if (option.name == "--for") return {"meta-train", "eval"};
  if (option.name == "--split") return {"train", "inner_valid", "outer_valid", "test"};
  if (option.name == "--baselines") return BaselineNames();
  if (option.name != "--preset") return ChoicesOfValue(option.value);
  const bool evaluates = command == "eval" || command == "distill";
  return Names(evaluates ? EvaluationPresets() : MetaTrainPresets());
}

// Whether a help text says that a theta is taken by its name, too.
bool NamesThetas(const std::string& text) {
  return text.find("that comes with lopt") != std::string::npos;
}

Takes WhatFollows(const std::string& value) {
  if (value.empty()) return Takes::kNothing;
  if (value.starts_with("DIR")) return Takes::kDirectory;
  for (const char* name : {"FILE", "CONFIG", "THETA"}) {
    if (value.find(name) != std::string::npos) return Takes::kFile;
  }
  return Takes::kOther;
}

std::vector<CompletedOption> CompletedOptions(const Command& command, const CommandHelp& help) {
  std::vector<CompletedOption> options;
  for (const CommandHelp::Option& option : help.options) {
    Completed value{WhatFollows(option.value), Choices(command.name, option)};
    if (!value.words.empty()) value.takes = Takes::kChoice;
    if (NamesThetas(option.text)) value.words = TrainedNames();
    options.push_back({option.name, option.text, value});
  }
  return options;
}

// What the words without an option name may be.
Completed CompletedArguments(const std::string& command, const CommandHelp& help) {
  if (command == "completion") return {Takes::kChoice, {"bash", "zsh", "fish"}};
  if (command == "describe") return {Takes::kChoice, DescribedTypes()};
  if (command != "preset") {
    return {Takes::kFile, NamesThetas(help.examples) ? TrainedNames() : std::vector<std::string>{}};
  }
  std::vector<std::string> words = {"show"};
  for (const Presets* presets : {&MetaTrainPresets(), &EvaluationPresets()}) {
    for (const std::string& name : Names(*presets)) words.push_back(name);
  }
  return {Takes::kChoice, words};
}

std::vector<std::string> CommandNames() {
  std::vector<std::string> names = {"help"};
  for (const Command& command : Commands()) names.emplace_back(command.name);
  return names;
}

std::string Replaced(const std::string& text, const std::string& characters,
                     const std::string& before) {
  std::string result;
  for (const char c : text) {
    if (characters.find(c) != std::string::npos) result += before;
    result += c;
  }
  return result;
}

// The call that replies; empty where nothing is completed.
std::string BashReply(const Completed& completed) {
  if (completed.takes == Takes::kOther) return "";
  const char* const what = completed.takes == Takes::kFile        ? " -f"
                           : completed.takes == Takes::kDirectory ? " -d"
                                                                  : "";
  const std::string words =
      completed.words.empty() ? "" : fmt::format(" -W '{}'", fmt::join(completed.words, " "));
  return fmt::format("_lopt_reply{}{}; ", what, words);
}

std::string BashCompletion() {
  std::string values;
  std::string names;
  for (const Command& command : Commands()) {
    std::vector<std::string> words;
    const CommandHelp help = HelpOf(command);
    for (const auto& option : CompletedOptions(command, help)) {
      words.push_back(option.name);
      if (option.value.takes == Takes::kNothing) continue;
      values += fmt::format("    '{} {}') {}return ;;\n", command.name, option.name,
                            BashReply(option.value));
    }
    const Completed arguments = CompletedArguments(command.name, help);
    names += fmt::format("    {}) words='{}' arguments='{}' files={} ;;\n", command.name,
                         fmt::join(words, " "), fmt::join(arguments.words, " "),
                         arguments.takes == Takes::kFile ? "-f" : "");
  }
  const std::string commands = fmt::format("{}", fmt::join(CommandNames(), " "));
  return fmt::format(R"(# Completion of lopt in bash; written by `lopt completion bash`.
_lopt_reply() {{
  case $1 in -f | -d) compopt -o filenames ;; esac
  mapfile -t COMPREPLY < <(compgen "$@" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}
_lopt() {{
  local words='' arguments='' files=-f
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    _lopt_reply -W '{}'
    return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{}  esac
  case "${{COMP_WORDS[1]}}" in
{}    help) arguments='{}' files= ;;
  esac
  case "${{COMP_WORDS[COMP_CWORD]}}" in
    -*) _lopt_reply -W "$words" ;;
    *) _lopt_reply $files -W "$arguments" ;;
  esac
}}
complete -F _lopt lopt
)",
                     commands, values, names, commands);
}

std::string ZshAction(const Completed& completed) {
  const std::string words = fmt::format("{}", fmt::join(completed.words, " "));
  if (completed.takes == Takes::kChoice) return fmt::format("({})", words);
  if (completed.takes == Takes::kDirectory) return "_files -/";
  if (completed.takes != Takes::kFile) return "";
  return words.empty() ? "_files" : fmt::format("{{_files; compadd -- {}}}", words);
}

std::string ZshCompletion() {
  std::string summaries = "    'help:Explain one command.'\n";
  std::string cases;
  for (const Command& command : Commands()) {
    summaries +=
        fmt::format("    {}\n", ShellQuoted(std::string(command.name) + ':' + command.summary));
    const CommandHelp help = HelpOf(command);
    std::vector<std::string> specs;
    for (const auto& option : CompletedOptions(command, help)) {
      std::string spec = fmt::format("*{}[{}]", option.name, Replaced(option.text, "[]:\\", "\\"));
      if (option.value.takes != Takes::kNothing) spec += ":value:" + ZshAction(option.value);
      specs.push_back(ShellQuoted(spec));
    }
    if (help.has_arguments) {
      specs.push_back(
          fmt::format("'*:word:{}'", ZshAction(CompletedArguments(command.name, help))));
    }
    cases += fmt::format("    {})\n      _arguments {}\n      ;;\n", command.name,
                         fmt::join(specs, " \\\n        "));
  }
  cases += "    help)\n      _describe command commands\n      ;;\n";
  return fmt::format(R"(#compdef lopt
# Completion of lopt in zsh; written by `lopt completion zsh`.
_lopt() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{}  esac
}}
_lopt "$@"
)",
                     summaries, cases);
}

std::string FishCompletion() {
  std::string text = "# Completion of lopt in fish; written by `lopt completion fish`.\n";
  const auto fish = [](const std::string& word) {
    return '\'' + Replaced(word, "'\\", "\\") + '\'';
  };
  for (const Command& command : Commands()) {
    text += fmt::format("complete -c lopt -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                        fish(command.summary));
  }
  for (const Command& command : Commands()) {
    const Completed arguments = CompletedArguments(command.name, HelpOf(command));
    if (arguments.words.empty()) continue;
    text += fmt::format("complete -c lopt -n '__fish_seen_subcommand_from {}'{} -a '{}'\n",
                        command.name, arguments.takes == Takes::kFile ? "" : " -f",
                        fmt::join(arguments.words, " "));
  }
  text += fmt::format(
      "complete -c lopt -n __fish_use_subcommand -f -a help -d 'Explain one command.'\n"
      "complete -c lopt -n '__fish_seen_subcommand_from help' -f -a '{}'\n",
      fmt::join(CommandNames(), " "));
  for (const Command& command : Commands()) {
    for (const auto& option : CompletedOptions(command, HelpOf(command))) {
      text += fmt::format("complete -c lopt -n '__fish_seen_subcommand_from {}' -l {}",
                          command.name, option.name.substr(2));
      const Completed& value = option.value;
      if (value.takes == Takes::kFile) text += " -r -F";
      if (value.takes == Takes::kDirectory) text += " -x -a '(__fish_complete_directories)'";
      if (value.takes == Takes::kOther || value.takes == Takes::kChoice) text += " -x";
      if (!value.words.empty()) text += fmt::format(" -a '{}'", fmt::join(value.words, " "));
      text += fmt::format(" -d {}\n", fish(option.text));
    }
  }
  return text;
}

}  // namespace

int CompletionCommand(const std::vector<std::string>& arguments) {
  const auto values = ParseCommandLine(
      arguments, {}, "shell", 1, "lopt completion bash|zsh|fish",
      "Prints a script, made of the options of every command. For the shell that is open:\n"
      "  source <(lopt completion bash)\n"
      "`cmake --install` puts it where each shell looks.\n");
  if (!values) return kExitDone;
  const auto shell = TextOption(*values, "shell");
  if (!shell) throw UsageError("For which shell? Wanted is bash, zsh or fish");
  if (*shell == "bash") {
    PrintOut("{}", BashCompletion());
  } else if (*shell == "zsh") {
    PrintOut("{}", ZshCompletion());
  } else if (*shell == "fish") {
    PrintOut("{}", FishCompletion());
  } else {
    throw UsageError(
        fmt::format("There is no completion for '{}'; wanted is bash, zsh or fish", *shell));
  }
  return kExitDone;
}

}  // namespace lopt
