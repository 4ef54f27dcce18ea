#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/device.h"
#include "lopt/base/eigen.h"
#include "lopt/base/emulated_device.h"
#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/base/progress.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/device_program.h"
#include "lopt/estimators/full_es.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/registry.h"
#include "lopt/estimators/truncated_es.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"
#include "tests/error_of.h"
#include "tests/farthest.h"

namespace lopt {
namespace {

Config Parsed(const std::string& text) { return Config::Parse(text, "test"); }

// A family that has no device functions but evaluates where the emulated device's memory is. With
// `stateful` a model state counts the training evaluations of an episode, and losses grow with it.
class GivesGradients : public TaskFamily {
 public:
  GivesGradients(std::shared_ptr<const TaskFamily> inside, bool stateful)
      : TaskFamily(WithState(inside->parts(), stateful)),
        inside_(std::move(inside)),
        stateful_(stateful) {}

  bool EvaluatesOn(const Device& device) const override {
    return device.kind() == Device::Kind::kEmulated;
  }
  double Normalize(std::span<const float> config, double loss) const override {
    return inside_->Normalize(config, loss);
  }

 private:
  static TaskParts WithState(TaskParts parts, bool stateful) {
    if (stateful) parts.model_state = Layout({{"count", Shape{}}});
    return parts;
  }

  void DoSample(Key key, std::span<float> config) const override { inside_->Sample(key, config); }
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override {
    inside_->Init(config, key, params, {});
    std::ranges::fill(model_state, 0.5f);
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const override {
    TaskEvaluation of_inside = e;
    of_inside.model_state = {};
    of_inside.device = nullptr;
    inside_->Evaluate(of_inside, scratch);
    for (int64_t r = 0; stateful_ && r < e.rows; ++r) {
      e.losses[r] += e.model_state[r];
      if (e.split == Split::kTrain) e.model_state[r] += 1;
    }
  }

  std::shared_ptr<const TaskFamily> inside_;
  bool stateful_;
};

// How a device gets the gradients of a case's task.
enum class Given { kNot, kTask, kStatefulTask };

struct Case {
  std::string task;
  std::string optimizer;
  std::string schedule = R"({"type": "ConstantTruncationSchedule", "total_length": 7})";
  LoptProblemOptions options = {};
  Given given = Given::kNot;
};

std::unique_ptr<LoptProblem> MakeProblem(const Case& of, const Device* device) {
  static const TaskResources resources("");
  std::shared_ptr<const TaskFamily> task = TaskRegistry().Make(Parsed(of.task), resources);
  if (of.given != Given::kNot) {
    task = std::make_shared<GivesGradients>(task, of.given == Given::kStatefulTask);
  }
  return std::make_unique<LoptProblem>(
      std::move(task), OptimizerRegistry().Make(Parsed(of.optimizer)),
      ScheduleRegistry().Make(Parsed(of.schedule)), of.options, device);
}

// Runs two windows of pairs under perturbed thetas.
class TwoWindows {
 public:
  TwoWindows(const Case& of, const Device* device, PerturbationClock clock = {}, int64_t steps = 10)
      : problem_(MakeProblem(of, device)), theta_(problem_->optimizer().InitTheta(KeyFromSeed(3))) {
    keys_ = SplitKey(KeyFromSeed(5), kPairs);
    keys_.insert(keys_.end(), keys_.begin(), keys_.begin() + kPairs);
    const std::vector<Key> pair_keys = SplitKey(KeyFromSeed(4), kPairs);
    std::vector<int64_t> episodes(kPairs, 0);
    for (UnrollTrace& trace : traces_) {
      const Perturbations perturbations =
          clock.block == PerturbationClock::kWindow
              ? Perturbations(pair_keys, 0.05, theta_.size())
              : Perturbations(pair_keys, episodes, clock, 0.05, theta_.size());
      const ThetaRows rows = {
          .theta = AsSpan(theta_), .rows = 2 * kPairs, .perturbations = &perturbations};
      if (state_.size() == 0) state_ = problem_->Start(rows, {}, keys_);
      problem_->Run(
          {.theta = rows, .keys = keys_, .steps = steps, .state = &state_, .trace = &trace});
      for (int64_t n = 0; n < kPairs; ++n) episodes[n] += trace.is_last.col(n).count();
      meta_loss_.resize(keys_.size());
      problem_->MetaLoss(rows, keys_, state_, meta_loss_);
    }
  }

