// TrainedStart against closed forms and a training with another Adam.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/table/table_mlp.h"
#include "lopt/tasks/wrappers/reduced_batchsize.h"
#include "lopt/tasks/wrappers/reparam_weights.h"
#include "lopt/tasks/wrappers/sampled_family.h"
#include "lopt/tasks/wrappers/trained_start.h"
#include "tests/adam_training.h"
#include "tests/csv_digits.h"
#include "tests/error_of.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

using Family = std::shared_ptr<const TaskFamily>;

const Key kOfEarlier = KeyFromSeed(50);

// Two tensors, "a" [2] and "b" [1], which start at 0.5; the loss is slope . params, and is NaN in
// the evaluation `nan_at`, a gradient in the evaluation `nan_gradient_at`.
class Slope : public TaskFamily {
 public:
  explicit Slope(std::vector<float> slope, int64_t nan_at = -1, int64_t nan_gradient_at = -1)
      : TaskFamily({.params = Layout({{"a", {2}}, {"b", {1}}})}),
        slope_(std::move(slope)),
        nan_at_(nan_at),
        nan_gradient_at_(nan_gradient_at) {}

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    std::ranges::fill(params, 0.5F);
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    e.losses[0] = e.steps[0].step == nan_at_
                      ? std::numeric_limits<float>::quiet_NaN()
                      : std::inner_product(slope_.begin(), slope_.end(), e.params.begin(), 0.0F);
    std::ranges::copy(slope_, e.gradients.begin());
    if (e.steps[0].step == nan_gradient_at_) {
      e.gradients[1] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  std::vector<float> slope_;
  int64_t nan_at_;
  int64_t nan_gradient_at_;
};

// Another family with the draws that AdamTraining makes of the key kOfEarlier, whatever keys it is
// given. Notes these, and what it does.
class Noting : public TaskFamily {
 public:
  explicit Noting(Family family) : TaskFamily(family->parts()), family_(std::move(family)) {}

  mutable std::vector<Key> keys = {};      // of evaluations
  mutable std::set<uint32_t> orders = {};  // of their steps
  mutable std::vector<float> losses = {};
  mutable std::vector<float> started = {};  // params
  mutable std::vector<float> model_state = {};

