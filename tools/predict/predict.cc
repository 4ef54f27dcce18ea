#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/print.h"
#include "lopt/evaluation/predictions.h"
#include "lopt/learner/train/trained_model.h"
#include "lopt/tasks/image/fixed_task.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/predict/prediction_files.h"
#include "lopt/tools/predict/prediction_text.h"

namespace lopt {
namespace {

namespace po = boost::program_options;

constexpr const char* kPredictSynopsis = "lopt predict RUN [OPTIONS]";
constexpr const char* kPredictExamples =
    "RUN is the directory of a finished lopt train whose task has classes. Loss, accuracy and\n"
    "confusion are of the whole split; --rows says which rows are listed.\n"
    "\nExamples:\n"
    "  lopt predict runs/model\n"
    "  lopt predict runs/model --split outer_valid --rows 100:120\n"
    "  lopt predict runs/model --out predictions.csv --picture digits.png\n"
    "  lopt predict runs/model --projector runs/projector\n";
constexpr int64_t kListedRows = 10;

int64_t ParseRow(std::string_view text, const std::string& rows) {
  int64_t row = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row);
  if (error != std::errc() || end != text.data() + text.size() || row < 0) {
    throw UsageError(fmt::format(
        "--rows must be FIRST:LAST (rows FIRST to LAST - 1) or a count, got '{}'", rows));
  }
  return row;
}

RowRange ParseRows(const std::string& rows) {
  const size_t colon = rows.find(':');
  if (colon == std::string::npos) return {.last = ParseRow(rows, rows)};
  return {.first = ParseRow(std::string_view(rows).substr(0, colon), rows),
          .last = ParseRow(std::string_view(rows).substr(colon + 1), rows)};
}

// Throws Error if a file to be written is the model.
void RequireOther(const TrainedModel& model, const char* option, const std::string& path) {
  std::error_code ignored;
  Require(!std::filesystem::equivalent(model.path, path, ignored), "{}: --{} is the model", path,
          option);
}

po::options_description PredictOptions() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("split", po::value<std::string>()->value_name("SPLIT")->default_value("test"),
      "train, inner_valid, outer_valid or test.");
  add("rows", po::value<std::string>()->value_name("ROWS"),
      "Rows of the split to list: 100:120, or a number of the first. Default: 10 on the terminal, "
      "else all.");
  add("out", po::value<std::string>()->value_name("FILE"),
      "Write the rows to this file, as CSV: row, label, class and the probability of each class.");
  add("picture", po::value<std::string>()->value_name("FILE"),
      "Draw the first ten of the rows, \"label>class\" below each, as PNG.");
  add("projector", po::value<std::string>()->value_name("DIR"),
      "Write what the last layer takes of each of the rows, with labels and pictures, for "
      "TensorBoard's projector: tensorboard --logdir DIR.");
  add("json", "Everything in JSON, logits too, for programs.");
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Where the task's data files are now. Default: where they were.");
  return options;
}

Split ParseSplit(const std::string& name) {
  try {
    return ValueOf("split", name, kSplitNames);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

int PredictCommand(const std::vector<std::string>& arguments) {
  const auto values =
      ParseCommandLine(arguments, PredictOptions(), "run", 1, kPredictSynopsis, kPredictExamples);
  if (!values) return kExitDone;
  const auto run = TextOption(*values, "run");
  if (!run) throw UsageError(fmt::format("RUN is missing; usage: {}", kPredictSynopsis));
  const Split split = ParseSplit((*values)["split"].as<std::string>());
  std::optional<RowRange> asked;
  if (const auto rows = TextOption(*values, "rows")) asked = ParseRows(*rows);
  const auto out = TextOption(*values, "out");
  const auto picture = TextOption(*values, "picture");
  const auto projector = TextOption(*values, "projector");
  const bool json = values->contains("json");
  // What readers of data log goes elsewhere than the JSON.
  if (json) spdlog::set_default_logger(spdlog::stderr_logger_mt("predict"));

  const TrainedModel model = ReadTrainedModel(*run, TextOption(*values, "data-dir"));
  if (out) RequireOther(model, "out", *out);
  if (picture) RequireOther(model, "picture", *picture);
  Workspace scratch;
  const std::string who = fmt::format("{} ({})", *run, TaskLabel(model.config.task));
  const Predictions predictions =
      Predict(who, *model.task, model.task_config, model.params, model.model_state, split, scratch);
  const int64_t count = predictions.rows();
  const RowRange rows = asked.value_or(RowRange{.last = count});
  Require(rows.first < rows.last && rows.last <= count,
          "--rows {}:{}: wanted at least one of the rows 0:{} of {}", rows.first, rows.last, count,
          ToString(split));
  if (out) WriteTextFile(*out, PredictionsCsv(predictions, rows));
  if (picture) WritePicture(*picture, model, split, predictions, rows, scratch);
  if (projector) {
    WriteProjector(*projector, who, model, split, predictions, rows, scratch);
  }
  if (json) {
    PrintOut("{}\n", PredictionsJson(*run, ToString(split), predictions, rows));
    return kExitDone;
  }
  PrintOut("{} after {} updates, on {}: {} rows of {} classes\n\n", TaskLabel(model.config.task),
           model.config.steps, ToString(split), count, predictions.classes);
  PrintPredictions(predictions, asked.value_or(RowRange{.last = std::min(count, kListedRows)}));
  std::string written;
  for (const auto& path : {out, picture, projector}) {
    if (path) written += (written.empty() ? "" : ", ") + *path;
  }
  if (!written.empty()) PrintOut("\nWritten: {}\n", written);
  return kExitDone;
}

}  // namespace lopt
