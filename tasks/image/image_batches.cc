#include "lopt/tasks/image/image_batches.h"

#include <numeric>
#include <utility>

#include "lopt/base/error.h"

namespace lopt {
namespace {

// Row `row`'s first `size` numbers of an array [rows, ...].
template <class T>
std::span<T> FirstOfRow(std::span<T> all, int64_t rows, int64_t row, int64_t size) {
  return all.subspan(static_cast<size_t>(row) * all.size() / static_cast<size_t>(rows),
                     static_cast<size_t>(size));
}

// Of a row that has a key.
BatchPart PartOf(const TaskEvaluation& e, int64_t row) {
  const auto i = static_cast<size_t>(row);
  return e.shares.parts.empty() ? BatchPart{.key = e.keys[i]} : e.shares.parts[i];
}

}  // namespace

ImageBatches::ImageBatches(const Config& augment, std::shared_ptr<const ImageData> data)
    : data_(std::move(data)) {
  augmentation_ = AugmentationRegistry().Make(
      augment, {.height = data_->height(), .width = data_->width(), .channels = data_->channels()});
  if (augmentation_ == nullptr) return;
  augmentation_type_ = augment.Type();
  Require(!data_->holds_signals(), "augment '{}' is for images, but the data are signals",
          augment.Type());
  config_layout_ = augmentation_->config_layout();
  model_state_layout_ = augmentation_->model_state_layout();
}

bool ImageBatches::ChangesEverySplit() const {
  return augmentation_ != nullptr && augmentation_->Changes({.config = {},
                                                             .model_state = {},
                                                             .split = Split::kTest,
                                                             .key = std::nullopt,
                                                             .part = {}});
}

void ImageBatches::Sample(Key key, std::span<float> config) const {
  if (augmentation_ == nullptr) return;
  augmentation_->Sample(key, config.first(static_cast<size_t>(config_layout_.size())));
}

void ImageBatches::Init(std::span<float> model_state) const {
  if (augmentation_ == nullptr) return;
  augmentation_->Init(model_state.first(static_cast<size_t>(model_state_layout_.size())));
}

ImageBatch ImageBatches::Batch(const TaskEvaluation& e, int64_t row, Workspace& scratch) const {
  const ImageBatch plain = PlainBatch(e, row);
  if (augmentation_ == nullptr) return plain;
  const AugmentedRow augmented = RowOf(e, row);
  if (!augmentation_->Changes(augmented)) return plain;
  const WritableBatch made = NewBatch(plain.examples, scratch);
  augmentation_->Augment(augmented, plain, made.images, scratch);
  return made.batch;
}

ProbeRecords ImageBatches::records() const {
  return augmentation_ == nullptr ? ProbeRecords() : augmentation_->records();
}

void ImageBatches::Learn(std::span<const float> records, std::span<float> model_state) const {
  augmentation_->Learn(records, model_state.first(static_cast<size_t>(model_state_layout_.size())));
}

bool ImageBatches::Learns(const TaskEvaluation& e) const {
  return records().probes > 0 && e.split == Split::kTrain && !e.keys.empty();
}

ImageBatch ImageBatches::Probes(const TaskEvaluation& e, int64_t row, Workspace& scratch) const {
  ImageBatch plain = PlainBatch(e, row);
  const BatchPart part = PartOf(e, row);
  const std::span<int32_t> examples = scratch.Take<int32_t>(records().probes / part.count);
  for (size_t p = 0; p < examples.size(); ++p) {
    examples[p] = plain.examples[p * plain.examples.size() / examples.size()];
  }
  plain.examples = examples;
  const WritableBatch made = NewBatch(examples, scratch);
  augmentation_->Probe(part, plain, made.images, scratch);
  return made.batch;
}

void ImageBatches::NoteLosses(const TaskEvaluation& e, int64_t row, std::span<const float> losses,
                              Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  const bool at_once = e.shares.records.empty();
  const int64_t size = std::ssize(losses) * records().size;
  const std::span<float> made =
      at_once ? scratch.Take<float>(size) : FirstOfRow(e.shares.records, e.rows, row, size);
  augmentation_->Record(PartOf(e, row), losses, made, scratch);
  if (at_once) {
    augmentation_->Learn(made, FirstOfRow(e.model_state, e.rows, row, model_state_layout_.size()));
  }
}

AugmentedRow ImageBatches::RowOf(const TaskEvaluation& e, int64_t row) const {
  AugmentedRow augmented{.config = FirstOfRow(e.config, e.rows, row, config_layout_.size()),
                         .model_state = FirstOfRow(std::span<const float>(e.model_state), e.rows,
                                                   row, model_state_layout_.size()),
                         .split = e.split,
                         .key = std::nullopt,
                         .part = {}};
  if (!e.keys.empty()) {
    augmented.key = e.keys[static_cast<size_t>(row)];
    augmented.part = PartOf(e, row);
  }
  return augmented;
}

ImageBatch ImageBatches::PlainBatch(const TaskEvaluation& e, int64_t row) const {
  const size_t batch = e.examples.size() / static_cast<size_t>(e.rows);
  return {.images = data_->images(),
          .stride = data_->stride(),
          .labels = data_->labels(),
          .examples = e.examples.subspan(static_cast<size_t>(row) * batch, batch)};
}

ImageBatches::WritableBatch ImageBatches::NewBatch(std::span<const int32_t> examples,
                                                   Workspace& scratch) const {
  const auto count = std::ssize(examples);
  const std::span<float> images = scratch.Take<float>(count * data_->stride());
  const std::span<uint8_t> labels = scratch.Take<uint8_t>(count);
  const std::span<int32_t> rows = scratch.Take<int32_t>(count);
  for (size_t i = 0; i < examples.size(); ++i) labels[i] = data_->labels()[examples[i]];
  std::iota(rows.begin(), rows.end(), 0);
  return {.images = images.data(),
          .batch = {.images = images.data(),
                    .stride = data_->stride(),
                    .labels = labels.data(),
                    .examples = rows}};
}

}  // namespace lopt
