#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/pictures.h"
#include "lopt/base/workspace.h"

namespace lopt {

class Device;

// Which part of a task's data. `train` is what the inner training sees.
enum class Split { kTrain, kInnerValid, kOuterValid, kTest };
inline constexpr Named<Split> kSplitNames[] = {{Split::kTrain, "train"},
                                               {Split::kInnerValid, "inner_valid"},
                                               {Split::kOuterValid, "outer_valid"},
                                               {Split::kTest, "test"}};
// All of them.
inline constexpr Split kSplits[] = {Split::kTrain, Split::kInnerValid, Split::kOuterValid,
                                    Split::kTest};

// Its name in configs and messages.
std::string_view ToString(Split split);

// How the batches of an episode go through a split. kReplacement: every example of every batch is
// any row. kEpoch: epoch after epoch in a new order, every row once an epoch; where the batch size
// does not divide the rows, an epoch's last batch is filled up from its beginning.
enum class Sampling { kReplacement, kEpoch };
inline constexpr Named<Sampling> kSamplings[] = {{Sampling::kReplacement, "replacement"},
                                                 {Sampling::kEpoch, "epoch"}};

// Where an evaluation is in the batches of an episode.
struct EpisodeStep {
  Key order;         // names the orders in which the episode goes through its data
  int64_t step = 0;  // inner step of the episode, from 0
};

// Which part of a batch an evaluation has, where several share one: equal parts, one after the
// other.
struct BatchPart {
  Key key;            // of the batch, the same for all parts
  int64_t index = 0;  // among the parts
  int64_t count = 1;  // parts of the batch
};

// What an evaluation needs where several share one batch, as the workers of `lopt train` do. n
// rows.
struct BatchShares {
  // [n]: what part of a batch row i's examples are; empty: all of it. The counts are equal.
  std::span<const BatchPart> parts = {};
  // [n, probes of a part, R], out, on Split::kTrain: records for Learn, which the model state then
  // does not learn from yet. Empty: it learns from them at once.
  std::span<float> records = {};
};

// What a classifier makes of the examples of n rows, E each; K is TaskParts::classes.
struct Answers {
  std::span<float> logits = {};    // [n, E, K], out; empty: not wanted
  std::span<int32_t> labels = {};  // [n, E], out: the right classes, from 0; wanted with logits
};

// What to evaluate, and where the results go: n tasks of one family, all arrays C order with n
// rows.
struct TaskEvaluation {
  int64_t rows = 1;                    // n
  std::span<const float> config = {};  // [n, C]
  std::span<const float> params = {};  // [n, P]
  std::span<float> model_state = {};   // [n, M]; on Split::kTrain updated in place
  Split split = Split::kTrain;         // whose examples are drawn
  // [n]: row i's data (equal keys, equal data). May be empty where `examples` is given and the
  // family draws nothing else.
  std::span<const Key> keys = {};
  // [n]: which batch Sampling::kEpoch takes for row i; empty: that of step 0, ordered by its key.
  std::span<const EpisodeStep> steps = {};
  // [n, E]: these rows of the family's data set; empty: a batch of `split` that each key draws.
  std::span<const int32_t> examples = {};
  BatchShares shares = {};          // of the rows' batches; by default all of each
  std::span<float> losses = {};     // [n], out
  std::span<float> gradients = {};  // [n, P], out; empty: not wanted
  std::span<float> aux = {};        // [n, A], out; empty: not wanted
  Answers answers = {};             // of the examples, on the host alone
  // Whose memory params, model_state, losses, gradients and aux are in; null: the host's, where the
  // rest always is.
  const Device* device = nullptr;
};

// The evaluation of its row `row` alone, of the same arrays.
TaskEvaluation RowOf(const TaskEvaluation& evaluation, int64_t row);

// The rows of a data set, which all tasks of a family share.
struct DataRows {
  // Rows [first, last) of each Split: not empty, one after the other from row 0.
  std::pair<int64_t, int64_t> splits[4] = {};
  int64_t batch_size = 0;                      // examples that an evaluation draws; 0: no data set
  Sampling sampling = Sampling::kReplacement;  // of the batches of an episode
  // Whether batches of both are the same rows.
  bool operator==(const DataRows& other) const {
    return std::ranges::equal(splits, other.splits) && batch_size == other.batch_size &&
           sampling == other.sampling;
  }
};

// What the gradients of a family are: those of its losses; these and noise of mean zero that the
// key names; or others, on purpose. In this order, for families over families.
enum class Gradients { kOfLoss, kNoisy, kOther };

// What a model state learns from beside the batch: examples that an evaluation on Split::kTrain
// judges.
struct ProbeRecords {
  int64_t probes = 0;  // such examples of a batch, which its parts share evenly
  int64_t size = 0;    // R: numbers that a probe's records have
  bool operator==(const ProbeRecords&) const = default;
};

// What a family is made of, besides its code.
struct TaskParts {
  Layout config = {};       // what tasks of the family differ in; may be empty
  Layout params = {};       // what the inner training trains
  Layout model_state = {};  // what evaluations update beside them; may be empty
  // None: the model state learns from probes that the parts of a batch cannot share.
  std::optional<ProbeRecords> records = ProbeRecords();
  Layout aux = {};     // scalars; `lopt eval` shows the one called "accuracy"
  DataRows data = {};  // none by default
  // K, where each example has one of K classes and evaluations give Answers; 0: there are none.
  int64_t classes = 0;
  // Losses are cut to [0, this], and one that is not finite becomes this; none: they stay as they
  // are.
  std::optional<double> normalizer_maximum = std::nullopt;
  // Floating-point operations of one evaluation with gradient of one row, batch included: those of
  // its matrix products and convolutions, a multiplication and an addition counted as two. 0: not
  // stated.
  double flops = 0;
  Gradients gradients = Gradients::kOfLoss;  // what the family says that they are
  // Whether evaluations take memory beside their scratch, as what is written with a tensor library
  // does.
  bool allocates = false;
};

// A family of inner problems with one parameter layout. What differs between two tasks of a family
// is a row of numbers, its config, so a task is plain data. Immutable and thread-safe.
class TaskFamily {
 public:
  virtual ~TaskFamily() = default;
  TaskFamily(const TaskFamily&) = delete;
  TaskFamily& operator=(const TaskFamily&) = delete;

