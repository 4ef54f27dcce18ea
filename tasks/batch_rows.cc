#include "lopt/tasks/batch_rows.h"

#include "lopt/base/error.h"
#include "lopt/base/permutation.h"

namespace lopt {
namespace {

// The batch of a step that goes through rows [first, last) by epochs.
void TakeFromEpoch(int64_t first, int64_t last, const EpisodeStep& at, Workspace& scratch,
                   std::span<int32_t> examples) {
  const Workspace::Frame frame(scratch);
  Require(at.step >= 0, "TaskFamily: step {} of an episode, wanted at least 0", at.step);
  const int64_t rows = last - first;
  const int64_t batch_size = std::ssize(examples);
  const int64_t batches = (rows + batch_size - 1) / batch_size;
  const auto epoch = static_cast<uint64_t>(at.step / batches);
  const Permutation order(FoldIn(at.order, epoch), rows, scratch);
  int64_t place = at.step % batches * batch_size;
  for (int32_t& example : examples) {
    example = static_cast<int32_t>(first) + order(place);
    place = place + 1 < rows ? place + 1 : 0;
  }
}

}  // namespace

void DrawBatch(const DataRows& data, Split split, Key key, const EpisodeStep& at,
               Workspace& scratch, std::span<int32_t> examples) {
  const auto [first, last] = data.splits[static_cast<size_t>(split)];
  Require(first < last, "TaskFamily: the data set has no rows in the split {}", ToString(split));
  if (data.sampling == Sampling::kEpoch) {
    TakeFromEpoch(first, last, at, scratch, examples);
  } else {
    Randint(FoldIn(key, 0), static_cast<int32_t>(first), static_cast<int32_t>(last), examples);
  }
}

void VisitSampling(FieldVisitor& v, Sampling* sampling) {
  v.Choice("sampling", sampling, kSamplings,
           "How batches are drawn: \"replacement\" takes any example each time, \"epoch\" goes "
           "through all in a new order again and again.");
}

}  // namespace lopt
