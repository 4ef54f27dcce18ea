#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "lopt/base/print.h"
#include "lopt/evaluation/presets.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/shell.h"

namespace lopt {

namespace {

enum class Takes { kNothing, kOther, kFile, kDirectory, kChoice };

// An option of a subcommand, as a shell completes what follows it.
struct CompletedOption {
  std::string name;  // "--out"
  std::string text;
  Takes takes;
  std::vector<std::string> choices;
};

std::vector<std::string> Names(const Presets& presets) {
  std::vector<std::string> names;
  for (const Preset& preset : presets.all()) names.push_back(preset.name);
  return names;
}

std::vector<std::string> Choices(const std::string& command, const std::string& option) {
  if (option == "--for" && command == "config") return {"meta-train", "eval", "train"};
  if (option == "--for") return {"meta-train", "eval"};
  if (option == "--split") return {"train", "inner_valid", "outer_valid", "test"};
  if (option != "--preset") return {};
  return Names(command == "eval" ? EvaluationPresets() : MetaTrainPresets());
}

Takes WhatFollows(const std::string& value) {
  if (value.empty()) return Takes::kNothing;
  if (value.starts_with("DIR")) return Takes::kDirectory;
  for (const char* name : {"FILE", "CONFIG", "THETA", "arg"}) {
    if (value.find(name) != std::string::npos) return Takes::kFile;
  }
  return Takes::kOther;
}

std::vector<CompletedOption> CompletedOptions(const Command& command, const CommandHelp& help) {
  std::vector<CompletedOption> options;
  for (const CommandHelp::Option& option : help.options) {
    const auto choices = Choices(command.name, option.name);
    const Takes takes = choices.empty() ? WhatFollows(option.value) : Takes::kChoice;
    options.push_back({option.name, option.text, takes, choices});
  }
  return options;
}

// What the words without an option name may be; empty: files.
std::vector<std::string> ArgumentChoices(const std::string& command) {
  if (command == "completion") return {"bash", "zsh", "fish"};
  if (command != "preset") return {};
  std::vector<std::string> words = {"show"};
  for (const Presets* presets : {&MetaTrainPresets(), &EvaluationPresets()}) {
    for (const std::string& name : Names(*presets)) words.push_back(name);
  }
  return words;
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

std::string BashCompletion() {
  std::string values;
  std::string names;
  for (const Command& command : Commands()) {
    std::vector<std::string> words;
    for (const auto& option : CompletedOptions(command, HelpOf(command))) {
      words.push_back(option.name);
      const auto value = [&](const std::string& reply) {
        values += fmt::format("    '{} {}') {} ;;\n", command.name, option.name, reply);
      };
      switch (option.takes) {
        case Takes::kNothing:
          break;
        case Takes::kOther:
          value("return");
          break;
        case Takes::kFile:
          value("_lopt_reply -f; return");
          break;
        case Takes::kDirectory:
          value("_lopt_reply -d; return");
          break;
        case Takes::kChoice:
          value(fmt::format("_lopt_reply -W '{}'; return", fmt::join(option.choices, " ")));
          break;
      }
    }
    names += fmt::format("    {}) words='{}' arguments='{}' ;;\n", command.name,
                         fmt::join(words, " "), fmt::join(ArgumentChoices(command.name), " "));
  }
  const std::string commands = fmt::format("{}", fmt::join(CommandNames(), " "));
  return fmt::format(R"(# Completion of lopt in bash; written by `lopt completion bash`.
_lopt_reply() {{
  case $1 in -f | -d) compopt -o filenames ;; esac
  mapfile -t COMPREPLY < <(compgen "$@" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}
_lopt() {{
  local words='' arguments=''
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    _lopt_reply -W '{}'
    return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{}  esac
  case "${{COMP_WORDS[1]}}" in
{}    help) arguments='{}' ;;
  esac
  case "${{COMP_WORDS[COMP_CWORD]}}" in
    -*) _lopt_reply -W "$words" ;;
    *) if [ -n "$arguments" ]; then _lopt_reply -W "$arguments"; else _lopt_reply -f; fi ;;
  esac
}}
complete -F _lopt lopt
)",
                     commands, values, names, commands);
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
      if (option.takes != Takes::kNothing) spec += ":value:";
      if (option.takes == Takes::kFile) spec += "_files";
      if (option.takes == Takes::kDirectory) spec += "_files -/";
      if (option.takes == Takes::kChoice) {
        spec += fmt::format("({})", fmt::join(option.choices, " "));
      }
      specs.push_back(ShellQuoted(spec));
    }
    const auto choices = ArgumentChoices(command.name);
    if (!choices.empty()) {
      specs.push_back(fmt::format("'*:word:({})'", fmt::join(choices, " ")));
    } else if (help.has_arguments) {
      specs.emplace_back("'*:file:_files'");
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
    const auto choices = ArgumentChoices(command.name);
    if (choices.empty()) continue;
    text += fmt::format("complete -c lopt -n '__fish_seen_subcommand_from {}' -f -a '{}'\n",
                        command.name, fmt::join(choices, " "));
  }
  text += fmt::format(
      "complete -c lopt -n __fish_use_subcommand -f -a help -d 'Explain one command.'\n"
      "complete -c lopt -n '__fish_seen_subcommand_from help' -f -a '{}'\n",
      fmt::join(CommandNames(), " "));
  for (const Command& command : Commands()) {
    for (const auto& option : CompletedOptions(command, HelpOf(command))) {
      text += fmt::format("complete -c lopt -n '__fish_seen_subcommand_from {}' -l {}",
                          command.name, option.name.substr(2));
      if (option.takes == Takes::kFile) text += " -r -F";
      if (option.takes == Takes::kDirectory) text += " -x -a '(__fish_complete_directories)'";
      if (option.takes == Takes::kOther) text += " -x";
      if (option.takes == Takes::kChoice) {
        text += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      }
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
