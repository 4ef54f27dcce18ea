// The checks of `lopt check` find what is wrong on purpose: each flaw fails the checks that it is
// about, with words that say what it is, and no other.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "count_allocations.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/check/checks.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/lopt/check/optimizer_checks.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/check/task_checks.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/wrappers/task_wrapper.h"
#include "tests/toy_problem.h"

namespace lopt {
namespace {

using checks::CheckOutcome;
using Names = std::vector<std::string>;

checks::Allocations CountAll() { return {.count = allocations, .bytes = 0}; }

// Checks that `subject` fails exactly the checks `failed`, the first with `words` in a message.
template <class Subject>
void CheckFails(const std::vector<checks::Check<Subject>>& all, const Subject& subject,
                const Names& failed, const std::string& words) {
  Names got;
  std::string messages;
  for (const CheckOutcome& outcome : RunChecks(all, subject, CountAll)) {
    if (outcome.findings.passed()) continue;
    got.push_back(outcome.name);
    for (const std::string& message : outcome.findings.messages()) {
      if (outcome.name == failed.at(0)) messages += message + "\n";
      INFO(outcome.name, ": ", message);
      CHECK(std::ranges::find(failed, outcome.name) != failed.end());
    }
  }
  CHECK(got == failed);
  INFO(messages);
  CHECK(messages.find(words) != std::string::npos);
}

// ---- Tasks

enum class TaskFlaw {
  kNone,
  kGradientLonger,
  kGradientOfOneTensor,
  kGradientOfOneElement,
  kGradientOfFaintTensor,
  kGradientOpposite,
  kGradientOfRow,
  kGradientNoisy,
  kGradientNotWritten,
  kGradientAdded,
  kLossNotWritten,
  kAuxNotWritten,
  kWritesBeside,
  kReadsScratch,
  kInitIgnoresKey,
  kInitCounts,
  kSampleIgnoresKey,
  kKeyUsedTwice,
  kInitNotWritten,
  kInitNotFinite,
  kInitHasGenerator,
  kIgnoresExamples,
  kCounts,
  kRowsMixed,
  kKeysByRow,
  kThreads,
  kSwallowsNaN,
  kModelStateLost,
  kModelStateOfEverySplit,
  kAllocates,
  kConfigChanged,
  kParamsChanged,
  kLossWithGradient,
  kNormalizerFalls,
  kThrows,
  // What is rare, but sound.
  kFaintTensor,
  kModelStateOfFewBatches,
  kLossFarFromZero,
};

// Means of drawn points: loss = mean over a batch of |params - target - point|^2 / 22. The model
// state is a running mean, the aux output the loss again.
class Points : public TaskFamily {
 public:
  explicit Points(TaskFlaw flaw)
      : TaskFamily({.config = Layout({{"target", {kSize}}}),
                    .params = Layout({{"w", {12}}, {"b", {10}}}),
                    .model_state = Layout({{"mean", Shape{}}}),
                    .aux = Layout({{"again", Shape{}}}),
                    .data = {.splits = {{0, 70}, {70, 80}, {80, 90}, {90, 100}}, .batch_size = 8},
                    .normalizer_maximum = 10}),
        flaw_(flaw),
        points_(100 * kSize) {
    Normal(KeyFromSeed(1), points_);
  }

  double Normalize(std::span<const float> config, double loss) const override {
    const double normalized = TaskFamily::Normalize(config, loss);
    return flaw_ == TaskFlaw::kNormalizerFalls ? -normalized : normalized;
  }

 private:
  static constexpr int64_t kSize = 22;

  bool Is(TaskFlaw flaw) const { return flaw_ == flaw; }

  // Of an element, in the loss: where 'b' is faint its gradient is too short for the loss's digits.
  double WeightOf(int64_t i) const {
    const bool faint = Is(TaskFlaw::kFaintTensor) || Is(TaskFlaw::kGradientOfFaintTensor);
    return faint && i >= 12 ? 3e-4 : 1;
  }

  void DoSample(Key key, std::span<float> config) const override {
    Normal(Is(TaskFlaw::kSampleIgnoresKey) ? Key{} : key, config);
  }
  void DoInit(std::span<const float>, Key key, std::span<float> params,
              std::span<float> model_state) const override {
    if (Is(TaskFlaw::kInitIgnoresKey) || Is(TaskFlaw::kInitCounts)) key = Key{};
    if (Is(TaskFlaw::kInitCounts)) key = FoldIn(key, static_cast<uint64_t>(++count_));
    if (Is(TaskFlaw::kInitHasGenerator)) key = FoldIn(key, static_cast<uint64_t>(++count_));
    Normal(FoldIn(key, 0), params.first(12));
    const size_t written = Is(TaskFlaw::kInitNotWritten) ? 9 : 10;
    Uniform(FoldIn(key, Is(TaskFlaw::kKeyUsedTwice) ? 0 : 1), params.subspan(12, written));
    if (Is(TaskFlaw::kInitNotFinite)) params[3] = NAN;
    model_state[0] = 0;
  }

