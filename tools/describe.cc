#include "lopt/tools/describe.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "lopt/base/describe_fields.h"
#include "lopt/base/error.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/type_table.h"
#include "lopt/estimators/registry.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/learner/learning_rate_schedule.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/theta_opt.h"
#include "lopt/learner/train/batches.h"
#include "lopt/learner/train/train_config.h"
#include "lopt/learner/train/train_optimizer.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/augmentation.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/describe_task.h"

namespace lopt {

namespace {

struct Kind {
  const char* title;
  const TypeTable* table;
};

std::vector<Kind> Kinds() {
  return {{"Learned optimizers", &OptimizerRegistry().table()},
          {"Optimizers of theta", &ThetaOptRegistry().table()},
          {"Learning rate schedules", &LearningRateScheduleRegistry().table()},
          {"Modes", &ModeRegistry().table()},
          {"Estimators", &EstimatorRegistry().table()},
          {"Truncation schedules", &ScheduleRegistry().table()},
          {"Tasks", &TaskRegistry().table()},
          {"Augmentations", &AugmentationRegistry().table()},
          {"Optimizers of trainings", &TrainOptimizerRegistry().table()},
          {"Batches of trainings", &BatchesRegistry().table()}};
}

std::string DescribeType(const TypeEntry& entry) {
  return fmt::format("### {}\n\n{}{}\n\n{}\n", entry.type, entry.summary,
                     entry.plugin.empty() ? "" : " From the plug-in " + entry.plugin + ".",
                     DescribeFields(entry.fields));
}

}  // namespace

std::string DescribeTypeNamed(const std::string& name) {
  std::vector<std::string> types;
  for (const Kind& kind : Kinds()) {
    for (const TypeEntry& entry : kind.table->entries()) {
      if (entry.type == name) return DescribeType(entry);
      types.push_back(entry.type);
    }
  }
  Fail("There is no type '{}'; the types are {}{}", name, fmt::join(types, ", "),
       DidYouMean(name, types));
}

std::string DescribeEverything() {
  std::string text =
      "# The config file\n\n"
      "A config is one JSON object; `//` and `/* */` comments are allowed. An unknown key, a wrong "
      "type or a number out of range is an error that names the key. `lopt describe` prints this "
      "page.\n\n## Top level\n\n" +
      DescribeFields([](FieldVisitor& v) { MetaTrainConfig().Visit(v); }) + "\n";
  for (const Kind& kind : Kinds()) {
    text += fmt::format("## {}\n\n", kind.title);
    for (const TypeEntry& entry : kind.table->entries()) text += DescribeType(entry);
  }
  EvaluationTask task;
  return text +
         "## Evaluations\n\nThe file that `lopt eval --tasks` reads, with one key more: `tasks`, "
         "an "
         "object with an object for each task under a name of its own, such as `{\"tasks\": "
         "{\"wide\": {\"task\": {\"type\": \"ImageMLP\", \"hidden\": [128]}}}}`.\n\n" +
         DescribeFields([](FieldVisitor& v) { EvaluationConfig().Visit(v); }) + "\nOne task:\n\n" +
         DescribeFields([&](FieldVisitor& v) { VisitEvaluationTask(v, &task); }) +
         "\n## Trainings\n\nThe file that `lopt train` reads. Its `task` is one of those above, "
         "its "
         "`optimizer` one of Optimizers of trainings, its `batches` of Batches of trainings.\n\n" +
         DescribeFields([](FieldVisitor& v) { TrainConfig().Visit(v); });
}

int DescribeCommand(const std::vector<std::string>& arguments) {
  namespace po = boost::program_options;
  TaskRequest request;
  po::options_description options("Options");
  options.add_options()(
      "task", po::value<std::string>()->value_name("CONFIG.json|TYPE|JSON"),
      "A task to make: a file with its config, a type, with its defaults, or a config.")(
      "data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the task's data files.")("steps",
                                             po::value<int64_t>(&request.steps)->value_name("N"),
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
                       "  lopt describe --task ImageMLP --preview batch.png\n");
  if (!values) return kExitDone;
  const auto type = TextOption(*values, "type");
  const auto task = TextOption(*values, "task");
  if (!task) {
    for (const char* option : {"data-dir", "steps", "learning-rate", "seed", "preview"}) {
      if (values->contains(option)) {
        throw UsageError(fmt::format("--{} says something of a task; it wants --task", option));
      }
    }
    fmt::print("{}", type ? DescribeTypeNamed(*type) : DescribeEverything());
    return kExitDone;
  }
  if (type) throw UsageError("Give a TYPE or --task, not both");
  request.task = *task;
  request.data_dir = TextOption(*values, "data-dir").value_or("");
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