 private:
  void DoSample(Key, std::span<float> config) const override {
    family_->Sample(kOfEarlier, config);
  }
  void DoInit(std::span<const float> config, Key, std::span<float> params,
              std::span<float> state) const override {
    family_->Init(config, FoldIn(kOfEarlier, 0), params, state);
    started.assign(params.begin(), params.end());
    model_state.assign(state.begin(), state.end());
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const override {
    const Key key = FoldIn(FoldIn(kOfEarlier, 1), keys.size());
    CHECK(e.split == Split::kTrain);
    CHECK(e.steps[0].step == std::ssize(keys));
    keys.push_back(e.keys[0]);
    orders.insert(e.steps[0].order.hi);
    TaskEvaluation own = e;
    own.keys = {&key, 1};
    own.examples = {};
    family_->Evaluate(own, scratch);
    losses.push_back(own.losses[0]);
    model_state.assign(own.model_state.begin(), own.model_state.end());
  }

  Family family_;
};

struct Start {
  std::vector<float> params;
  std::vector<float> model_state;
  bool operator==(const Start&) const = default;
};

Start StartOf(const TaskFamily& family, Key key) {
  Start start{std::vector<float>(static_cast<size_t>(family.params_layout().size())),
              std::vector<float>(static_cast<size_t>(family.model_state_layout().size()))};
  std::vector<float> config(static_cast<size_t>(family.config_layout().size()));
  family.Sample(FoldIn(key, 0), config);
  family.Init(config, FoldIn(key, 1), start.params, start.model_state);
  return start;
}

std::vector<float> Part(const std::vector<float>& numbers, int64_t first, int64_t last) {
  return {numbers.begin() + first, numbers.begin() + last};
}

// Of 4 inputs, 6 hidden units in two layers and one output: tensors of 4 * 6, 6, 6 * 6, 6, 6 and 1
// numbers with the default options.
std::shared_ptr<const TableMlp> Table(int64_t seed, TableMlpOptions options = {}) {
  options.table.rows = 200;
  options.table.inputs = 4;
  options.table.table_seed = seed;
  options.batch_size = 16;
  options.hidden = {6, 6};
  options.activation = Activation::kTanh;
  return std::make_shared<TableMlp>(options, GetTable(options.table, TaskResources("")));
}

TEST_CASE("After no steps the earlier task's start is left, and of the fresh tensors the task's") {
  const auto earlier = std::make_shared<Noting>(Table(1));
  const Family task = Table(2);
  const Key key = KeyFromSeed(3);
  const std::vector<float> plain = StartOf(*task, key).params;
  const auto size = std::ssize(plain);
  const int64_t firsts[] = {0, 24, 30, 66, 72, 78, size};  // of the tensors, and the end
  for (const int64_t fresh : {0, 1, 2, 6}) {
    CAPTURE(fresh);
    const int64_t kept = firsts[6 - fresh];
    const TrainedStart family(task, earlier, {.steps = 0, .fresh_tensors = fresh});
    const std::vector<float> params = StartOf(family, key).params;
    CHECK(Part(params, 0, kept) == Part(earlier->started, 0, kept));
    CHECK(Part(params, kept, size) == Part(plain, kept, size));
    CHECK(Part(earlier->started, 0, 24) != Part(plain, 0, 24));
  }
  CHECK(earlier->keys.empty());
}

TEST_CASE("On a constant slope each step of Adam is the learning rate times the slope's sign") {
  const auto task = std::make_shared<Slope>(std::vector<float>{1, 1, 1});
  const auto earlier = std::make_shared<Slope>(std::vector<float>{30, -0.02F, 7});
  for (const int64_t steps : {1, 10}) {
    const TrainedStart family(task, earlier,
                              {.steps = steps, .learning_rate = 0.01, .fresh_tensors = 1});
    const std::vector<float> params = StartOf(family, Key{}).params;
    const double way = 0.01 * static_cast<double>(steps);
    // Epsilon is 5e-7 of the smaller slope; each step is rounded to float32.
    CHECK(params[0] == doctest::Approx(0.5 - way).epsilon(2e-6));
    CHECK(params[1] == doctest::Approx(0.5 + way).epsilon(2e-6));
    CHECK(params[2] == 0.5F);
  }
}

TEST_CASE("The earlier training is that of Adam on its batches, step by step") {
  constexpr int kSteps = 300;
  const auto table = Table(1, {.table = {.complexity = 0.5}});
  const auto earlier = std::make_shared<Noting>(table);
  const TrainedStart family(Table(2), earlier, {.steps = kSteps, .learning_rate = 0.01});
  const std::vector<float> params = StartOf(family, KeyFromSeed(3)).params;

  AdamTraining adam(*table, 0.01, kOfEarlier);
  // The rate is constant over the first half.
  const double mean = adam.Train(0, kSteps, 2 * kSteps);
  const double noted =
      std::accumulate(earlier->losses.begin(), earlier->losses.end(), 0.0) / kSteps;
  CHECK(noted == doctest::Approx(mean).epsilon(1e-4));
  const auto kept = std::ssize(params) - 7;
  for (int64_t i = 0; i < kept; ++i) {
    // Steps of .01 that differ by roundings.
    REQUIRE(std::abs(params[i] - adam.params()[i]) < 1e-4);
  }
  // It learned something.
  const auto late = earlier->losses.end() - 50;
  CHECK(std::accumulate(late, earlier->losses.end(), 0.0F) / 50 < 0.3F);
  CHECK(earlier->losses.front() > 0.6F);
  // Each batch has a key of its own, and all have one order.
  std::set<std::pair<uint32_t, uint32_t>> keys;
  for (const Key& key : earlier->keys) keys.emplace(key.hi, key.lo);
  CHECK(keys.size() == kSteps);
  CHECK(earlier->orders.size() == 1);
}

TEST_CASE("A start keeps the model state of the earlier training") {
  const auto earlier = std::make_shared<Noting>(Table(1, {.norm = Norm::kBatch}));
  const Family task = Table(2, {.norm = Norm::kBatch});
  const TrainedStart family(task, earlier, {.steps = 5});
  const Start start = StartOf(family, KeyFromSeed(3));
  CHECK(start.model_state == earlier->model_state);
  CHECK(start.model_state != StartOf(*task, KeyFromSeed(3)).model_state);
  CHECK(earlier->keys.size() == 5);
}

TEST_CASE("A start is a function of its key, which draws the earlier task too") {
  const auto mix = std::make_shared<SampledFamily>(std::vector<Family>{Table(1), Table(2)},
                                                   SampledFamilyOptions{});
  const TrainedStart family(Table(3), mix, {.steps = 3});
  const Start start = StartOf(family, KeyFromSeed(4));
  CHECK(StartOf(family, KeyFromSeed(5)) != start);
  CHECK(StartOf(family, KeyFromSeed(4)) == start);
  CHECK(StartOf(TrainedStart(Table(3), mix, {.steps = 3}), KeyFromSeed(4)) == start);
}

TEST_CASE("Each start draws an earlier task") {
  const auto mix = std::make_shared<SampledFamily>(
      std::vector<Family>{std::make_shared<Slope>(std::vector<float>{1, 1, 1}),
                          std::make_shared<Slope>(std::vector<float>{-1, -1, -1})},
      SampledFamilyOptions{});
  const TrainedStart family(std::make_shared<Slope>(std::vector<float>{0, 0, 0}), mix,
                            {.steps = 1, .learning_rate = 0.25, .fresh_tensors = 0});
  int lower = 0;
  constexpr int kStarts = 20;
  for (uint64_t seed = 0; seed < kStarts; ++seed) {
    lower += StartOf(family, KeyFromSeed(seed)).params[0] < 0.5F ? 1 : 0;
  }
  CHECK(lower > 0);
  CHECK(lower < kStarts);
}

TEST_CASE("Evaluations are those of the task") {
  const Family task = Table(2);
  const TrainedStart family(task, Table(1), {.steps = 2});
  CHECK(family.flops() == task->flops());
  CHECK(family.parts().data == task->parts().data);
  const std::vector<float> params = StartOf(family, KeyFromSeed(3)).params;
  const auto gradient = [&](const TaskFamily& of) {
    std::vector<float> results(params.size() + 1);
    const Key key = KeyFromSeed(4);
    Workspace scratch;
    of.Evaluate({.params = params,
                 .keys = {&key, 1},
                 .losses = std::span(results).first(1),
                 .gradients = std::span(results).subspan(1)},
                scratch);
    return results;
  };
  CHECK(gradient(family) == gradient(*task));
}

TEST_CASE("The fresh tensors of the earlier task may have other shapes") {
  const auto earlier = std::make_shared<Noting>(Table(1, {.table = {.classes = 3}}));
  const Family task = Table(2);
  const TrainedStart family(task, earlier, {.steps = 0});
  const std::vector<float> params = StartOf(family, KeyFromSeed(3)).params;
  const std::vector<float> plain = StartOf(*task, KeyFromSeed(3)).params;
  const auto kept = std::ssize(params) - 7;
  CHECK(Part(params, 0, kept) == Part(earlier->started, 0, kept));
  CHECK(Part(params, kept, kept + 7) == Part(plain, kept, kept + 7));
}

TEST_CASE("Data of the earlier task alone are those of the run") {
  const TempDirectory directory;
  WriteCsvDigits(directory.path(), 1);
  const TaskResources resources(directory.path());
  const auto config = Config::Parse(
      R"({"type": "TrainedStart", "steps": 2, "task": {"type": "TableMLP", "inputs": 4},
          "earlier": {"type": "ImageMLP", "image_size": 2, "data": "csv"}})",
      "test");
  const Family family = TaskRegistry().Make(config, resources);
  CHECK(resources.data_dir_used());
  CHECK(resources.DataChecksums().starts_with("csv "));
  CHECK(StartOf(*family, Key{}) != StartOf(*family, KeyFromSeed(1)));
}