  void DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const override {
    if (Is(TaskFlaw::kThrows) && e.split == Split::kTest) {
      throw std::runtime_error("no such file");
    }
    if (Is(TaskFlaw::kAllocates)) std::make_unique<float[]>(100)[5] = 1;
    const auto unwritten = scratch.Take<float>(100);
    const int64_t examples = std::ssize(e.examples) / e.rows;
    for (int64_t row = 0; row < e.rows; ++row) {
      const float* const p = e.params.data() + row * kSize;
      const float* const target = e.config.data() + row * kSize;
      double loss = 0;
      double mean = 0;
      std::array<double, kSize> gradient{};
      for (int64_t b = 0; b < examples; ++b) {
        const int64_t example = Is(TaskFlaw::kIgnoresExamples) ? b : e.examples[row * examples + b];
        for (int64_t i = 0; i < kSize; ++i) {
          const double x = points_[example * kSize + i];
          const double error = p[i] - target[i] - x;
          const double weight = WeightOf(i) / static_cast<double>(kSize * examples);
          loss += weight * error * error;
          gradient[i] += weight * 2 * error;
          mean += x / static_cast<double>(kSize * examples);
        }
      }
      if (Is(TaskFlaw::kLossFarFromZero)) loss += 1e5;
      if (Is(TaskFlaw::kCounts)) loss += 1e-3 * ++count_;
      if (Is(TaskFlaw::kThreads)) loss += 1e-3 * CurrentThreads();
      if (Is(TaskFlaw::kRowsMixed)) {
        for (int64_t other = 0; other < e.rows; ++other) loss += 1e-3 * e.params[other * kSize];
      }
      if (Is(TaskFlaw::kKeysByRow) && !e.keys.empty()) {
        loss += Uniform(FoldIn(e.keys[row], static_cast<uint64_t>(row)));
      }
      if (Is(TaskFlaw::kLossWithGradient) && !e.gradients.empty()) loss += 1e-3;
      if (Is(TaskFlaw::kReadsScratch)) loss += std::isnan(unwritten[7]) ? 1 : 0;
      if (Is(TaskFlaw::kSwallowsNaN) && std::isnan(loss)) loss = 0;
      if (!Is(TaskFlaw::kLossNotWritten) || row != 1) e.losses[row] = static_cast<float>(loss);
      if (Is(TaskFlaw::kWritesBeside)) e.losses.data()[e.rows] = 1;
      if (!e.aux.empty() && !Is(TaskFlaw::kAuxNotWritten)) e.aux[row] = static_cast<float>(loss);
      bool learns = e.split == Split::kTrain && !Is(TaskFlaw::kModelStateLost);
      if (Is(TaskFlaw::kModelStateOfFewBatches)) {
        learns = learns && !e.keys.empty() && Uniform(e.keys[row]) < 0.05F;
      }
      if (learns || Is(TaskFlaw::kModelStateOfEverySplit)) {
        e.model_state[row] += 0.1F * static_cast<float>(mean);
      }
      if (Is(TaskFlaw::kConfigChanged)) const_cast<float*>(target)[2] += 1;
      if (Is(TaskFlaw::kParamsChanged)) const_cast<float*>(p)[2] += 1;
      if (!e.gradients.empty()) WriteGradient(e, row, gradient);
    }
  }

  void WriteGradient(const TaskEvaluation& e, int64_t row,
                     const std::array<double, kSize>& gradient) const {
    float noise = 0;
    if (Is(TaskFlaw::kGradientNoisy) && !e.keys.empty()) noise = Uniform(e.keys[row]) - 0.5F;
    for (int64_t i = 0; i < kSize; ++i) {
      float& to = e.gradients[row * kSize + i];
      auto value = static_cast<float>(gradient[i]);
      if (Is(TaskFlaw::kGradientLonger)) value *= 1.01F;
      if (Is(TaskFlaw::kGradientOfOneTensor) && i >= 12) value *= 0.99F;
      if (Is(TaskFlaw::kGradientOfOneElement) && i == 15) value = 0;
      if (Is(TaskFlaw::kGradientOfFaintTensor) && i >= 12) value = 0;
      if (Is(TaskFlaw::kGradientOpposite)) value = -value;
      if (Is(TaskFlaw::kGradientOfRow)) value *= 1 + 0.1F * static_cast<float>(row);
      if (Is(TaskFlaw::kGradientNotWritten) && i == kSize - 1) continue;
      to = Is(TaskFlaw::kGradientAdded) ? to + value : value + 0.1F * noise;
    }
  }

  TaskFlaw flaw_;
  std::vector<float> points_;
  mutable std::atomic<int> count_ = 0;
};

TEST_CASE("A sound task family passes every check") {
  for (const CheckOutcome& outcome :
       RunChecks<TaskFamily>(checks::TaskChecks(), Points(TaskFlaw::kNone), CountAll)) {
    INFO(outcome.name);
    CHECK(outcome.findings.messages() == Names());
    CHECK(outcome.left_out.empty());
    CHECK((outcome.findings.comparisons() > 0 || outcome.name == "pictures"));
  }
}

std::shared_ptr<const TaskFamily> Made(const std::string& config) {
  return TaskRegistry().Make(Config::Parse(config, "test"), TaskResources(""));
}

// A classifier whose answers, or whose losses where they are wanted, are not what they should be.
enum class AnswerFlaw { kNone, kLabels, kLogits, kLogitsNotWritten, kNoSuchLabel, kLosses };

class BadAnswers : public TaskWrapper {
 public:
  explicit BadAnswers(AnswerFlaw flaw)
      : BadAnswers(Made(R"({"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 16,
                            "data": "glyphs"})"),
                   flaw) {}

