#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <charconv>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/pictures.h"
#include "lopt/base/png.h"
#include "lopt/base/print.h"
#include "lopt/base/record.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/predictions.h"
#include "lopt/learner/train/trained_model.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/projector.h"

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

// Rows [first, last) of a split.
struct RowRange {
  int64_t first = 0;
  int64_t last = 0;
};

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

// What --json prints.
struct PredictedRow {
  int64_t row = 0;
  int64_t label = 0;
  int64_t predicted = 0;
  std::vector<double> logits = {};
  std::vector<double> probabilities = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("row", row);
    visit("label", label);
    visit("class", predicted);
    visit("logits", logits);
    visit("probabilities", probabilities);
  }
};
struct PredictionRecord {
  std::string run = {};
  std::string split = {};
  int64_t rows = 0;
  int64_t classes = 0;
  double loss = 0;
  double accuracy = 0;
  std::vector<std::vector<int64_t>> confusion = {};
  std::vector<PredictedRow> predictions = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("run", run);
    visit("split", split);
    visit("rows", rows);
    visit("classes", classes);
    visit("loss", loss);
    visit("accuracy", accuracy);
    visit("confusion", confusion);
    visit("predictions", predictions);
  }
};

double Accuracy(const Predictions& p) {
  return static_cast<double>(p.Right()) / static_cast<double>(p.rows());
}

std::string PredictionsJson(const std::string& run, std::string_view split, const Predictions& p,
                            const RowRange& range) {
  PredictionRecord record{.run = run,
                          .split = std::string(split),
                          .rows = p.rows(),
                          .classes = p.classes,
                          .loss = p.loss,
                          .accuracy = Accuracy(p),
                          .confusion = p.Confusion()};
  for (int64_t row = range.first; row < range.last; ++row) {
    const auto logits = std::span(p.logits).subspan(row * p.classes, p.classes);
    record.predictions.push_back({.row = row,
                                  .label = p.labels[row],
                                  .predicted = p.Class(row),
                                  .logits = {logits.begin(), logits.end()},
                                  .probabilities = p.Probabilities(row)});
  }
  return RecordText(record);
}

std::string PredictionsCsv(const Predictions& p, const RowRange& range) {
  std::string text = "row,label,class";
  for (int64_t c = 0; c < p.classes; ++c) text += fmt::format(",p{}", c);
  text += "\n";
  for (int64_t row = range.first; row < range.last; ++row) {
    text += fmt::format("{},{},{}", row, p.labels[row], p.Class(row));
    for (const double share : p.Probabilities(row)) text += fmt::format(",{:.9g}", share);
    text += "\n";
  }
  return text;
}

// "7: 0.9981  3: 0.0012  9: 0.0003", the likeliest classes of a row.
std::string LikeliestWords(const std::vector<double>& shares) {
  constexpr size_t kShown = 4;
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return shares[a] > shares[b]; });
  order.resize(std::min(order.size(), kShown));
  std::string words;
  for (const size_t c : order) words += fmt::format("  {:>3}: {:.4f}", c, shares[c]);
  return words;
}

void PrintRows(const Predictions& p, const RowRange& range) {
  PrintOut("{:>7}  {:>5}  {:>5}  {}\n", "row", "label", "class", "likeliest classes");
  for (int64_t row = range.first; row < range.last; ++row) {
    PrintOut("{:>7}  {:>5}  {:>5}{}{}\n", row, p.labels[row], p.Class(row),
             LikeliestWords(p.Probabilities(row)), p.Class(row) == p.labels[row] ? "" : "  wrong");
  }
}

// The confusion matrix where it fits, else the pairs that are confused most often.
void PrintConfusion(const Predictions& p) {
  constexpr int64_t kLabelColumns = 7;
  const auto counts = p.Confusion();
  int64_t largest = p.classes - 1;
  for (const auto& row : counts) largest = std::max(largest, std::ranges::max(row));
  const int64_t width = std::ssize(fmt::to_string(largest)) + 2;
  if (kLabelColumns + p.classes * width <= static_cast<int64_t>(kTerminalColumns)) {
    PrintOut("\nRows of each label (line) that have each class (column):\n{:>7}", "");
    for (int64_t c = 0; c < p.classes; ++c) PrintOut("{:>{}}", c, width);
    for (int64_t label = 0; label < p.classes; ++label) {
      PrintOut("\n{:>7}", label);
      for (const int64_t count : counts[label]) PrintOut("{:>{}}", count, width);
    }
    PrintOut("\n");
    return;
  }
  struct Pair {
    int64_t count, label, predicted;
  };
  std::vector<Pair> pairs;
  for (int64_t label = 0; label < p.classes; ++label) {
    for (int64_t c = 0; c < p.classes; ++c) {
      if (c != label && counts[label][c] > 0) pairs.push_back({counts[label][c], label, c});
    }
  }
  std::ranges::stable_sort(pairs, std::greater<>(), &Pair::count);
  pairs.resize(std::min<size_t>(pairs.size(), 10));
  PrintOut(
      "\nMost often confused, of {} classes (--json has the whole matrix):\n{:>8}  {:>5}  {}\n",
      p.classes, "rows", "label", "class");
  for (const Pair& pair : pairs) {
    PrintOut("{:>8}  {:>5}  {:>5}\n", pair.count, pair.label, pair.predicted);
  }
}