  // The largest relative differences of losses and of numbers of the state; counters are equal.
  void Compare(const TwoWindows& other, double* losses, double* state) const {
    *losses = 0;
    *state = 0;
    for (int window = 0; window < 2; ++window) {
      const UnrollTrace& mine = traces_[window];
      const UnrollTrace& theirs = other.traces_[window];
      CHECK((mine.iteration == theirs.iteration).all());
      CHECK((mine.is_last == theirs.is_last).all());
      CHECK((mine.non_finite == theirs.non_finite).all());
      for (int64_t i = 0; i < mine.loss.size(); ++i) {
        *losses = Farther(*losses, Apart(mine.loss.data()[i], theirs.loss.data()[i]));
      }
      REQUIRE(mine.noted.size() == theirs.noted.size());
      for (size_t i = 0; i < mine.noted.size(); ++i) {
        CHECK(mine.noted[i].name == theirs.noted[i].name);
        CHECK((mine.noted[i].values == theirs.noted[i].values).all());
      }
    }
    for (size_t b = 0; b < meta_loss_.size(); ++b) {
      *losses = Farther(*losses, Apart(meta_loss_[b], other.meta_loss_[b]));
    }
    for (const auto& [name, array] : state_) {
      const Array mine = array.To(HostMemory());
      const Array theirs = other.state_.At(name).To(HostMemory());
      REQUIRE(mine.shape() == theirs.shape());
      if (mine.dtype() != DType::kFloat32) {
        CHECK_MESSAGE(mine == theirs, name);
        continue;
      }
      for (size_t i = 0; i < mine.As<float>().size(); ++i) {
        *state = Farther(*state, Apart(mine.As<float>()[i], theirs.As<float>()[i]));
      }
    }
  }

  // Whether all bits are the same.
  bool operator==(const TwoWindows& other) const {
    return state_ == other.state_ && meta_loss_ == other.meta_loss_ &&
           (traces_[0].loss == other.traces_[0].loss).all() &&
           (traces_[1].loss == other.traces_[1].loss).all();
  }

  // Episodes that ended.
  int64_t ended() const { return traces_[0].is_last.count() + traces_[1].is_last.count(); }

 private:
  static constexpr int64_t kPairs = 2;

  static double Apart(double a, double b) {
    return a == b ? 0 : std::abs(a - b) / std::max({1.0, std::abs(a), std::abs(b)});
  }