 private:
  BadAnswers(const std::shared_ptr<const TaskFamily>& task, AnswerFlaw flaw)
      : TaskWrapper(task, PartsOf(*task)), flaw_(flaw) {}
  void DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const override {
    EvaluateTask(e, scratch);
    const Answers& answers = e.answers;
    if (answers.logits.empty()) return;
    if (flaw_ == AnswerFlaw::kLabels)
      std::ranges::rotate(answers.labels, answers.labels.begin() + 1);
    if (flaw_ == AnswerFlaw::kLogits) answers.logits[7] += 1;
    if (flaw_ == AnswerFlaw::kLogitsNotWritten) answers.logits.back() = NAN;
    if (flaw_ == AnswerFlaw::kNoSuchLabel) answers.labels[3] = 10;
    if (flaw_ == AnswerFlaw::kLosses) e.losses[1] *= 1.000001F;
  }
  AnswerFlaw flaw_;
};

TEST_CASE("Answers of a classifier that are not those of its losses are found") {
  const auto fails = [](AnswerFlaw flaw, const std::string& words) {
    CheckFails<TaskFamily>(checks::TaskChecks(), BadAnswers(flaw), {"answers"}, words);
  };
  fails(AnswerFlaw::kLabels, "its logits and labels ");
  fails(AnswerFlaw::kLogits, "row 0 has the loss ");
  fails(AnswerFlaw::kLogitsNotWritten, "row 1 has the loss ");
  fails(AnswerFlaw::kNoSuchLabel, "10 is no label of 10 classes");
  fails(AnswerFlaw::kLosses, "losses are others where answers are wanted");
  for (const CheckOutcome& outcome :
       RunChecks<TaskFamily>(checks::TaskChecks(), BadAnswers(AnswerFlaw::kNone), CountAll)) {
    INFO(outcome.name);
    CHECK(outcome.findings.messages() == Names());
  }
}

TEST_CASE("Each way in which a task family can be wrong fails the checks that it is about") {
  const auto fails = [](TaskFlaw flaw, const Names& failed, const std::string& words) {
    CAPTURE(static_cast<int>(flaw));
    CheckFails<TaskFamily>(checks::TaskChecks(), Points(flaw), failed, words);
  };
  using F = TaskFlaw;
  fails(F::kGradientLonger, {"gradient"}, "the gradient of all params is 0.98");
  fails(F::kGradientOfOneTensor, {"gradient"}, "the gradient of tensor 'b' is 0.995 % too short");
  fails(F::kGradientOfOneElement, {"gradient"}, "along 'b', element 3 the gradient is 0, ");
  fails(F::kGradientOfOneElement, {"gradient"}, ": it is 100 % too small, 0.");
  fails(F::kGradientOfFaintTensor, {"gradient"}, "the gradient of tensor 'b' is wrong along ");
  fails(F::kGradientOfFaintTensor, {"gradient"},
        " of 12 random directions, such as one where it is 0 and differences of the loss give ");
  fails(F::kGradientOpposite, {"gradient"},
        "the gradient of all params has the opposite sign, in the median of 15 points");
  fails(F::kGradientOfRow, {"pairs"},
        "have different gradients: with equal losses, so they depend on which row it is");
  fails(F::kGradientNoisy, {"gradient"}, "differences of the loss");
  fails(F::kGradientNotWritten, {"outputs"},
        "the gradient of row 0, 'b', element 9 is not written: it is what was in memory before");
  fails(F::kGradientAdded, {"outputs"},
        "the gradient of row 0, 'w', element 0 depends on what was in memory before");
  fails(F::kLossNotWritten, {"outputs"}, "the loss of row 1 is not written");
  fails(F::kAuxNotWritten, {"outputs"}, "the aux output of row 0, 'again', element 0 is not");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they see it first
  fails(F::kWritesBeside, {"outputs"}, "writes beside the losses it was given");
#endif
  fails(F::kReadsScratch, {"outputs"}, "or scratch memory is read that was not written");
  fails(F::kInitCounts, {"draws"}, "it is not a function of the key");
  fails(F::kSampleIgnoresKey, {"draws"}, "Sample does not use its key");
  fails(F::kKeyUsedTwice, {"draws"},
        "params 'w' and 'b' are made from the same random numbers: a key is used twice");
  fails(F::kInitNotWritten, {"draws"}, "params 'b', element 9 is not written");
  fails(F::kInitNotFinite, {"draws"}, "params 'w', element 3 is nan");
  fails(F::kInitHasGenerator, {"draws"}, "it is not a function of the key");
  fails(F::kIgnoresExamples, {"data", "examples"}, "the examples are not those given");
  fails(F::kCounts, {"pure"},
        "the same evaluation at once gives other losses and aux: something is kept in the family");
  fails(F::kRowsMixed, {"rows", "examples"}, "has other losses and aux than alone");
  fails(F::kKeysByRow, {"pairs"},
        "two rows of equal params and equal keys have different losses and aux: they do not see "
        "the same data");
  fails(F::kThreads, {"threads"}, "on a pool of 2 threads it gives other losses and aux");
  fails(F::kSwallowsNaN, {"not finite"}, "params of NaN have the loss 0");
  fails(F::kModelStateLost, {"model state"}, "what is learned is not written back");
  fails(F::kModelStateOfEverySplit, {"model state"},
        "an evaluation of inner_valid with gradients changes it; only train may");
  fails(F::kAllocates, {"allocations"}, "5 evaluations took memory 5 times");
  fails(F::kConfigChanged, {"inputs"}, "changed the config that it was given");
  fails(F::kParamsChanged, {"inputs"}, "changed the params that it was given");
  fails(F::kLossWithGradient, {"losses"}, "losses differ by");
  fails(F::kNormalizerFalls, {"normalizer"}, "it must not fall");
  fails(F::kThrows, {"data", "model state", "examples"}, "it threw: no such file");
}

TEST_CASE("A start that is the same for every key is sound, and said") {
  for (const CheckOutcome& outcome :
       RunChecks<TaskFamily>(checks::TaskChecks(), Points(TaskFlaw::kInitIgnoresKey), CountAll)) {
    INFO(outcome.name);
    CHECK(outcome.findings.messages() == Names());
    CHECK(outcome.left_out.empty());
    if (outcome.name == "draws") {
      CHECK(outcome.findings.measured() == "params are the same for every key");
    }
  }
}

// loss = mean of log cosh(params - targets), from 0, without a data set. The gradient is right but
// for one element, which is `factor` times as large.
class Valley : public TaskFamily {
 public:
  Valley(int64_t size, int64_t element, float factor)
      : TaskFamily({.params = Layout({{"w", {size - 3}}, {"none", {0}}, {"b", {3}}})}),
        targets_(size),
        element_(element),
        factor_(factor) {
    Normal(KeyFromSeed(3), targets_);
  }

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    std::ranges::fill(params, 0.0F);
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    const size_t size = targets_.size();
    for (int64_t row = 0; row < e.rows; ++row) {
      const auto params = e.params.subspan(row * size, size);
      double loss = 0;
      for (size_t i = 0; i < size; ++i) loss += std::log(std::cosh(params[i] - targets_[i]));
      e.losses[row] = static_cast<float>(loss / static_cast<double>(size));
      if (e.gradients.empty()) continue;
      const auto gradient = e.gradients.subspan(row * size, size);
      for (size_t i = 0; i < size; ++i) {
        gradient[i] = std::tanh(params[i] - targets_[i]) / static_cast<float>(size);
      }
      gradient[element_] *= factor_;
    }
  }

