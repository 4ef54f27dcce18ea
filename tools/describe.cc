#include "tools/describe.h"

#include <fmt/core.h>

#include <string>
#include <vector>

#include "base/describe_fields.h"
#include "base/type_table.h"
#include "estimators/registry.h"
#include "evaluation/evaluation_config.h"
#include "learner/learning_rate_schedule.h"
#include "learner/meta_train_config.h"
#include "learner/mode.h"
#include "learner/theta_opt.h"
#include "lopt/registry.h"
#include "tasks/registry.h"
#include "tools/command_line.h"
#include "tools/commands.h"

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
          {"Tasks", &TaskRegistry().table()}};
}

std::string DescribeType(const TypeEntry& entry) {
  return fmt::format("### {}\n\n{}\n\n{}\n", entry.type, entry.summary,
                     DescribeFields(entry.fields));
}

// The section of one type, looked for in every kind.
std::string DescribeTypeNamed(const std::string& name) {
  std::string types;
  for (const Kind& kind : Kinds()) {
    for (const TypeEntry& entry : kind.table->entries()) {
      if (entry.type == name) return DescribeType(entry);
      types += (types.empty() ? "" : ", ") + entry.type;
    }
  }
  Fail("There is no type '{}'; the types are {}", name, types);
}

}  // namespace

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
         DescribeFields([&](FieldVisitor& v) { VisitEvaluationTask(v, &task); });
}

int DescribeCommand(const std::vector<std::string>& arguments) {
  const auto values = ParseCommandLine(arguments, {}, "type", 1, "lopt describe [TYPE]",
                                       "Without TYPE: every key and type of a config.\n\n"
                                       "Example:\n  lopt describe TruncatedPES\n");
  if (!values) return kExitDone;
  const auto type = TextOption(*values, "type");
  fmt::print("{}", type ? DescribeTypeNamed(*type) : DescribeEverything());
  return kExitDone;
}

}  // namespace lopt