// Rows of a split as those of the data set.
std::vector<int32_t> ExamplesOf(const TrainedModel& model, Split split, const RowRange& range) {
  std::vector<int32_t> examples(static_cast<size_t>(range.last - range.first));
  std::iota(examples.begin(), examples.end(),
            static_cast<int32_t>(model.task->ExampleRange(split).first + range.first));
  return examples;
}

// What a task shows of these rows; none: it shows nothing.
std::optional<Pictures> PicturesOf(const TrainedModel& model, std::span<const int32_t> examples,
                                   Workspace& scratch) {
  std::vector<Pictures> shown =
      ShowRows(*model.task, model.task_config, model.params, model.model_state, examples, scratch);
  if (shown.empty()) return std::nullopt;
  return std::move(shown.front());
}

// The first ten rows, "label>class" below each, green where the class is right and red where not.
void WritePicture(const std::string& path, const TrainedModel& model, Split split,
                  const Predictions& p, const RowRange& range, Workspace& scratch) {
  constexpr int64_t kMostPictures = 10;
  constexpr std::array<float, 3> kGreen = {0.3F, 0.9F, 0.3F};
  constexpr std::array<float, 3> kRed = {1, 0.3F, 0.3F};
  const RowRange drawn{range.first, std::min(range.last, range.first + kMostPictures)};
  std::vector<Caption> captions;
  for (int64_t row = drawn.first; row < drawn.last; ++row) {
    captions.push_back({.text = fmt::format("{}>{}", p.labels[row], p.Class(row)),
                        .colour = p.Class(row) == p.labels[row] ? kGreen : kRed});
  }
  const auto pictures = PicturesOf(model, ExamplesOf(model, split, drawn), scratch);
  Require(pictures.has_value(), "--picture: the task {} shows no pictures",
          model.config.task.Type());
  const Bitmap sheet = MakeGrid(WithCaptions(pictures.value(), captions), 5, 4, 2);
  WriteTextFile(path, EncodePng(sheet));
}

void WriteProjector(const std::string& directory, const std::string& who, const TrainedModel& model,
                    Split split, const Predictions& p, const RowRange& range, Workspace& scratch) {
  const std::vector<int32_t> examples = ExamplesOf(model, split, range);
  const std::vector<float> features = LastFeatures(
      who, *model.task, model.task_config, model.params, model.model_state, examples, scratch);
  std::string labels = "label\tclass\tright\trow\n";
  for (int64_t row = range.first; row < range.last; ++row) {
    labels += fmt::format("{}\t{}\t{}\t{}\n", p.labels[row], p.Class(row),
                          p.Class(row) == p.labels[row] ? "yes" : "no", row);
  }
  WriteProjection(directory,
                  {.name = fmt::format("{} {}", model.config.task.Type(), ToString(split)),
                   .points = range.last - range.first,
                   .features = features,
                   .labels = std::move(labels),
                   .pictures = PicturesOf(model, examples, scratch)});
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

void PrintPredictions(const TrainedModel& model, Split split, const Predictions& p,
                      const RowRange& listed) {
  PrintOut("{} after {} updates, on {}: {} rows of {} classes\n\n", model.config.task.Type(),
           model.config.steps, ToString(split), p.rows(), p.classes);
  PrintRows(p, listed);
  PrintOut("\n  loss: {:.6g}\n  accuracy: {:.6g} ({} of {})\n", p.loss, Accuracy(p), p.Right(),
           p.rows());
  PrintConfusion(p);
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
  const std::string who = fmt::format("{} ({})", *run, model.config.task.Type());
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
  PrintPredictions(model, split, predictions,
                   asked.value_or(RowRange{.last = std::min(count, kListedRows)}));
  std::string written;
  for (const auto& path : {out, picture, projector}) {
    if (path) written += (written.empty() ? "" : ", ") + *path;
  }
  if (!written.empty()) PrintOut("\nWritten: {}\n", written);
  return kExitDone;
}

}  // namespace lopt