  std::vector<float> targets_;
  int64_t element_;
  float factor_;
};

CheckOutcome OutcomeOf(const std::string& name, const TaskFamily& task) {
  const auto outcomes = RunChecks<TaskFamily>(checks::TaskChecks(), task, CountAll);
  return *std::ranges::find(outcomes, name, &CheckOutcome::name);
}

TEST_CASE("What is rare is sound: a tensor that hardly matters, a model state that often stays") {
  for (const TaskFlaw rare : {TaskFlaw::kFaintTensor, TaskFlaw::kModelStateOfFewBatches}) {
    CAPTURE(static_cast<int>(rare));
    for (const CheckOutcome& outcome :
         RunChecks<TaskFamily>(checks::TaskChecks(), Points(rare), CountAll)) {
      INFO(outcome.name);
      CHECK(outcome.findings.messages() == Names());
      CHECK(outcome.left_out.empty());
      if (outcome.name != "gradient") continue;
      CHECK(outcome.findings.measured().starts_with(rare == TaskFlaw::kFaintTensor
                                                        ? "lengths of 1 of 2 tensors within "
                                                        : "lengths within "));
    }
  }
}

TEST_CASE("A loss whose digits are too few for its gradient is named") {
  const Names messages =
      OutcomeOf("gradient", Points(TaskFlaw::kLossFarFromZero)).findings.messages();
  REQUIRE_FALSE(messages.empty());
  CHECK(messages[0].find("; the loss, 10000") != std::string::npos);
  CHECK(messages[0].ends_with(", has too few digits to tell"));
}

TEST_CASE("Tasks that may all be the same are sound, and said") {
  const auto draws = [](const std::string& config) {
    const checks::Findings findings = OutcomeOf("draws", *Made(config)).findings;
    INFO(config);
    CHECK(findings.messages() == Names());
    return findings.measured();
  };
  const std::string same = "config is the same for every key";
  const std::string task = R"({"type": "QuadraticTask", "dim": 3})";
  CHECK(draws(R"({"type": "ReparamWeights", "levels": ["none"], "task": )" + task + "}") == same);
  CHECK(draws(R"({"type": "ReparamWeights", "ranges": [2, 2], "task": )" + task + "}") == same);
  CHECK(draws(R"({"type": "SampledFamily", "tasks": [)" + task + "]}") == same);
  // Seeds 1 and 2 draw the first, seed 3 the second.
  CHECK(draws(R"({"type": "SampledFamily", "weights": [3, 1], "tasks": [)" + task + ", " + task +
              "]}")
            .empty());
}