  std::unique_ptr<LoptProblem> problem_;
  Eigen::VectorXf theta_;
  std::vector<Key> keys_;
  UnrollState state_;
  UnrollTrace traces_[2];
  std::vector<double> meta_loss_;
};

// The same on the host and on a device, which gives the same bits whatever the order of its
// threads.
void CompareWithHost(const Case& of, const EmulatedDevice& device, double tolerance = 2e-5,
                     PerturbationClock clock = {}) {
  const TwoWindows host(of, nullptr, clock);
  const TwoWindows there(of, &device, clock);
  double losses = 0;
  double state = 0;
  there.Compare(host, &losses, &state);
  CHECK_LT(losses, tolerance);
  CHECK_LT(state, tolerance);
  for (const ThreadOrder order : {ThreadOrder::kBackward, ThreadOrder::kMixed}) {
    CHECK(TwoWindows(of, std::make_unique<EmulatedDevice>(device.shared_memory(), order).get(),
                     clock) == there);
  }
}

std::string MlpLoptOf(const std::string& options) {
  return R"({"type": "MLPLOpt", "step_mult": 0.1, )" + options + "}";
}

TEST_CASE("MLPLOpt on a device makes the steps that it makes on the host") {
  const EmulatedDevice device;
  for (const char* options :
       {R"("hidden_size": 4)", R"("hidden_size": 16)", R"("hidden_size": 17, "hidden_layers": 3)",
        R"("hidden_size": 32)", R"("hidden_size": 33, "hidden_layers": 1)",
        R"("hidden_size": 64, "hidden_layers": 4)",
        R"("hidden_size": 5, "progress_features": true, "schedule": "cosine",
            "relative_step": true, "relative_to_parameter": true)"}) {
    for (const char* task : {R"({"type": "FixedDimQuadraticFamily", "dim": 10})",
                             R"({"type": "NoisyQuadraticFamily", "dim": 33})",
                             R"({"type": "QuadraticTask", "dim": 1})",
                             R"({"type": "LogQuadraticTask", "dim": 300})"}) {
      CAPTURE(options);
      CAPTURE(task);
      CompareWithHost({.task = task, .optimizer = MlpLoptOf(options)}, device);
    }
  }
  // Losses of windows are logarithms, those of fresh batches are not yet (OnScale).
  CompareWithHost({.task = R"({"type": "NoisyQuadraticFamily", "dim": 33})",
                   .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
                   .options = {.meta_loss_log = 1e-6}},
                  device);
}

TEST_CASE("AdafacMLPLOpt on a device makes the steps that it makes on the host") {
  const EmulatedDevice device;
  for (const char* options :
       {R"("exp_mult": 0.5)", R"("hidden_size": 16, "hidden_layers": 3)", R"("hidden_size": 33)",
        R"("initial_rms_decays": [0.9, 0.99, 0.999])"}) {
    for (const char* task : {R"({"type": "FixedDimQuadraticFamily", "dim": 10})",
                             R"({"type": "LogQuadraticTask", "dim": 300})"}) {
      CAPTURE(options);
      CAPTURE(task);
      CompareWithHost({.task = task,
                       .optimizer = std::string(R"({"type": "AdafacMLPLOpt", "step_mult": 0.1, )") +
                                    options + "}"},
                      device);
    }
  }
}

TEST_CASE("Celo2 on a device makes the steps that it makes on the host") {
  const EmulatedDevice device;
  for (const char* optimizer :
       {R"({"type": "Celo2Base", "learning_rate": 0.05, "weight_decay": 0.1})",
        R"({"type": "Celo2", "one_d": "learned", "schedule": "cosine"})",
        R"({"type": "Celo2", "one_d": "adamw"})"}) {
    CAPTURE(optimizer);
    CompareWithHost(
        {.task = R"({"type": "NoisyQuadraticFamily", "dim": 33})", .optimizer = optimizer}, device);
  }
}

TEST_CASE("Replicas that do not fit in the memory of a block are stepped in the device's") {
  const Case of = {.task = R"({"type": "NoisyQuadraticFamily", "dim": 500})",
                   .optimizer = MlpLoptOf(R"("hidden_size": 4)")};
  constexpr size_t kSmall = 14 * 1024;
  const EmulatedDevice small(kSmall);
  REQUIRE_FALSE(DeviceProgram(*MakeProblem(of, nullptr), small).plan().resident);
  REQUIRE(DeviceProgram(*MakeProblem(of, nullptr), EmulatedDevice()).plan().resident);
  CompareWithHost(of, small);
  CHECK(TwoWindows(of, &small) == TwoWindows(of, std::make_unique<EmulatedDevice>().get()));
}

TEST_CASE(
    "The image MLP's replicas stay in the memory of a block, with shorter chunks where it is "
    "less") {
  const Case of = {.task = R"({"type": "ImageMLP", "data": "glyphs"})",
                   .optimizer = MlpLoptOf(R"("hidden_size": 32)")};
  constexpr size_t kA100 = 163 * 1024;
  const EmulatedDevice a100(kA100);
  const EmulatedDevice h100;
  const auto problem = MakeProblem(of, nullptr);
  const DeviceProgram program(*problem, a100);
  CHECK(program.plan().resident);
  CHECK_EQ(std::get<DeviceFunctions<ImageMlpDevice>>(program.task()).args.chunk, 64);
  const DeviceProgram larger(*problem, h100);
  CHECK(larger.plan().resident);
  CHECK_EQ(std::get<DeviceFunctions<ImageMlpDevice>>(larger.task()).args.chunk, 128);
  CompareWithHost(of, a100, 2e-4);
}

TEST_CASE("Every meta-loss, and perturbations of blocks and episodes, are those of the host") {
  const EmulatedDevice device;
  for (const MetaLoss meta_loss :
       {MetaLoss::kBeforeUpdate, MetaLoss::kSameData, MetaLoss::kTrain, MetaLoss::kTest}) {
    for (const int64_t block :
         {PerturbationClock::kWindow, int64_t{3}, PerturbationClock::kEpisode}) {
      CAPTURE(static_cast<int>(meta_loss));
      CAPTURE(block);
      const Case of = {.task = R"({"type": "NoisyQuadraticFamily", "dim": 5, "cov": 0.3})",
                       .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
                       .options = {.meta_loss = meta_loss}};
      CompareWithHost(of, device, 2e-5, {.block = block});
      CHECK_GE(TwoWindows(of, &device, {.block = block}).ended(), 8);
    }
  }
}

TEST_CASE("Image MLPs on a device are trained as on the host") {
  const EmulatedDevice device;
  const Case cases[] = {
      {.task = R"({"type": "ImageMLP"})", .optimizer = MlpLoptOf(R"("hidden_size": 4)")},
      {.task = R"({"type": "ImageMLP", "hidden": [5, 3], "activation": "tanh", "batch_size": 13,
                   "sampling": "epoch"})",
       .optimizer = MlpLoptOf(R"("hidden_size": 32)"),
       .options = {.meta_loss = MetaLoss::kSameData}},
      {.task = R"({"type": "ImageMLP", "image_size": 5, "hidden": [], "batch_size": 33,
                   "sampling": "epoch"})",
       .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
       .options = {.meta_loss = MetaLoss::kTrain}},
      {.task = R"({"type": "ImageMLP", "hidden": [7], "activation": "gelu", "batch_size": 20})",
       .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
       .options = {.meta_loss = MetaLoss::kInnerValid}},
      {.task = R"({"type": "ImageMLP", "hidden": [7], "batch_size": 20})",
       .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
       .options = {.meta_loss = MetaLoss::kInnerValid, .meta_loss_aux = "accuracy"}}};
  for (const Case& of : cases) {
    CAPTURE(of.task);
    CAPTURE(static_cast<int>(of.options.meta_loss));
    CompareWithHost(of, device);
    CHECK_GE(TwoWindows(of, &device).ended(), 8);
  }
  CompareWithHost(cases[3], device, 2e-5, {.block = 3});
}

