#include <doctest/doctest.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/learner/plugin.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "tests/error_of.h"
#include "tests/learner_runs.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

using Words = std::vector<std::string>;

const std::string kPlugins = BuildPath("tests/");
const std::string kGood = kPlugins + "plugin_good.so";

FinishedProcess Lopt(Words words) {
  words.insert(words.begin(), BuildPath("lopt"));
  return RunProcess(words);
}

// 12 updates in a moment, with types of the plug-in or those of the program that they are.
std::string PluginExperiment(bool plugin) {
  const auto pick = [&](const char* ours, const char* theirs) { return plugin ? ours : theirs; };
  return fmt::format(
      R"({{"learned_optimizer": {{"type": "{}"}},
           "theta_opt": {{"type": "{}", "learning_rate": 0.1,
                         "schedule": {{"type": "Piecewise", "boundaries": [5], "scales": [1, 0.5]}}}},
           "estimators": [
             {{"type": "{}", "task": {{"type": "{}"}}, "num_tasks": 2,
               "lengths": {{"type": "{}", "total_length": 20}}}},
             {{"type": "TruncatedPES", "num_tasks": 2,
               "task": {{"type": "ImageMLP", "hidden": [4], "batch_size": 8,
                         "augment": {{"type": "{}"}}}},
               "lengths": {{"type": "ConstantTruncationSchedule", "total_length": 20}}}}],
           "meta_steps": 12}})",
      pick("PluginOptimizer", "LearnableSGD"), pick("PluginThetaOpt", "SGD"),
      pick("PluginEstimator", "TruncatedES"), pick("PluginTask", "FixedDimQuadraticFamily"),
      pick("PluginSchedule", "ConstantTruncationSchedule"), pick("PluginAugmentation", "None"));
}

std::string Write(const TempDirectory& directory, const std::string& name,
                  const std::string& text) {
  WriteTextFile(directory / name, text);
  return directory / name;
}

// The names of all types that a plug-in may add to.
Words RegisteredTypes() {
  Words names;
  for (const TypeTable* table :
       {&TaskRegistry().table(), &AugmentationRegistry().table(), &OptimizerRegistry().table(),
        &EstimatorRegistry().table(), &ScheduleRegistry().table()}) {
    for (const TypeEntry& entry : table->entries()) names.push_back(entry.type);
  }
  return names;
}

}  // namespace

TEST_CASE("Types of a plug-in train to the bits of the program's types, on every instruction set") {
  const TempDirectory scratch;
  const std::string ours = Write(scratch, "ours.json", PluginExperiment(true));
  const std::string theirs = Write(scratch, "theirs.json", PluginExperiment(false));
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    const std::string with = scratch / (isa + "-plugin");
    const std::string without = scratch / isa;
    const FinishedProcess plugin =
        Lopt({"meta-train", ours, "--isa", isa, "--plugin", kGood, "--out", with});
    REQUIRE_EQ(plugin.errors, "");
    CHECK(plugin.output.find(isa + " on ") != std::string::npos);
    REQUIRE_EQ(Lopt({"meta-train", theirs, "--isa", isa, "--out", without}).errors, "");
    CHECK(FinalTheta(with) == FinalTheta(without));
  }
}

TEST_CASE("A plug-in that this user may not read is an error that says so") {
  if (::geteuid() == 0) {
    SkipTest("root may read everything; 'ordinary user' in ctest runs this");
    return;
  }
  const TempDirectory scratch;
  const std::string file = scratch / "closed.so";
  std::filesystem::copy(kGood, file);
  std::filesystem::permissions(file, std::filesystem::perms::none);
  CHECK_EQ(ErrorOf([&] { LoadPlugin(file); }),
           "plug-in " + file + ": it cannot be opened: Permission denied");
}