TEST_CASE("Few rows, and batches that a task draws itself, are sound") {
  const auto outcome = [](const std::string& name, const std::string& config) {
    const CheckOutcome made = OutcomeOf(name, *Made(config));
    INFO(config, ": ", name);
    CHECK(made.findings.messages() == Names());
    CHECK(made.left_out.empty());
    return made.findings.measured();
  };
  const std::string table =
      R"({"type": "TableMLP", "inputs": 3, "hidden": [4], "activation": "tanh", "rows": )";
  const std::string one_row = table + R"(1, "batch_size": 2})";
  const std::string all_rows = table + R"(4, "batch_size": 8, "sampling": "epoch"})";
  const std::string said = "all batches of train are the same rows: other keys were not tried";
  CHECK(outcome("data", one_row) == said);
  CHECK(outcome("data", all_rows) == said);
  CHECK(outcome("data", table + R"(4, "batch_size": 3, "sampling": "epoch"})").empty());
  outcome("examples", one_row);
  CHECK(outcome("data", R"({"type": "ESTask", "pairs": 2, "task": {"type": "SampledFamily",
                            "tasks": [)" +
                            table + R"(50, "batch_size": 8}, )" + table +
                            R"(60, "batch_size": 8}]}})") ==
        "no data set: losses depend on keys, splits were not tried");
}

TEST_CASE("A wrong element of the gradient is found and named, in small tasks and large ones") {
  for (const int64_t size : {8, 300, 700}) {
    for (const float factor : {0.8F, 1.2F, -1.0F}) {
      int found = 0;
      constexpr int kElements = 8;
      for (int64_t n = 0; n < kElements; ++n) {
        const int64_t element = n * (size - 3) / kElements;
        const checks::Findings findings =
            OutcomeOf("gradient", Valley(size, element, factor)).findings;
        const std::string name = fmt::format("along 'w', element {} the", element);
        const bool named = std::ranges::any_of(
            findings.messages(),
            [&](const std::string& message) { return message.find(name) != std::string::npos; });
        found += named ? 1 : 0;
        for (const std::string& message : findings.messages()) {
          INFO(message);
          CHECK(message.find("random") == std::string::npos);
          CHECK(message.find("e+") == std::string::npos);
        }
      }
      CHECK(found >= kElements - 2);
    }
  }
}

TEST_CASE("What was not tried is said: coordinates, keys and splits") {
  const Valley sound(1000, 0, 1);
  const checks::Findings gradient = OutcomeOf("gradient", sound).findings;
  CHECK(gradient.messages() == Names());
  CHECK(gradient.measured().find("slopes along 768 of 1000 coordinates within ") !=
        std::string::npos);
  CHECK(OutcomeOf("data", sound).findings.measured() ==
        "no data set: losses do not depend on keys, splits were not tried");
}

TEST_CASE("Checks that need one that failed are left out, and say for which") {
  for (const CheckOutcome& outcome :
       RunChecks<TaskFamily>(checks::TaskChecks(), Points(TaskFlaw::kCounts), CountAll)) {
    if (outcome.name == "gradient") {
      CHECK(outcome.left_out == "pure");
      CHECK(outcome.findings.comparisons() == 0);
    }
  }
}

// ---- Learned optimizers

enum class RuleFlaw {
  kNone,
  kHiddenMomentum,
  kIgnoresTheta,
  kStateNotWritten,
  kGradientChanged,
  kReadsScratch,
  kZeroGradient,
  kAlignment,
  kWritesBeside,
  kThreads,
  kAllocates,
  kRunLength,
  kThetaHasGenerator,
  kThetaNotFinite,
};

// m <- 0.9 m + g; p <- p - exp(theta) m.
class MomentumRule : public UpdateRule {
 public:
  MomentumRule(const Layout& params, std::span<const float> theta, RuleFlaw flaw)
      : UpdateRule(params, Layout({{"m", {params.size()}}})),
        rate_(Is(flaw, RuleFlaw::kIgnoresTheta) ? 0.01F : std::exp(theta[0])),
        flaw_(flaw),
        hidden_(params.size()) {}

 private:
  static bool Is(RuleFlaw flaw, RuleFlaw other) { return flaw == other; }
  bool Is(RuleFlaw flaw) const { return flaw_ == flaw; }

  void DoInitState(const StepInfo&, std::span<const float>, std::span<float> m) const override {
    std::ranges::fill(Is(RuleFlaw::kStateNotWritten) ? m.subspan(1) : m, 0.0F);
  }
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> m, Workspace& scratch) const override {
    if (Is(RuleFlaw::kAllocates)) std::make_unique<float[]>(100)[5] = 1;
    const auto unwritten = scratch.Take<float>(100);
    float rate = rate_;
    if (Is(RuleFlaw::kReadsScratch) && std::isnan(unwritten[7])) rate *= 2;
    if (Is(RuleFlaw::kAlignment) && reinterpret_cast<uintptr_t>(params.data()) % 16 != 0) rate *= 2;
    if (Is(RuleFlaw::kThreads)) rate *= static_cast<float>(CurrentThreads());
    if (Is(RuleFlaw::kRunLength)) rate /= static_cast<float>(info.num_steps);
    float square = 0;
    for (const float g : gradient) square += g * g;
    if (Is(RuleFlaw::kZeroGradient)) rate /= std::sqrt(square);
    for (size_t i = 0; i < params.size(); ++i) {
      float& momentum = Is(RuleFlaw::kHiddenMomentum) ? hidden_[i] : m[i];
      momentum = 0.9F * momentum + gradient[i];
      params[i] -= rate * momentum;
      if (Is(RuleFlaw::kGradientChanged)) const_cast<float&>(gradient[i]) = 0;
    }
    if (Is(RuleFlaw::kWritesBeside)) params.data()[params.size()] = 0;
  }

  float rate_;
  RuleFlaw flaw_;
  mutable std::vector<float> hidden_;
};