TEST_CASE("Image MLPs that do not fit in the memory of a block are trained as on the host") {
  const EmulatedDevice device;
  const Case of = {
      .task = R"({"type": "ImageMLP", "hidden": [101, 30], "batch_size": 30, "image_size": 9})",
      .optimizer = MlpLoptOf(R"("hidden_size": 4)")};
  const std::unique_ptr<LoptProblem> problem = MakeProblem(of, nullptr);
  REQUIRE_FALSE(DeviceProgram(*problem, device).plan().resident);
  CompareWithHost(of, device);
}

TEST_CASE(
    "The memory of an A100's or an H100's block holds a replica of the image MLP's training") {
  const Case of = {.task = R"({"type": "ImageMLP"})",
                   .optimizer = MlpLoptOf(R"("hidden_size": 32)")};
  const std::unique_ptr<LoptProblem> problem = MakeProblem(of, nullptr);
  CHECK(DeviceProgram(*problem, EmulatedDevice(227 * 1024)).plan().resident);
}

TEST_CASE("A task that gives its gradients is stepped on a device as on the host") {
  const EmulatedDevice device;
  for (const char* optimizer : {R"({"type": "MLPLOpt", "step_mult": 0.1, "hidden_size": 17})",
                                R"({"type": "AdafacMLPLOpt", "step_mult": 0.1})",
                                R"({"type": "Celo2", "one_d": "learned", "schedule": "cosine"})"}) {
    for (
        const char* task :
        {R"({"type": "NoisyQuadraticFamily", "dim": 33})",
         R"({"type": "ImageConv", "image_size": 4, "channels": [3], "strides": [2], "batch_size": 8,
              "sampling": "epoch", "data": "glyphs"})"}) {
      CAPTURE(optimizer);
      CAPTURE(task);
      const Case of = {.task = task, .optimizer = optimizer, .given = Given::kTask};
      REQUIRE(DeviceProgram(*MakeProblem(of, nullptr), device).GivesGradients());
      CompareWithHost(of, device);
      CHECK_GE(TwoWindows(of, &device).ended(), 8);
    }
  }
  CompareWithHost({.task = R"({"type": "NoisyQuadraticFamily", "dim": 33})",
                   .optimizer = R"({"type": "MLPLOpt", "step_mult": 0.1, "hidden_size": 17})",
                   .options = {.meta_loss_log = 1e-6},
                   .given = Given::kTask},
                  device);
}

