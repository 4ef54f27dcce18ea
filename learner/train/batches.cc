#include "lopt/learner/train/batches.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "lopt/base/error.h"
#include "lopt/base/permutation.h"
#include "lopt/tasks/batch_rows.h"

namespace lopt {
namespace {

int64_t RowsOf(const DataRows& data) {
  const auto [first, last] = data.splits[static_cast<size_t>(Split::kTrain)];
  return last - first;
}

std::span<const int32_t> FromShard(const ShardedEpochs& epochs, const DataRows& data,
                                   int64_t workers, int64_t worker, const EpisodeStep& at,
                                   Workspace& scratch) {
  const int64_t rows = RowsOf(data);
  const int64_t batch = data.batch_size / workers;
  const int64_t batches = BatchesOfEpoch(epochs, rows, workers, batch);
  const int64_t first = at.step % batches * batch;
  const int64_t last = std::min(first + batch, ShardRows(epochs, rows, workers));
  const std::span<int32_t> examples = scratch.Take<int32_t>(last - first);
  const Workspace::Frame frame(scratch);
  std::optional<Permutation> order;
  if (epochs.shuffle) {
    order.emplace(FoldIn(at.order, static_cast<uint64_t>(at.step / batches)), rows, scratch);
  }
  const auto begin = static_cast<int32_t>(data.splits[static_cast<size_t>(Split::kTrain)].first);
  for (int64_t i = first; i < last; ++i) {
    const int64_t place = (i * workers + worker) % rows;
    examples[i - first] = begin + (order ? (*order)(place) : static_cast<int32_t>(place));
  }
  return examples;
}

}  // namespace

void SplitBatches::Visit(FieldVisitor&) {}

void ShardedEpochs::Visit(FieldVisitor& v) {
  v.Field("shuffle", &shuffle, "Whether each epoch has an order of its own, or that of the data.");
  v.Field("drop_last", &drop_last,
          "Whether an epoch leaves out the rows that do not fill all shards and then all batches "
          "evenly; if not, shards are filled up from the epoch's beginning, and its last batch may "
          "be smaller.");
}

Registry<Batches>& BatchesRegistry() {
  static Registry<Batches> registry = [] {
    Registry<Batches> types("batches");
    types.Add<SplitBatches>(
        "Split", "Each batch, as the task draws it, is cut into equal parts, one for each worker.",
        [](const SplitBatches& options) { return std::make_shared<Batches>(options); });
    types.Add<ShardedEpochs>(
        "Epochs",
        "Each worker goes through a shard of the data, epoch by epoch, as with PyTorch's "
        "DistributedSampler and DataLoader; the task's own sampling is not used.",
        [](const ShardedEpochs& options) { return std::make_shared<Batches>(options); });
    return types;
  }();
  return registry;
}

int64_t ShardRows(const ShardedEpochs& epochs, int64_t rows, int64_t workers) {
  return epochs.drop_last ? rows / workers : (rows + workers - 1) / workers;
}

int64_t BatchesOfEpoch(const ShardedEpochs& epochs, int64_t rows, int64_t workers, int64_t batch) {
  const int64_t shard = ShardRows(epochs, rows, workers);
  return epochs.drop_last ? shard / batch : (shard + batch - 1) / batch;
}

void CheckShares(int64_t batch_size, int64_t workers) {
  Require(batch_size % workers == 0,
          "{} workers cannot share batches of {} examples evenly; wanted a number of workers that "
          "divides the task's batch_size",
          workers, batch_size);
}

void CheckBatches(const Batches& batches, const DataRows& data, int64_t workers) {
  CheckShares(data.batch_size, workers);
  const auto* epochs = std::get_if<ShardedEpochs>(&batches);
  if (epochs == nullptr) return;
  Require(data.batch_size > 0,
          "batches is Epochs, but the task has no data set to go through; valid choices: Split");
  const int64_t rows = RowsOf(data);
  const int64_t batch = data.batch_size / workers;
  Require(
      BatchesOfEpoch(*epochs, rows, workers, batch) > 0,
      "batches: an epoch of {} rows over {} workers has no batch of {} for each with drop_last; "
      "wanted a smaller batch_size, or drop_last false",
      rows, workers, batch);
}

std::span<const int32_t> ExamplesOfWorker(const Batches& batches, const DataRows& data,
                                          int64_t workers, int64_t worker, Key key,
                                          const EpisodeStep& at, Workspace& scratch) {
  if (data.batch_size == 0) return {};
  if (const auto* epochs = std::get_if<ShardedEpochs>(&batches)) {
    return FromShard(*epochs, data, workers, worker, at, scratch);
  }
  const std::span<int32_t> batch = scratch.Take<int32_t>(data.batch_size);
  DrawBatch(data, Split::kTrain, key, at, scratch, batch);
  const int64_t part = data.batch_size / workers;
  return batch.subspan(worker * part, part);
}

}  // namespace lopt