class Momentum : public LearnedOptimizer {
 public:
  explicit Momentum(RuleFlaw flaw) : LearnedOptimizer(Layout({{"log_lr", Shape{}}})), flaw_(flaw) {}

 private:
  void DoInitTheta(Key, std::span<float> theta) const override {
    theta[0] = -5;
    if (flaw_ == RuleFlaw::kThetaHasGenerator) theta[0] -= 0.01F * static_cast<float>(++count_);
    if (flaw_ == RuleFlaw::kThetaNotFinite) theta[0] = INFINITY;
  }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override {
    return std::make_unique<MomentumRule>(params, theta, flaw_);
  }

  RuleFlaw flaw_;
  mutable int count_ = 0;
};

TEST_CASE("A sound learned optimizer passes every check") {
  for (const CheckOutcome& outcome : RunChecks<LearnedOptimizer>(
           checks::OptimizerChecks(), Momentum(RuleFlaw::kNone), CountAll)) {
    INFO(outcome.name);
    CHECK(outcome.findings.messages() == Names());
    CHECK(outcome.findings.comparisons() > 0);
  }
}

TEST_CASE("Each way in which a learned optimizer can be wrong fails the checks that it is about") {
  const auto fails = [](RuleFlaw flaw, const Names& failed, const std::string& words) {
    CAPTURE(static_cast<int>(flaw));
    CheckFails<LearnedOptimizer>(checks::OptimizerChecks(), Momentum(flaw), failed, words);
  };
  using F = RuleFlaw;
  fails(F::kHiddenMomentum, {"resume"}, "something is kept elsewhere than in the state");
  fails(F::kIgnoresTheta, {"theta matters"}, "theta is not used");
  fails(F::kStateNotWritten, {"start"}, "for tensor [] InitState does not write all of the state");
  fails(F::kGradientChanged, {"inputs"}, "Update changes the gradient");
  fails(F::kReadsScratch, {"inputs"}, "it is read before it is written");
  fails(F::kZeroGradient, {"zero gradient"}, "are not finite after gradients of 0");
  fails(F::kAlignment, {"alignment"}, "differ where they lie 1 floats further in memory");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they see it first
  fails(F::kWritesBeside, {"alignment"}, "Update writes beside the params");
#endif
  fails(F::kThreads, {"threads"}, "on a pool of 2 threads it gives other params");
  fails(F::kAllocates, {"allocations"}, "5 updates took memory 5 times");
  fails(F::kRunLength, {"run length"}, "without the length of the run params are not finite");
  fails(F::kThetaHasGenerator, {"theta"}, "it is not a function of the key");
  fails(F::kThetaNotFinite, {"theta"}, "the initial theta is not finite");
}

// ---- Truncation schedules

enum class ScheduleFlaw { kNone, kZero, kCounts, kSaysNever, kLonger, kShorter };

class Schedule : public TruncationSchedule {
 public:
  explicit Schedule(ScheduleFlaw flaw) : flaw_(flaw) {}
  int64_t Length(Key, const OuterState&) const override {
    if (flaw_ == ScheduleFlaw::kCounts) return ++count_;
    return flaw_ == ScheduleFlaw::kZero ? 0 : 5;
  }
  int64_t Longest(int64_t) const override { return flaw_ == ScheduleFlaw::kLonger ? 4 : kNever; }
  int64_t Shortest(int64_t) const override { return flaw_ == ScheduleFlaw::kShorter ? 6 : 0; }
  bool EpisodesEnd() const override { return flaw_ != ScheduleFlaw::kSaysNever; }

 private:
  ScheduleFlaw flaw_;
  mutable int64_t count_ = 0;
};

TEST_CASE("Each way in which a schedule can be wrong fails the checks that it is about") {
  const auto fails = [](ScheduleFlaw flaw, const Names& failed, const std::string& words) {
    CheckFails<TruncationSchedule>(checks::ScheduleChecks(), Schedule(flaw), failed, words);
  };
  fails(ScheduleFlaw::kZero, {"lengths"}, "has length 0, wanted at least 1");
  fails(ScheduleFlaw::kCounts, {"lengths"}, "the same key gives the lengths 1 and 2");
  fails(ScheduleFlaw::kSaysNever, {"ends"}, "EpisodesEnd() is false, but one of the episodes ends");
  fails(ScheduleFlaw::kLonger, {"bounds"}, "an episode has length 5, Longest is 4");
  fails(ScheduleFlaw::kShorter, {"bounds"}, "an episode has length 5, Shortest is 6");
  for (const auto& outcome :
       RunChecks<TruncationSchedule>(checks::ScheduleChecks(), Schedule(ScheduleFlaw::kNone))) {
    CHECK(outcome.findings.passed());
  }
}

// ---- Inner problems

enum class ProblemFlaw {
  kNone,
  kCounts,
  kWindowsDiffer,
  kThreads,
  kPairsDiffer,
  kIgnoresHorizon,
  kStartIgnoresKeys,
  kNotFiniteUncounted,
  kMetaLossCounts,
};

// A sound problem with a flaw.
class WrongProblem : public InnerProblem {
 public:
  WrongProblem(std::shared_ptr<const InnerProblem> sound, ProblemFlaw flaw)
      : InnerProblem(sound->theta_layout()), sound_(std::move(sound)), flaw_(flaw) {}
  bool EpisodesEnd() const override { return sound_->EpisodesEnd(); }

