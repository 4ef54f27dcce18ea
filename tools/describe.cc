#include "lopt/tools/describe.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "lopt/base/describe_fields.h"
#include "lopt/base/error.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/print.h"
#include "lopt/base/type_table.h"
#include "lopt/estimators/registry.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/theta_opt.h"
#include "lopt/learner/train/batches.h"
#include "lopt/learner/train/train_config.h"
#include "lopt/learner/train/train_optimizer.h"
#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/describe_data.h"
#include "lopt/tools/describe_task.h"

namespace lopt {

namespace {

struct Kind {
  const char* title;
  const TypeTable* table;
};

std::vector<Kind> Kinds() {
  return {{"Learned optimizers", &OptimizerRegistry().table()},
          {"Schedules of learning rates", &RateScheduleTypes()},
          {"Modes", &ModeRegistry().table()},
          {"Estimators", &EstimatorRegistry().table()},
          {"Truncation schedules", &ScheduleRegistry().table()},
          {"Tasks", &TaskRegistry().table()},
          {"Augmentations", &AugmentationRegistry().table()},
          {"Optimizers of trainings", &TrainOptimizerRegistry().table()},
          {"Batches of trainings", &BatchesRegistry().table()}};
}

// What theta_opt has beside the optimizer's own keys.
void VisitClipping(FieldVisitor& v) { ClippingOptions().Visit(v); }

std::string Heading(const TypeEntry& entry) {
  return fmt::format("### {}\n\n{}{}\n\n", entry.type, entry.summary,
                     entry.plugin.empty() ? "" : " From the plug-in " + entry.plugin + ".");
}

std::string Lowered(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The anchor of a heading, as Markdown makes it.
std::string Anchor(const std::string& title) {
  std::string anchor = Lowered(title);
  std::replace(anchor.begin(), anchor.end(), ' ', '-');
  return anchor;
}

// The types of theta_opt are no section of their own.
constexpr const char* kOptimizersOfTheta = "Optimizers of theta";

// On a page that has a section for each kind of type, a link to it stands for their names.
std::string LinkTypes(const TypeTable& types) {
  if (&types == &ThetaOptTypes()) {
    return fmt::format("[{}](#{})", types.kind(), Anchor(kOptimizersOfTheta));
  }
  for (const Kind& kind : Kinds()) {
    if (kind.table == &types) {
      return fmt::format("[{}](#{})", types.kind(), Anchor(kind.title));
    }
  }
  return ListTypes(types);
}

std::string Table(const VisitFields& fields) { return DescribeFields(fields, LinkTypes); }

// The name of a row's key, `key`.
std::string KeyName(const std::string& row) { return row.substr(2, row.find(" |", 2) - 2); }

constexpr int kShared = 3;  // types that have the same row: from here on it is shown once

// The types of a kind. What several of them take alike comes first, and they name its keys.
std::string DescribeKind(const Kind& kind) {
  std::map<std::string, int> count;
  std::vector<std::string> shared;
  for (const TypeEntry& entry : kind.table->entries()) {
    for (const std::string& row : FieldRows(entry.fields, LinkTypes)) {
      if (++count[row] == kShared) shared.push_back(row);
    }
  }
  std::string text = fmt::format("## {}\n\n", kind.title);
  const std::string title = fmt::format("Keys of several {}", Lowered(kind.title));
  if (!shared.empty()) text += fmt::format("### {}\n\n{}\n", title, FieldTable(shared));
  for (const TypeEntry& entry : kind.table->entries()) {
    std::vector<std::string> own, keys;
    for (const std::string& row : FieldRows(entry.fields, LinkTypes)) {
      if (count[row] >= kShared) {
        keys.push_back(KeyName(row));
      } else {
        own.push_back(row);
      }
    }
    text += Heading(entry);
    if (!own.empty()) text += FieldTable(own) + "\n";
    if (!keys.empty()) {
      text += fmt::format("{} [as above](#{}): {}.\n\n", own.empty() ? "Keys" : "Further keys",
                          Anchor(title), fmt::join(keys, ", "));
    }
    if (own.empty() && keys.empty()) text += "It has no keys.\n\n";
  }
  return text;
}

std::string DescribeOptimizersOfTheta() {
  return fmt::format(
      "## {}\n\nAny [optimizer](#learned-optimizers) that its options define completely, such as "
      "Adam, Muon or Lion, with two more keys. An optimizer that begins with drawn weights is an "
      "error: it would have to be meta-trained first.\n\n{}\n",
      kOptimizersOfTheta, Table(VisitClipping));
}

// A type by itself, away from the page.
std::string DescribeType(const Kind& kind, const TypeEntry& entry) {
  std::string text =
      fmt::format("## {}\n\n{}{}\n", kind.title, Heading(entry), DescribeFields(entry.fields));
  if (kind.table == &OptimizerRegistry().table()) {
    text += fmt::format(
        "As `theta_opt`, which its options must then define completely, it has these keys too:"
        "\n\n{}\n",
        DescribeFields(VisitClipping));
  }
  return text;
}

}  // namespace

std::string DescribeTypeNamed(const std::string& name) {
  std::string text;
  std::vector<std::string> types;
  for (const Kind& kind : Kinds()) {
    for (const TypeEntry& entry : kind.table->entries()) {
      if (entry.type == name) text += DescribeType(kind, entry);
      types.push_back(entry.type);
    }
  }
  if (!text.empty()) return text;
  Fail("There is no type '{}'; the types are {}{}", name, fmt::join(types, ", "),
       DidYouMean(name, types));
}

std::string DescribeEverything() {
  std::string text =
      "# The config file\n\n"
      "A config is one JSON object; `//` and `/* */` comments are allowed. An unknown key, a wrong "
      "type or a number out of range is an error that names the key. `lopt describe` prints this "
      "page.\n\n## Top level\n\n" +
      Table([](FieldVisitor& v) { MetaTrainConfig().Visit(v); }) + "\n";
  for (const Kind& kind : Kinds()) {
    text += DescribeKind(kind);
    if (kind.table == &OptimizerRegistry().table()) text += DescribeOptimizersOfTheta();
  }
  EvaluationTask task;
  return text +
         "## Evaluations\n\nThe file that `lopt eval --tasks` reads, with one key more: `tasks`, "
         "an "
         "object with an object for each task under a name of its own, such as `{\"tasks\": "
         "{\"wide\": {\"task\": {\"type\": \"ImageMLP\", \"hidden\": [128]}}}}`.\n\n" +
         Table([](FieldVisitor& v) { EvaluationConfig().Visit(v); }) + "\nOne task:\n\n" +
         Table([&](FieldVisitor& v) { VisitEvaluationTask(v, &task); }) +
         "\n## Trainings\n\nThe file that `lopt train` reads. Its `task` is one of those above, "
         "its "
         "`optimizer` one of Optimizers of trainings, its `batches` of Batches of trainings.\n\n" +
         Table([](FieldVisitor& v) { TrainConfig().Visit(v); });
}

int DescribeCommand(const std::vector<std::string>& arguments) {
  namespace po = boost::program_options;
  TaskRequest request;
  po::options_description options("Options");
  options.add_options()(
      "task", po::value<std::string>()->value_name("CONFIG.json|TYPE|JSON"),
      "A task to make: a file with its config, a type, with its defaults, or a config.")(
      "data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the task's data files. Without --task: describe the data that are in it; a "
      "file is described as text.")(
      "data", po::value<std::string>()->value_name("SOURCE|JSON"),
      "Which of them, if there are several, and how they are read: a value of the key data, "
      "or '{\"data\": \"csv\", \"csv_white\": 16}'.")(
      "steps", po::value<int64_t>(&request.steps)->value_name("N"),
      "Steps of Adam that it is trained for (1).")(
      "learning-rate", po::value<double>(&request.learning_rate)->value_name("X"),
      "Of Adam (0.01).")("seed", po::value<int64_t>(&request.seed)->value_name("N"),
                         "Of the task, its start and its batches (0).")(
      "preview", po::value<std::string>()->value_name("FILE.png"),
      "Draw what the task sees and, after the steps, does.");
  const auto values =
      ParseCommandLine(arguments, options, "type", 1, "lopt describe [TYPE] [OPTIONS]",
                       "Without TYPE and --task: every key and type of a config.\n\n"
                       "Examples:\n  lopt describe TruncatedPES\n"
                       "  lopt describe --task ImageMLP --preview batch.png\n"
                       "  lopt describe --data-dir mnist\n");
  if (!values) return kExitDone;
  const auto type = TextOption(*values, "type");
  const auto task = TextOption(*values, "task");
  const auto data = TextOption(*values, "data");
  const auto data_dir = TextOption(*values, "data-dir");
  if (data && (task || !data_dir)) {
    throw UsageError("--data says which data; it wants --data-dir, without --task");
  }
  if (!task) {
    for (const char* option : {"steps", "learning-rate", "seed", "preview"}) {
      if (values->contains(option)) {
        throw UsageError(fmt::format("--{} says something of a task; it wants --task", option));
      }
    }
    if (data_dir) {
      if (type) throw UsageError("Give a TYPE or --data-dir, not both");
      DescribeData(*data_dir, data.value_or(""));
      return kExitDone;
    }
    PrintOut("{}", type ? DescribeTypeNamed(*type) : DescribeEverything());
    return kExitDone;
  }
  if (type) throw UsageError("Give a TYPE or --task, not both");
  request.task = *task;
  request.data_dir = data_dir.value_or("");
  request.preview = TextOption(*values, "preview").value_or("");
  if (request.steps < 1) {
    throw UsageError(fmt::format("--steps must be at least 1, got {}", request.steps));
  }
  if (!(request.learning_rate > 0)) {
    throw UsageError(fmt::format("--learning-rate must be above 0, got {}", request.learning_rate));
  }
  DescribeTask(request);
  return kExitDone;
}

}  // namespace lopt