TEST_CASE("Tasks that cannot follow each other are refused with what differs") {
  const auto error = [](const Family& task, const Family& earlier,
                        const TrainedStartOptions& options = {}) {
    return ErrorOf([&] { TrainedStart(task, earlier, options); });
  };
  CHECK(error(Table(1), Table(2), {.fresh_tensors = 7}) ==
        "TrainedStart: wanted fresh_tensors of at most the 6 tensors of the params, got 7");
  CHECK(error(Table(1), Table(2, {.norm = Norm::kLayer})) ==
        "TrainedStart: the task has 6 tensors, but earlier has 10; wanted as many");
  const Family classes = Table(2, {.table = {.classes = 3}});
  CHECK(error(Table(1), classes) == "no error");
  CHECK(error(Table(1), classes, {.fresh_tensors = 0}) ==
        "TrainedStart: the params that are not fresh must be the same; the task has "
        "'mlp/linear_2/w' [6, 1] where earlier has 'mlp/linear_2/w' [6, 3]");
  CHECK(error(Table(1, {.norm = Norm::kLayer}), Table(2, {.norm = Norm::kBatch})) ==
        "TrainedStart: the params that are not fresh must be the same; the task has "
        "'mlp/layer_norm_0/scale' [6] where earlier has 'mlp/batch_norm_0/scale' [6]");
  const auto mixed = std::make_shared<SampledFamily>(
      std::vector<Family>{Table(2, {.norm = Norm::kBatch})}, SampledFamilyOptions{});
  CHECK(error(Table(1, {.norm = Norm::kBatch}), mixed) ==
        "TrainedStart: wanted an earlier task that is no SampledFamily with a model state, whose "
        "members may each mean something else by it");
  const auto scaled = std::make_shared<ReparamWeights>(Table(1), ReparamWeightsOptions{});
  CHECK(error(scaled, Table(2)) ==
        "TrainedStart: wanted a task without ReparamWeights or DelayedGradients; put these around "
        "TrainedStart");
  CHECK(error(Table(2), scaled) ==
        "TrainedStart: wanted an earlier task without ReparamWeights or DelayedGradients; put "
        "these around TrainedStart");
  // Inside of others too.
  const std::string without =
      "TrainedStart: wanted a task without ReparamWeights or DelayedGradients; put these around "
      "TrainedStart";
  CHECK(error(std::make_shared<ReducedBatchsize>(scaled, ReducedBatchsizeOptions{}), Table(2)) ==
        without);
  CHECK(error(std::make_shared<SampledFamily>(std::vector<Family>{scaled}, SampledFamilyOptions{}),
              Table(2)) == without);
  CHECK(error(Table(1), Table(2), {.steps = -1}) ==
        "TrainedStart: steps must be in [0, 10000000], got -1");
  CHECK(error(Table(1), Table(2), {.learning_rate = 0}) ==
        "TrainedStart: learning_rate must be in [1e-12, 1000000000000], got 0");
}

TEST_CASE("An earlier training that diverges is an error") {
  const auto error = [](int64_t nan_at, int64_t nan_gradient_at) {
    const TrainedStart family(
        std::make_shared<Slope>(std::vector<float>{1, 1, 1}),
        std::make_shared<Slope>(std::vector<float>{0.01F, 0.01F, 0.01F}, nan_at, nan_gradient_at),
        {.steps = 4, .learning_rate = 0.5});
    return ErrorOf([&] { StartOf(family, Key{}); });
  };
  CHECK(error(-1, -1) == "no error");
  CHECK(error(3, -1) ==
        "TrainedStart: the loss of the earlier training is not finite at step 3; its learning_rate "
        "is 0.5, give a smaller one");
  CHECK(error(0, -1) ==
        "TrainedStart: the loss of the earlier training is not finite at step 0; no step was made "
        "yet, so it is that of the earlier task's own start");
  // After the last step no loss sees it.
  CHECK(error(-1, 3) ==
        "TrainedStart: a param of the earlier training is not finite at step 4; its learning_rate "
        "is 0.5, give a smaller one");
}

}  // namespace
}  // namespace lopt