 private:
  UnrollState DoStart(const ThetaRows& theta, const OuterState& outer, std::span<const Key> keys,
                      std::optional<int64_t> horizon) const override {
    if (flaw_ == ProblemFlaw::kIgnoresHorizon) horizon = {};
    std::vector<Key> own(keys.begin(), keys.end());
    if (flaw_ == ProblemFlaw::kStartIgnoresKeys) std::ranges::fill(own, Key{});
    return sound_->Start(theta, outer, own, horizon);
  }
  void DoRun(const Window& window) const override {
    std::vector<Key> keys(window.keys.begin(), window.keys.end());
    for (size_t b = 0; b < keys.size(); ++b) {
      if (flaw_ == ProblemFlaw::kPairsDiffer) keys[b] = FoldIn(keys[b], b);
      if (flaw_ == ProblemFlaw::kWindowsDiffer) {
        keys[b] = FoldIn(keys[b], static_cast<uint64_t>(window.steps));
      }
    }
    Window own = window;
    own.keys = keys;
    sound_->Run(own);
    UnrollTrace& trace = *window.trace;
    if (flaw_ == ProblemFlaw::kCounts) trace.loss += 1e-3 * ++count_;
    if (flaw_ == ProblemFlaw::kThreads) trace.loss += 1e-3 * CurrentThreads();
    if (flaw_ == ProblemFlaw::kNotFiniteUncounted) trace.non_finite = false;
  }
  void DoMetaLoss(const ThetaRows& theta, std::span<const Key> keys, const UnrollState& state,
                  std::span<double> loss) const override {
    sound_->MetaLoss(theta, keys, state, loss);
    if (flaw_ == ProblemFlaw::kMetaLossCounts) loss[0] += 1e-3 * ++count_;
  }

  double OnScale(double loss) const override { return sound_->OnScale(loss); }

  std::shared_ptr<const InnerProblem> sound_;
  ProblemFlaw flaw_;
  mutable std::atomic<int> count_ = 0;
};

// Noisy quadratics trained by SGD.
checks::ProblemUnderCheck Quadratics(ProblemFlaw flaw = ProblemFlaw::kNone) {
  checks::ProblemUnderCheck subject =
      checks::TrainedBy(std::make_shared<LearnableSGD>(LearnableSGDOptions{}),
                        std::make_shared<NoisyQuadraticFamily>(NoisyQuadraticOptions{.dim = 3}));
  if (flaw != ProblemFlaw::kNone) {
    subject.problem = std::make_shared<WrongProblem>(subject.problem, flaw);
  }
  return subject;
}

TEST_CASE("A sound inner problem, of tasks or of something else, passes every check") {
  const checks::ProblemUnderCheck toy{
      .problem = std::make_shared<ToyProblem>(ToyProblem::Dynamics{
          .start = {1},
          .length = 9,
          .advance =
              [](std::span<const double> theta, std::span<double> state, int64_t) {
                state[0] += 0.1 * theta[0];
                return state[0] * state[0];
              }}),
      .theta = {0.5F},
      .other_theta = {-0.5F},
      .random_starts = false};
  checks::ProblemUnderCheck lockstep = Quadratics();
  lockstep.one_by_one = false;
  const std::vector<std::pair<checks::ProblemUnderCheck, std::string>> subjects = {
      {Quadratics(), ""},
      {toy, "all keys start the same"},
      {lockstep, "replicas advance in lockstep: not compared with one alone"}};
  for (const auto& [subject, said] : subjects) {  // of what its maker says does not apply
    for (const CheckOutcome& outcome : RunChecks(checks::ProblemChecks(), subject, CountAll)) {
      INFO(outcome.name);
      CHECK(outcome.findings.messages() == Names());
      CHECK((outcome.findings.comparisons() > 0 || outcome.name == "cost"));
      if (outcome.name == "replicas") CHECK(outcome.findings.measured() == said);
    }
  }
}

TEST_CASE("Each way in which an inner problem can be wrong fails the checks that it is about") {
  const auto fails = [](ProblemFlaw flaw, const Names& failed, const std::string& words) {
    CAPTURE(static_cast<int>(flaw));
    CheckFails(checks::ProblemChecks(), Quadratics(flaw), failed, words);
  };
  using F = ProblemFlaw;
  fails(F::kCounts, {"windows"}, "the same window twice has other losses");
  fails(F::kWindowsDiffer, {"windows"}, "something of the replicas is not in the state");
  fails(F::kThreads, {"windows"}, "on one thread they have the same");
  fails(F::kPairsDiffer, {"pairs"}, "they do not share their draws");
  fails(F::kIgnoresHorizon, {"horizon"}, "under a horizon of 7 step");
  fails(F::kStartIgnoresKeys, {"replicas"}, "Start does not use its keys");
  fails(F::kNotFiniteUncounted, {"not finite"}, "is not counted as one that is not finite");
  fails(F::kMetaLossCounts, {"meta loss"}, "on 8 threads it is another");
}

// ---- Gradient estimators

enum class EstimatorFlaw {
  kNone,
  kCounts,
  kCaches,
  kThreads,
  kIgnoresKey,
  kNotFinite,
  kZero,
  kStepsUncounted,
  kPairsDiffer,
  kTakesAnyState,
  kOutline,
};