TEST_CASE("Given gradients and those of device functions make the same steps") {
  const EmulatedDevice device;
  Case of = {.task = R"({"type": "FixedDimQuadraticFamily", "dim": 300})",
             .optimizer = MlpLoptOf(R"("hidden_size": 4)")};
  const TwoWindows functions(of, &device);
  of.given = Given::kTask;
  double losses = 0;
  double state = 0;
  TwoWindows(of, &device).Compare(functions, &losses, &state);
  CHECK_LT(losses, 2e-6);
  CHECK_LT(state, 2e-6);
}

TEST_CASE("Every meta-loss and every clock are the host's where a task gives its gradients") {
  const EmulatedDevice device;
  for (const MetaLoss meta_loss :
       {MetaLoss::kBeforeUpdate, MetaLoss::kSameData, MetaLoss::kTrain, MetaLoss::kTest}) {
    for (const int64_t block :
         {PerturbationClock::kWindow, int64_t{3}, PerturbationClock::kEpisode}) {
      for (const Given given : {Given::kTask, Given::kStatefulTask}) {
        CAPTURE(static_cast<int>(meta_loss));
        CAPTURE(block);
        CAPTURE(static_cast<int>(given));
        CompareWithHost({.task = R"({"type": "NoisyQuadraticFamily", "dim": 5, "cov": 0.3})",
                         .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
                         .options = {.meta_loss = meta_loss},
                         .given = given},
                        device, 2e-5, {.block = block});
      }
    }
  }
  CompareWithHost({.task = R"({"type": "ImageMLP", "hidden": [7], "batch_size": 20})",
                   .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
                   .options = {.meta_loss = MetaLoss::kInnerValid,
                               .meta_loss_aux = "accuracy",
                               .with_metrics = true},
                   .given = Given::kStatefulTask},
                  device);
}