  const Layout& config_layout() const { return parts_.config; }  // C numbers, may be 0
  const Layout& params_layout() const { return parts_.params; }  // P
  // M: batch statistics and the like. The optimizer never touches it. Evaluations on Split::kTrain
  // may update it; those on other splits leave it as it is.
  const Layout& model_state_layout() const { return parts_.model_state; }
  // A extra outputs, each a scalar.
  const Layout& aux_layout() const { return parts_.aux; }
  // All of them.
  const TaskParts& parts() const { return parts_; }

  // Draws a task. All of these throw Error if a span's size is not the layout's.
  void Sample(Key key, std::span<float> config) const;
  // Draws initial params (and sets the model state).
  void Init(std::span<const float> config, Key key, std::span<float> params,
            std::span<float> model_state) const;
  // Losses and, where asked for, gradients with respect to params and aux outputs. A function of
  // its inputs, row by row; params of NaN have a loss that is not finite. Denormal numbers are
  // zeros to it, whatever they are to the calling thread, as they are to UpdateRule::Update. Takes
  // no memory but scratch, unless parts().allocates says so. Throws Error as well if an example is
  // not of the data set, answers are wanted of a family without classes, or the evaluation is on a
  // device that EvaluatesOn does not name. One on a device is done when this returns.
  void Evaluate(const TaskEvaluation& evaluation, Workspace& scratch) const;

  // Updates the model state [M] of a task with the records of all parts of a batch [probes, R], one
  // after the other, as an evaluation of the whole batch does. Throws Error where parts cannot
  // share probes.
  void Learn(std::span<const float> config, std::span<const float> records,
             std::span<float> model_state, Workspace& scratch) const;

  // Pictures of what one row sees and does, for people: "batch", what an autoencoder makes of it.
  // Of the evaluation, whose rows must be 1, all but losses, gradients and aux is read. Empty for
  // families that have nothing to show. Throws Error as Evaluate does.
  std::vector<Pictures> Show(const TaskEvaluation& evaluation, Workspace& scratch) const;

  // The meta-loss of a raw loss. Where NormalizerMaximum() has a value, it is what a loss that is
  // not finite becomes.
  virtual double Normalize(std::span<const float> config, double loss) const;
  // The bound that losses are cut to, if there is one.
  std::optional<double> NormalizerMaximum() const { return parts_.normalizer_maximum; }

  // Whether evaluations may be on this device (TaskEvaluation::device): windows there then take
  // losses and gradients from Evaluate. Default: on none. Throws Error if they might, but for
  // something that is not there.
  virtual bool EvaluatesOn(const Device& device) const;

  // TaskParts::flops.
  double flops() const { return parts_.flops; }

  // Rows [first, last) of the data set that make up `split`; {0, 0} for families without a data
  // set.
  std::pair<int64_t, int64_t> ExampleRange(Split split) const {
    return parts_.data.splits[static_cast<size_t>(split)];
  }

  // How many replicas one Evaluate should get for best speed: 1 for native tasks, kAllRows for
  // torch.
  static constexpr int64_t kAllRows = -1;
  // At least 1, or kAllRows.
  virtual int64_t PreferredRows() const { return 1; }

 protected:
  // The parts are those of every task of the family.
  explicit TaskFamily(TaskParts parts) : parts_(std::move(parts)) {}

  // What Evaluate and Show are given, but for where results go.
  void CheckInputs(const TaskEvaluation& evaluation) const;
  // The examples given, or those of the keys, in scratch memory; none without a data set.
  std::span<const int32_t> Examples(const TaskEvaluation& evaluation, Workspace& scratch) const;

 private:
  // Sizes are checked. Default: nothing to draw.
  virtual void DoSample(Key key, std::span<float> config) const;
  // Params are a function of config and key; they may be the same for all, such as zeros.
  virtual void DoInit(std::span<const float> config, Key key, std::span<float> params,
                      std::span<float> model_state) const = 0;
  // Families with a data set always get `examples`: those that were given, or `batch_size` rows of
  // the split. With replacement these are drawn from FoldIn(key, 0); by epochs, step t is batch t
  // mod n of epoch t / n, n = ceil(rows / batch_size), and epoch e is the Permutation of
  // FoldIn(order, e). The others get none. E = examples.size() / rows; losses, gradients and aux
  // are means over a row's examples.
  virtual void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const = 0;
  // Sizes are checked, and there are records. Default: nothing.
  virtual void DoLearn(std::span<const float> config, std::span<const float> records,
                       std::span<float> model_state, Workspace& scratch) const;
  // Examples are given as to DoEvaluate. Default: nothing.
  virtual std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const;

  TaskParts parts_;
};

}  // namespace lopt
