#include "lopt/tools/predict/prediction_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lopt/base/captions.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/pictures.h"
#include "lopt/base/png.h"
#include "lopt/tasks/image/fixed_task.h"
#include "lopt/tools/projector.h"

namespace lopt {
namespace {

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

}  // namespace

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
          TaskLabel(model.config.task));
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
                  {.name = fmt::format("{} {}", TaskLabel(model.config.task), ToString(split)),
                   .points = range.last - range.first,
                   .features = features,
                   .labels = std::move(labels),
                   .pictures = PicturesOf(model, examples, scratch)});
}

}  // namespace lopt