class WrongEstimator : public GradientEstimator {
 public:
  WrongEstimator(std::shared_ptr<const GradientEstimator> sound, EstimatorFlaw flaw, double std)
      : GradientEstimator(sound->theta_layout()),
        sound_(std::move(sound)),
        flaw_(flaw),
        std_(static_cast<float>(std)) {}

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights& weights, Key key) const override {
    return sound_->InitWorkerState(weights, key);
  }
  EstimatorState DoOutlineState(const WorkerWeights& weights, Key key) const override {
    EstimatorState state = sound_->OutlineState(weights, key);
    if (flaw_ == EstimatorFlaw::kOutline) state.Set("felt", Array(DType::kFloat64, {2, 1}));
    return state;
  }
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override {
    // A cache that knows the state it left goes on from there.
    count_ = flaw_ == EstimatorFlaw::kCounts || *state == last_ ? count_ + 1 : 0;
    GradientEstimate estimate = SoundEstimate(weights, key, state);
    last_ = *state;
    Eigen::VectorXf& gradient = estimate.gradient;
    if (flaw_ == EstimatorFlaw::kCounts || flaw_ == EstimatorFlaw::kCaches) {
      gradient *= 1 + 0.1F * static_cast<float>(count_);
    }
    if (flaw_ == EstimatorFlaw::kThreads) gradient *= static_cast<float>(CurrentThreads());
    if (flaw_ == EstimatorFlaw::kIgnoresKey) gradient.setConstant(1);
    if (flaw_ == EstimatorFlaw::kNotFinite) gradient(0) = NAN;
    if (flaw_ == EstimatorFlaw::kZero) gradient.setZero();
    if (flaw_ == EstimatorFlaw::kStepsUncounted) estimate.counts = {};
    if (flaw_ == EstimatorFlaw::kPairsDiffer) gradient(0) += Uniform(key) / std_;
    return estimate;
  }

  GradientEstimate SoundEstimate(const WorkerWeights& weights, Key key,
                                 EstimatorState* state) const {
    try {
      return sound_->Estimate(weights, key, state);
    } catch (const Error&) {
      if (flaw_ != EstimatorFlaw::kTakesAnyState) throw;
      *state = InitWorkerState(weights, key);
      return sound_->Estimate(weights, key, state);
    }
  }

  std::shared_ptr<const GradientEstimator> sound_;
  EstimatorFlaw flaw_;
  float std_;
  mutable int count_ = 0;
  mutable EstimatorState last_;
};

checks::EstimatorUnderCheck Estimator(EstimatorFlaw flaw) {
  const checks::ProblemUnderCheck quadratics =
      checks::TrainedBy(std::make_shared<LearnableSGD>(LearnableSGDOptions{}),
                        std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{.dim = 3}));
  const auto make = [problem = quadratics.problem,
                     flaw](double std) -> std::shared_ptr<const GradientEstimator> {
    const auto sound = std::make_shared<TruncatedPES>(
        problem, TruncatedOptions{.num_tasks = 2, .trunc_length = 4, .std = std});
    return std::make_shared<WrongEstimator>(sound, flaw, std);
  };
  const checks::ProblemUnderCheck other =
      checks::TrainedBy(std::make_shared<LearnableSGD>(LearnableSGDOptions{}),
                        std::make_shared<QuadraticTask>(QuadraticOptions{.dim = 4}));
  return {
      .estimator = make(0.01),
      .weights = {.theta = Eigen::Map<const Eigen::VectorXf>(quadratics.theta.data(),
                                                             std::ssize(quadratics.theta)),
                  .outer = {}},
      .inner_steps = 2 * 2 * 4,
      .with_std = make,
      .others = {std::make_shared<TruncatedPES>(other.problem, TruncatedOptions{.num_tasks = 2})}};
}

TEST_CASE("A sound estimator passes every check") {
  for (const CheckOutcome& outcome :
       RunChecks(checks::EstimatorChecks(), Estimator(EstimatorFlaw::kNone))) {
    INFO(outcome.name);
    CHECK(outcome.findings.messages() == Names());
    CHECK(outcome.findings.comparisons() > 0);
  }
}

TEST_CASE("Each way in which an estimator can be wrong fails the checks that it is about") {
  const auto fails = [](EstimatorFlaw flaw, const Names& failed, const std::string& words) {
    CAPTURE(static_cast<int>(flaw));
    CheckFails(checks::EstimatorChecks(), Estimator(flaw), failed, words);
  };
  using F = EstimatorFlaw;
  fails(F::kCounts, {"pure"}, "the same window twice has another gradient");
  fails(F::kCaches, {"resume"},
        "after 2 windows, saved and read back, window 2 has another "
        "gradient than without: something is kept elsewhere");
  fails(F::kThreads, {"threads"}, "on a pool of 2 threads window 0 has another gradient");
  fails(F::kIgnoresKey, {"estimates"}, "the key is not used");
  fails(F::kNotFinite, {"estimates"}, "the gradient is not finite");
  fails(F::kZero, {"estimates"}, "the gradient is 0");
  fails(F::kStepsUncounted, {"estimates"}, "it counts 0 inner steps, wanted 16");
  fails(F::kPairsDiffer, {"pairs"}, "the replicas of a pair do not share their draws");
  fails(F::kTakesAnyState, {"other states"}, "nothing was thrown");
  fails(F::kOutline, {"resume"}, "other arrays, types or shapes than OutlineState says");
}

}  // namespace
}  // namespace lopt