TEST_CASE("A run with a plug-in goes on with it, and without it says what is missing") {
  const TempDirectory scratch;
  const std::string config = Write(scratch, "config.json", PluginExperiment(true));
  REQUIRE_EQ(Lopt({"meta-train", config, "--plugin", kGood, "--out", scratch / "whole"}).errors,
             "");
  const std::string out = scratch / "parts";
  REQUIRE_EQ(Lopt({"meta-train", config, "--plugin", kGood, "--steps", "5", "--out", out}).errors,
             "");

  const Words resume = {"meta-train", "--resume", "--out", out, "--steps", "12"};
  const FinishedProcess without = Lopt(resume);
  CHECK_EQ(without.exit_code, kExitError);
  CAPTURE(without.errors);
  CHECK(without.errors.find("'theta_opt.type' is 'PluginThetaOpt'; valid types of theta_opt: ") !=
        std::string::npos);
  CHECK(without.errors.find("Muon, SOAP; others come with plug-ins (--plugin FILE)\n") !=
        std::string::npos);

  Words with = resume;
  with.insert(with.end(), {"--plugin", kGood});
  CHECK_EQ(Lopt(with).errors, "");
  CHECK(FinalTheta(out) == FinalTheta(scratch / "whole"));
}

TEST_CASE("A trained optimizer of a plug-in is judged, inspected, exported and shown with it") {
  const TempDirectory scratch;
  const std::string config = Write(scratch, "config.json", PluginExperiment(true));
  const std::string run = scratch / "run";
  REQUIRE_EQ(Lopt({"meta-train", config, "--plugin", kGood, "--out", run}).errors, "");
  const std::string theta = run + "/theta.safetensors";
  const std::string tasks =
      Write(scratch, "tasks.json",
            R"({"tasks": {"bowl": {"task": {"type": "PluginTask"}, "steps": [5]}}, "seeds": 2})");
  const Words eval = {"eval", "--theta", theta, "--tasks", tasks, "--baselines", "none", "--out"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return Lopt(words);
  };
  CHECK_EQ(with(eval, {scratch / "eval", "--plugin", kGood}).errors, "");
  CHECK(with(eval, {scratch / "no"}).errors.find("others come with plug-ins") != std::string::npos);
  const std::string npz = scratch / "theta.npz";
  const Words use = {"--plugin", kGood};
  CHECK_EQ(with({"export", theta, "--format", "npz", "--out", npz}, use).errors, "");
  CHECK_EQ(with({"inspect", theta}, use).errors, "");
  CHECK_EQ(with({"report", run, scratch / "eval", "--out", scratch / "page.html"}, use).errors, "");
  const FinishedProcess shown = with({"describe", "PluginThetaOpt"}, use);
  CHECK(
      shown.output.starts_with("## Learned optimizers\n\n### PluginThetaOpt\n\nSGD. From the "
                               "plug-in " +
                               kGood + ".\n\n"));
}

TEST_CASE("A sweep gives its plug-ins to all that it runs") {
  const TempDirectory scratch;
  Write(scratch, "config.json", PluginExperiment(true));
  Write(scratch, "tasks.json",
        R"({"tasks": {"bowl": {"task": {"type": "PluginTask"}, "steps": [5]}}, "seeds": 2})");
  const std::string list = Write(scratch, "list.json", R"({
    "variants": {"plugin": {"config": "config.json"}}, "seeds": [0],
    "eval": {"tasks": "tasks.json", "baselines": "none"}})");
  const FinishedProcess finished =
      Lopt({"sweep", list, "--plugin", kGood, "--out", scratch / "out"});
  CAPTURE(finished.output);
  CHECK_EQ(finished.exit_code, kExitDone);
  CHECK(finished.output.find("1 of 1 runs are finished.") != std::string::npos);
}