// A GPU has limits of a kernel that all threads share.
TEST_CASE("Problems of one kernel that need unlike memory run side by side as they do alone") {
  std::vector<const Device*> devices = {FindDevice("emulated")};
  if (FindCudaDevices().count > 0) devices.push_back(FindDevice("cuda"));
  const Case cases[] = {{.task = R"({"type": "QuadraticTask", "dim": 5})",
                         .optimizer = MlpLoptOf(R"("hidden_size": 4, "hidden_layers": 1)")},
                        {.task = R"({"type": "QuadraticTask", "dim": 3000})",
                         .optimizer = MlpLoptOf(R"("hidden_size": 16, "hidden_layers": 4)")}};
  for (const Device* device : devices) {
    CAPTURE(device->name());
    const auto plan = [&](const Case& of) {
      return DeviceProgram(*MakeProblem(of, nullptr), *device).plan();
    };
    // More than a kernel may use of a GPU without asking for it.
    REQUIRE_LT(plan(cases[0]).total * sizeof(float), 48 * 1024);
    REQUIRE_GT(plan(cases[1]).total * sizeof(float), 48 * 1024);
    const TwoWindows alone[] = {TwoWindows(cases[0], device), TwoWindows(cases[1], device)};
    std::vector<std::unique_ptr<TwoWindows>> together(8);
    ThreadPool(4).Run([&] {
      ParallelFor(std::ssize(together), [&](int64_t i) {
        together[i] = std::make_unique<TwoWindows>(cases[i % 2], device);
      });
    });
    for (size_t i = 0; i < together.size(); ++i) {
      double losses = 0;
      double state = 0;
      together[i]->Compare(alone[i % 2], &losses, &state);
      CHECK_EQ(losses, 0);
      CHECK_EQ(state, 0);
    }
  }
}

TEST_CASE("What has no functions for a device, and what does not fit, is an Error") {
  const EmulatedDevice device;
  const auto error = [&](const Case& of, const Device& on) {
    return ErrorOf([&] { MakeProblem(of, &on); });
  };
  const std::string quadratic = R"({"type": "QuadraticTask", "dim": 10})";
  CHECK(error({quadratic, R"({"type": "LearnableAdam"})"}, device).find("optimizer") !=
        std::string::npos);
  CHECK(error({quadratic, MlpLoptOf(R"("hidden_size": 65)")}, device).find("64 hidden units") !=
        std::string::npos);
  CHECK(
      error({R"({"type": "ImageMLP", "norm": "batch"})", MlpLoptOf(R"("hidden_size": 4)")}, device)
          .find("no functions for a device") != std::string::npos);
  CHECK(error({R"({"type": "TableMLP"})", MlpLoptOf(R"("hidden_size": 4)")}, device)
            .find("task lopt::TableMlp has no functions for a device") != std::string::npos);
  CHECK(error({quadratic, MlpLoptOf(R"("hidden_size": 64, "hidden_layers": 8)")},
              EmulatedDevice(48 * 1024))
            .find("bytes of the 49152 that a block has") != std::string::npos);
  const Case noting = {.task = R"({"type": "ImageMLP", "hidden": [4], "batch_size": 8})",
                       .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
                       .options = {.with_metrics = true}};
  CHECK(error(noting, device) ==
        "device: with_metrics is true, and kernels note nothing; choose the device 'cpu', a torch "
        "task, or with_metrics false");
  const std::shared_ptr<const InnerProblem> problem =
      MakeProblem({quadratic, MlpLoptOf(R"("hidden_size": 4)")}, &device);
  const TruncatedOptions orthogonal = {.directions = Directions::kOrthogonal};
  const std::string refused =
      ": directions 'orthogonal' cannot be made on a device; wanted 'independent', or the device "
      "'cpu'";
  CHECK(ErrorOf([&] { TruncatedPES(problem, orthogonal); }) == "TruncatedPES" + refused);
  CHECK(ErrorOf([&] { TruncatedES(problem, {orthogonal}); }) == "TruncatedES" + refused);
  const std::shared_ptr<const InnerProblem> endless =
      MakeProblem({.task = quadratic,
                   .optimizer = MlpLoptOf(R"("hidden_size": 4)"),
                   .schedule = R"({"type": "NeverEndingTruncationSchedule"})"},
                  &device);
  CHECK(ErrorOf([&] {
          FullES(
              endless,
              std::make_shared<ConstantTruncationSchedule>(ConstantTruncationSchedule::Options{}),
              {.directions = Directions::kOrthogonal});
        }) == "FullES" + refused);
  const WorkerWeights weights{.theta = Eigen::VectorXf::Zero(problem->theta_layout().size()),
                              .outer = {}};
  CHECK(ErrorOf([&] {
          AntitheticPairs(*problem, weights, KeyFromSeed(1), 2, .1, Directions::kOrthogonal);
        }) == "antithetic pairs" + refused);
}

