#include "lopt/tools/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/print.h"
#include "lopt/base/record.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/colour.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/report/estimators.h"
#include "lopt/tools/report/evaluation.h"
#include "lopt/tools/report/page.h"
#include "lopt/tools/report/run.h"
#include "lopt/tools/report/training.h"

namespace lopt {

namespace po = boost::program_options;
namespace fs = std::filesystem;

namespace {

constexpr const char* kReportSynopsis = "lopt report DIR... [--out FILE]";
constexpr const char* kReportExamples =
    "DIR is the output directory of meta-train, train, eval or bench --estimators. Several are "
    "shown side by side.\n"
    "\nExamples:\n"
    "  lopt report runs/first\n"
    "  lopt report runs/first runs/second --out compared.html\n";

enum class DirectoryKind { kRun, kEvaluation, kEstimators };

DirectoryKind KindOf(const std::string& directory) {
  Require(Exists(directory), "there is no directory {}", directory);
  Require(IsDirectory(directory), "{} is not a directory", directory);
  const auto has = [&](const char* file) { return Exists(directory + "/" + file); };
  if (has("results.jsonl")) return DirectoryKind::kEvaluation;
  if (has(kEstimatorBenchFile)) return DirectoryKind::kEstimators;
  Require(has("metrics.jsonl") || has("manifest.json"),
          "{} {}: it holds neither a meta-training run (manifest.json, metrics.jsonl) nor an "
          "evaluation (results.jsonl) nor a bench of estimators (estimators.json)",
          directory, ListDirectory(directory).empty() ? "is empty" : "cannot be reported");
  return DirectoryKind::kRun;
}

// What a directory is called in legends: its name, or, where two have one name, its path.
std::vector<std::string> Labels(const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  for (const std::string& directory : directories) {
    const fs::path path = fs::path(AbsolutePath(directory)).lexically_normal();
    names.push_back(path.has_filename() ? path.filename() : path.parent_path().filename());
  }
  std::vector<std::string> labels = names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::count(names, names[i]) > 1) labels[i] = directories[i];
  }
  return labels;
}

}  // namespace

WrittenReport WriteReport(std::vector<std::string> directories, const std::string& out) {
  Require(!directories.empty(), "a report wants at least one directory");
  for (std::string& directory : directories) {
    while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  }
  const std::vector<std::string> labels = Labels(directories);
  std::vector<RunRecord> runs;
  std::vector<RunRecord> trainings;
  std::vector<EvaluationRecord> evaluations;
  std::vector<LabelledBench> benches;
  for (size_t i = 0; i < directories.size(); ++i) {
    switch (KindOf(directories[i])) {
      case DirectoryKind::kRun: {
        RunRecord run = ReadRun(directories[i], labels[i]);
        (IsTraining(run) ? trainings : runs).push_back(std::move(run));
        break;
      }
      case DirectoryKind::kEvaluation:
        evaluations.push_back(ReadEvaluation(directories[i], labels[i]));
        break;
      case DirectoryKind::kEstimators:
        benches.emplace_back(
            labels[i], ReadRecordFile<EstimatorBench>(directories[i] + "/" + kEstimatorBenchFile));
        break;
    }
  }

  ReportPage page;
  if (!evaluations.empty()) ReportEvaluations(evaluations, &page);
  if (!runs.empty()) ReportRuns(runs, &page);
  if (!trainings.empty()) ReportTrainings(trainings, &page);
  if (!benches.empty()) ReportEstimators(benches, &page);
  WrittenReport report{.path = !out.empty()              ? out
                               : directories.size() == 1 ? directories[0] + "/report.html"
                                                         : "report.html",
                       .damage = {}};
  const BuildInfo build = GetBuildInfo();
  const std::string title = directories.size() == 1
                                ? labels[0]
                                : fmt::format("{} runs and evaluations", directories.size());
  const std::string subtitle = fmt::format("Report by lopt {}{}", build.version,
                                           build.commit.empty() ? "" : " (" + build.commit + ")");
  WriteTextFile(report.path, page.Render(title, subtitle));
  const auto note = [&](const auto& records) {
    for (const auto& record : records) {
      report.damage.insert(report.damage.end(), record.damage.begin(), record.damage.end());
    }
  };
  note(runs);
  note(trainings);
  note(evaluations);
  return report;
}

int ReportCommand(const std::vector<std::string>& arguments) {
  po::options_description options("Options");
  options.add_options()("out", po::value<std::string>()->value_name("FILE"),
                        "The page. Default: report.html in DIR, or here if there are several.");
  const auto values =
      ParseCommandLine(arguments, options, "directory", -1, kReportSynopsis, kReportExamples);
  if (!values) return kExitDone;
  if (!values->contains("directory")) {
    throw UsageError(fmt::format("A directory is missing; usage: {}", kReportSynopsis));
  }
  const WrittenReport report = WriteReport((*values)["directory"].as<std::vector<std::string>>(),
                                           TextOption(*values, "out").value_or(""));
  for (const std::string& damage : report.damage) PrintFailure(damage);
  PrintOut("{}\n", report.path);
  return kExitDone;
}

}  // namespace lopt