TEST_CASE("Every command has --plugin, and a plug-in that cannot be opened ends it") {
  int commands = 0;
  std::istringstream usage(Lopt({"--help"}).output);
  for (std::string line, command; std::getline(usage, line);) {
    if (!line.starts_with("  ") || line.starts_with("   ")) continue;  // behind one: its text
    std::istringstream(line) >> command;
    CAPTURE(command);
    ++commands;
    CHECK(Lopt({command, "--help"}).output.find("--plugin FILE.so") != std::string::npos);
    const FinishedProcess finished = Lopt({command, "--plugin", "nowhere.so"});
    CHECK_EQ(finished.exit_code, kExitError);
    CHECK_EQ(finished.errors,
             "lopt: plug-in nowhere.so: it cannot be opened: No such file or directory\n");
  }
  CHECK_GE(commands, 10);
}

TEST_CASE("The words that give the plug-ins again are fit for a shell") {
  const TempDirectory scratch;
  const std::string link = scratch / "my plug-in.so";
  std::filesystem::create_symlink(kGood, link);
  const auto values = ParseCommandLine({"--plugin", link}, {}, "", 0, "", "");
  CHECK_EQ(PluginWords(*values), " --plugin '" + link + "'");
}

TEST_CASE("A plug-in that is there already is left as it is; a copy of it is an error") {
  LoadPlugin(kGood);
  const Words before = RegisteredTypes();
  LoadPlugin(kGood);
  const TempDirectory scratch;
  std::filesystem::create_symlink(kGood, scratch / "link.so");
  LoadPlugin(scratch / "link.so");
  const std::string copy = scratch / "copy.so";
  std::filesystem::copy(kGood, copy);
  CHECK_EQ(ErrorOf([&] { LoadPlugin(copy); }),
           fmt::format("plug-in {}: task type 'PluginTask' is registered already, by plug-in {}",
                       copy, kGood));
  CHECK(RegisteredTypes() == before);
}

TEST_CASE("What a bad plug-in has registered before its error is not there") {
  LoadPlugin(kGood);
  const Words before = RegisteredTypes();
  const std::string bad = kPlugins + "plugin_bad.so";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"throws an Error", "registering its types failed: the weather is bad"},
      {"throws an exception", "registering its types failed: too far"},
      {"throws a number", "registering its types failed with something that is no std::exception"},
      {"has a name twice",
       "registering its types failed: task type 'BadTask' is registered already"},
      {"has a name of the program", "task type 'QuadraticTask' is registered already"},
      {"has a name of another plug-in",
       "task type 'PluginTask' is registered already, by plug-in " + kGood},
      {"has a name of the program in another kind",
       "learned optimizer type 'Adam' is registered already"},
  };
  for (const auto& [how, message] : cases) {
    CAPTURE(how);
    ::setenv("LOPT_TEST_PLUGIN", how.c_str(), 1);
    CHECK_EQ(ErrorOf([&] { LoadPlugin(bad); }), "plug-in " + bad + ": " + message);
    CHECK(RegisteredTypes() == before);
  }
}

TEST_CASE("A file that is no plug-in of this program is an error that says why") {
  const Words before = RegisteredTypes();
  const std::string other = kPlugins + "plugin_other_abi.so";
  CHECK_EQ(ErrorOf([&] { LoadPlugin(other); }),
           fmt::format("plug-in {}: it is built for another program than this; build it again: "
                       "lopt 0.0.1 there, {} here",
                       other, LOPT_ABI));
  const std::string no_entry = kPlugins + "plugin_no_entry.so";
  CHECK_EQ(ErrorOf([&] { LoadPlugin(no_entry); }),
           "plug-in " + no_entry +
               ": it has no function lopt_plugin; LOPT_PLUGIN (learner/plugin.h) defines that of "
               "a plug-in");
  const TempDirectory scratch;
  const std::string text = Write(scratch, "text.so", "This is a text, and not a short one at all.");
  CHECK_EQ(ErrorOf([&] { LoadPlugin(text); }),
           fmt::format("plug-in {}: it cannot be loaded: {}: file too short; wanted: a shared "
                       "library built for {}",
                       text, text, LOPT_ABI));
  CHECK(ErrorOf([&] { LoadPlugin(scratch.path()); }).find("it cannot be loaded") !=
        std::string::npos);
  CHECK(RegisteredTypes() == before);
}

}  // namespace lopt
