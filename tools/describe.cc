#include "lopt/tools/describe.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
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
#include "lopt/tools/progress_line.h"

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

std::string Heading(const std::string& title, const TypeEntry& entry) {
  return fmt::format("### {}\n\n{}{}\n\n", title, entry.summary,
                     entry.plugin.empty() ? "" : " From the plug-in " + entry.plugin + ".");
}

std::string Lowered(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The anchor of a heading, as Markdown makes it.
std::string Anchor(const std::string& title) {
  std::string anchor = Lowered(title);
  std::erase(anchor, ',');
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

std::string List(const VisitFields& fields) { return DescribeFields(fields, LinkTypes); }

// Types that differ in their names alone have one section.
struct Section {
  std::string title;       // the names
  const TypeEntry* entry;  // the first of them
  std::vector<FieldRow> rows;
};

std::vector<Section> Sections(const TypeTable& table) {
  std::vector<Section> sections;
  for (const TypeEntry& entry : table.entries()) {
    std::vector<FieldRow> rows = FieldRows(entry.fields, LinkTypes);
    if (!sections.empty() && sections.back().rows == rows &&
        sections.back().entry->summary == entry.summary &&
        sections.back().entry->plugin == entry.plugin) {
      sections.back().title += ", " + entry.type;
    } else {
      sections.push_back({entry.type, &entry, std::move(rows)});
    }
  }
  return sections;
}

// Whether two types take a key alike; its default may differ.
bool Alike(const FieldRow& a, const FieldRow& b) {
  return a.key == b.key && a.value == b.value && a.meaning == b.meaning;
}

// A row of a kind, and the title of the place where it is shown.
struct KeyRow {
  FieldRow row;
  std::string place;
  int count = 1;  // sections that have it
};

constexpr int kShared = 3;  // sections that have a row: from here on it has a place of its own

// All rows of a kind, once each. Those of at least kShared sections are shown under `title`, a key
// only once; the others where they come first.
std::vector<KeyRow> FindKeyRows(const std::vector<Section>& sections, const std::string& title) {
  std::vector<KeyRow> all;
  for (const Section& section : sections) {
    for (const FieldRow& row : section.rows) {
      const auto known =
          std::ranges::find_if(all, [&](const KeyRow& r) { return Alike(r.row, row); });
      if (known == all.end()) {
        all.push_back({row, section.title});
      } else {
        ++known->count;
      }
    }
  }
  for (KeyRow& one : all) {
    const bool most = std::ranges::none_of(all, [&](const KeyRow& r) {
      return r.row.key == one.row.key &&
             (r.count > one.count || (r.count == one.count && &r < &one));
    });
    if (one.count >= kShared && most) one.place = title;
  }
  return all;
}

// A key whose row is shown elsewhere, and its default where that is another.
std::string KeyElsewhere(const FieldRow& row, const FieldRow& shown) {
  if (row.default_value == shown.default_value) return row.key;
  const bool code = row.default_value.starts_with('`');  // else "required"
  return fmt::format("{} ({}{})", row.key, code ? "default " : "", row.default_value);
}

// The section of a type: its own rows, then the keys whose rows are shown at another place, which
// is `shared` or another section.
std::string DescribeSection(const Section& section, const std::vector<KeyRow>& key_rows,
                            const std::string& shared) {
  std::vector<FieldRow> own;
  std::vector<std::pair<std::string, std::vector<std::string>>> elsewhere;  // by place
  for (const FieldRow& row : section.rows) {
    const KeyRow& shown =
        *std::ranges::find_if(key_rows, [&](const KeyRow& r) { return Alike(r.row, row); });
    if (shown.place == section.title) {
      own.push_back(row);
      continue;
    }
    auto place = std::ranges::find(elsewhere, shown.place, [](const auto& p) { return p.first; });
    if (place == elsewhere.end()) place = elsewhere.insert(place, {shown.place, {}});
    place->second.push_back(KeyElsewhere(row, shown.row));
  }
  std::string text = Heading(section.title, *section.entry);
  if (!own.empty()) text += FieldList(own) + "\n";
  for (const auto& [place, keys] : elsewhere) {
    const std::string link = place == shared ? "[Shared keys]" : "As in [" + place + "]";
    text += fmt::format("{}(#{}): {}.\n\n", link, Anchor(place), fmt::join(keys, ", "));
  }
  return section.rows.empty() ? text + "It has no keys.\n\n" : text;
}

// The types of a kind. What several of them take alike comes first, and they name its keys.
std::string DescribeKind(const Kind& kind) {
  const std::vector<Section> sections = Sections(*kind.table);
  const std::string title = fmt::format("Keys of several {}", Lowered(kind.title));
  const std::vector<KeyRow> key_rows = FindKeyRows(sections, title);
  std::vector<FieldRow> shared;
  for (const KeyRow& r : key_rows) {
    if (r.place == title) shared.push_back(r.row);
  }
  std::string text = fmt::format("## {}\n\n", kind.title);
  if (!shared.empty()) text += fmt::format("### {}\n\n{}\n", title, FieldList(shared));
  for (const Section& section : sections) text += DescribeSection(section, key_rows, title);
  return text;
}

std::string DescribeOptimizersOfTheta() {
  return fmt::format(
      "## {}\n\nAny [optimizer](#learned-optimizers) that its options define completely, such as "
      "Adam, Muon or Lion, with two more keys. An optimizer that begins with drawn weights is an "
      "error: it would have to be meta-trained first.\n\n{}\n",
      kOptimizersOfTheta, List(VisitClipping));
}

// A type by itself, away from the page.
std::string DescribeType(const Kind& kind, const TypeEntry& entry) {
  std::string text = fmt::format("## {}\n\n{}{}\n", kind.title, Heading(entry.type, entry),
                                 DescribeFields(entry.fields));
  if (kind.table == &OptimizerRegistry().table()) {
    text += fmt::format(
        "As `theta_opt`, which its options must then define completely, it has these keys too:"
        "\n\n{}\n",
        DescribeFields(VisitClipping));
  }
  return text;
}

// Keys that a meta-training has as well are only named.
std::string DescribeTrainings() {
  const std::vector<FieldRow> top =
      FieldRows([](FieldVisitor& v) { MetaTrainConfig().Visit(v); }, LinkTypes);
  std::vector<FieldRow> own;
  std::vector<std::string> keys;
  for (FieldRow& row : FieldRows([](FieldVisitor& v) { TrainConfig().Visit(v); }, LinkTypes)) {
    if (std::ranges::count(top, row) > 0) {
      keys.push_back(row.key);
    } else {
      own.push_back(std::move(row));
    }
  }
  return fmt::format(
      "## Trainings\n\nThe file that `lopt train` reads.\n\n{}\nAs at the [top "
      "level](#top-level): {}.\n",
      FieldList(own), fmt::join(keys, ", "));
}

}  // namespace

std::vector<std::string> DescribedTypes() {
  std::vector<std::string> types;
  for (const Kind& kind : Kinds()) {
    for (const TypeEntry& entry : kind.table->entries()) {
      if (std::ranges::find(types, entry.type) == types.end()) types.push_back(entry.type);
    }
  }
  return types;
}

std::string DescribeTypeNamed(const std::string& name) {
  std::string text;
  for (const Kind& kind : Kinds()) {
    for (const TypeEntry& entry : kind.table->entries()) {
      if (entry.type == name) text += DescribeType(kind, entry);
    }
  }
  if (!text.empty()) return text;
  const std::vector<std::string> types = DescribedTypes();
  Fail("There is no type '{}'; the types are {}{}", name, fmt::join(types, ", "),
       DidYouMean(name, types));
}

std::string DescribeEverything() {
  std::string text =
      "# The config file\n\n"
      "A config is one JSON object; `//` and `/* */` comments are allowed. An unknown key, a wrong "
      "type or a number out of range is an error that names the key. Keys that several types of a "
      "kind take alike are in a list before them; each type names those that it takes, and its "
      "default where that is another. `lopt describe TYPE` prints all keys of one type, `lopt "
      "describe` this page.\n\n## Top level\n\n" +
      List([](FieldVisitor& v) { MetaTrainConfig().Visit(v); }) + "\n";
  for (const Kind& kind : Kinds()) {
    text += DescribeKind(kind);
    if (kind.table == &OptimizerRegistry().table()) text += DescribeOptimizersOfTheta();
  }
  EvaluationTask task;
  return text +
         "## Evaluations\n\nThe file that `lopt eval --tasks` reads. It has one key more, `tasks`: "
         "an object that names each task, such as `{\"tasks\": {\"wide\": {\"task\": {\"type\": "
         "\"ImageMLP\", \"hidden\": [128]}}}}`.\n\n" +
         List([](FieldVisitor& v) { EvaluationConfig().Visit(v); }) + "\nOne task:\n\n" +
         List([&](FieldVisitor& v) { VisitEvaluationTask(v, &task); }) + "\n" + DescribeTrainings();
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
      "Train it with Adam for so many steps. Default: 1.")(
      "learning-rate", po::value<double>(&request.learning_rate)->value_name("X"),
      "Learning rate of Adam. Default: 0.01.")(
      "seed", po::value<int64_t>(&request.seed)->value_name("N"),
      "Seed of the task, its start and its batches. Default: 0.")(
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
    PrintOut("{}", FitTerminal(stdout, type ? DescribeTypeNamed(*type) : DescribeEverything()));
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
  if (request.seed < 0) {
    throw UsageError(fmt::format("--seed must be at least 0, got {}", request.seed));
  }
  DescribeTask(request);
  return kExitDone;
}

}  // namespace lopt
