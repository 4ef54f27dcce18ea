#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/wrapped.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/help_text.h"

namespace lopt {

namespace {

namespace po = boost::program_options;

constexpr size_t kNotesColumns = kTerminalColumns - 7;  // what man leaves beside its margin

// A text as roff reads it: nothing of it is a command.
std::string Roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '-') {
      result += "\\-";
    } else if (c == '\\') {
      result += "\\e";
    } else {
      result += c;
    }
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string RoffLines(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += Roff(line) + '\n';
  return result;
}

// "Meta-train a learned optimizer." as the line of a page's name wants it.
std::string WithoutFullStop(const std::string& sentence) {
  return sentence.ends_with('.') ? sentence.substr(0, sentence.size() - 1) : sentence;
}

std::string Heading(const std::string& page, const std::string& summary) {
  return fmt::format(".TH \"{}\" 1 \"\" \"lopt {}\" \"lopt\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
                     page, GetBuildInfo().version, Roff(page), Roff(WithoutFullStop(summary)));
}

std::string ProgramPage() {
  std::string text = Heading("lopt", "Meta-training of learned optimizers") +
                     ".B lopt\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH COMMANDS\n";
  bool developers = false;
  for (const Command& command : Commands()) {
    if (command.for_developers && !developers) text += ".SS For developers\n";
    developers = command.for_developers;
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", Roff(command.name), Roff(command.summary));
  }
  text += ".SH SEE ALSO\n";
  for (const Command& command : Commands())
    text += fmt::format(".BR lopt\\-{} (1)\n", Roff(command.name));
  return text;
}

std::string CommandPage(const Command& command) {
  const CommandHelp help = HelpOf(command);
  std::string text = Heading(fmt::format("lopt-{}", command.name), command.summary) +
                     fmt::format("\\fB{}\\fR\n.SH OPTIONS\n", Roff(help.synopsis));
  std::string group = "Options";
  for (const CommandHelp::Option& option : help.options) {
    if (option.group != group) text += fmt::format(".SS {}\n", Roff(option.group));
    group = option.group;
    text += fmt::format(".TP\n\\fB{}\\fR", Roff(option.name));
    if (!option.value.empty()) text += fmt::format(" \\fI{}\\fR", Roff(option.value));
    text += fmt::format("\n{}\n", Roff(option.text));
  }
  if (!help.examples.empty()) {
    text += fmt::format(".SH NOTES\n.nf\n{}.fi\n",
                        RoffLines(TextBelowOptions(help.examples, kNotesColumns)));
  }
  return text + ".SH SEE ALSO\n.BR lopt (1)\n";
}

}  // namespace

int ManualCommand(const std::vector<std::string>& arguments) {
  po::options_description options("Options");
  options.add_options()("out", po::value<std::string>()->value_name("DIR"),
                        "Directory for the pages: lopt.1, and lopt-COMMAND.1 of every command.");
  const auto values = ParseCommandLine(
      arguments, options, "", 0, "lopt manual --out DIR",
      "The pages say what --help says. `cmake --install` puts them where man looks.\n");
  if (!values) return kExitDone;
  const auto out = TextOption(*values, "out");
  if (!out) throw UsageError("--out DIR is missing");
  MakeDirectories(*out);
  WriteTextFile(*out + "/lopt.1", ProgramPage(), Flush::kNo);
  for (const Command& command : Commands()) {
    WriteTextFile(fmt::format("{}/lopt-{}.1", *out, command.name), CommandPage(command),
                  Flush::kNo);
  }
  return kExitDone;
}

}  // namespace lopt