TEST_CASE("A state of other replicas or of another problem is an Error that names its array") {
  const EmulatedDevice device;
  const std::string optimizer = MlpLoptOf(R"("hidden_size": 4)");
  const auto of_dim = [&](int dim) {
    return MakeProblem(
        {R"({"type": "QuadraticTask", "dim": )" + std::to_string(dim) + "}", optimizer}, &device);
  };
  const auto problem = of_dim(10);
  const Eigen::VectorXf theta = problem->optimizer().InitTheta(KeyFromSeed(1));
  const std::vector<Key> keys = SplitKey(KeyFromSeed(2), 2);
  const ThetaRows rows = {.theta = AsSpan(theta), .rows = 2};
  UnrollState other = of_dim(11)->Start(rows, {}, keys);
  UnrollTrace trace;
  const auto run = [&] {
    problem->Run({.theta = rows, .keys = keys, .steps = 1, .state = &other, .trace = &trace});
  };
  CHECK(ErrorOf(run).find("'params'") != std::string::npos);
  std::vector<double> losses(2);
  CHECK(ErrorOf([&] { problem->MetaLoss(rows, keys, other, losses); }).find("'params'") !=
        std::string::npos);
  other = problem->Start(rows, {}, keys);
  other.Set("length", Array(DType::kInt32, {2}));
  CHECK(ErrorOf(run).find("'length'") != std::string::npos);
}

TEST_CASE("Each replica whose window the emulated device has run is a sign of progress") {
  const EmulatedDevice device;
  const auto problem = MakeProblem(
      {R"({"type": "QuadraticTask", "dim": 10})", MlpLoptOf(R"("hidden_size": 4)")}, &device);
  const Eigen::VectorXf theta = problem->optimizer().InitTheta(KeyFromSeed(1));
  const std::vector<Key> keys = SplitKey(KeyFromSeed(2), 5);
  const ThetaRows rows = {.theta = AsSpan(theta), .rows = 5};
  UnrollState state = problem->Start(rows, {}, keys);
  UnrollTrace trace;
  const int64_t before = ProgressNoted();
  problem->Run({.theta = rows, .keys = keys, .steps = 3, .state = &state, .trace = &trace});
  CHECK_EQ(ProgressNoted() - before, 5 + 1);
}

TEST_CASE("A device that is not there is an Error that says what there is") {
  CHECK_EQ(FindDevice("cpu"), nullptr);
  CHECK_EQ(FindDevice("emulated")->name(), "emulated");
  CHECK(ErrorOf([] { FindDevice("gpu"); }).find("choose cpu, cuda, cuda:<number") !=
        std::string::npos);
  CHECK(ErrorOf([] { FindDevice("cuda:x"); }).find("is none") != std::string::npos);
  const CudaDevices found = FindCudaDevices();
  if (found.count == 0) {
    CHECK(ErrorOf([] { FindDevice("cuda"); }).find(found.reason) != std::string::npos);
  } else {
    CHECK_EQ(FindDevice("cuda:0")->kind(), Device::Kind::kCuda);
    CHECK(ErrorOf([] { FindDevice("cuda:999"); }).find("the GPUs are cuda:0 to") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace lopt
