#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lopt/base/device.h"
#include "lopt/base/emulated_device.h"
#include "lopt/base/error.h"
#include "lopt/base/wakeup.h"
#include "lopt/estimators/gradient_device.h"
#include "lopt/estimators/window_device.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/rank_device.h"
#include "lopt/learner/job/ranks.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/run/worker_files.h"
#include "tests/error_of.h"
#include "tests/learner_child.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// With estimators of every kind that run windows.
MetaTrainConfig OnDevice(int64_t workers, int64_t meta_steps, const std::string& device) {
  auto config = ReadOptions<MetaTrainConfig>(Config::Parse(R"({
    "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.01},
    "theta_opt": {"type": "SGD", "learning_rate": 1e-4},
    "estimators": [
      {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 10},
       "num_tasks": 3, "trunc_length": 5, "std": 0.1, "random_initial_iteration_offset": 8,
       "lengths": {"type": "LogUniformLengthSchedule", "min_length": 4, "max_length": 20}},
      {"type": "GPESK", "K": 3, "task": {"type": "NoisyQuadraticFamily", "dim": 7},
       "num_tasks": 2, "trunc_length": 5, "std": 0.1, "meta_loss": "train",
       "lengths": {"type": "ConstantTruncationSchedule", "total_length": 12}},
      {"type": "TruncatedES",
       "task": {"type": "ImageMLP", "image_size": 4, "hidden": [4], "batch_size": 8,
                "data": "glyphs"},
       "num_tasks": 2, "trunc_length": 4, "std": 0.1,
       "lengths": {"type": "ConstantTruncationSchedule", "total_length": 6}},
      {"type": "FullES", "task": {"type": "FixedDimQuadraticFamily", "dim": 2},
       "num_tasks": 2, "std": 0.1,
       "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3, "max_length": 8}}
    ],
    "windows_per_update": 2, "seed": 11, "checkpoint_seconds": 0, "checkpoint_steps": 2
  })",
                                                           "an experiment on a device"));
  config.workers = workers;
  config.meta_steps = meta_steps;
  config.device = device;
  return config;
}

MetaTrainResult Train(const MetaTrainConfig& config, const std::string& directory = "",
                      int threads = 1, bool resume = false, bool allow = false) {
  return RunMetaTraining(
      config,
      {.out_dir = directory, .threads = threads, .resume = resume, .allow_isa_change = allow});
}

// The first of this file: children are forked before this process has threads.
TEST_CASE("A run on a device that is killed goes on to the same end") {
  const auto end = [](const std::string& directory, const std::string& kill_at, bool resume) {
    return RunInChild([&] {
      RunMetaTraining(OnDevice(2, 5, "emulated"),
                      {.out_dir = directory, .resume = resume, .on_event = [&](auto event) {
                         if (event == kill_at) ::raise(SIGKILL);
                       }});
    });
  };
  const TempDirectory whole;
  REQUIRE(end(whole.path(), "", false).exit_code == 0);
  const TempDirectory killed;
  CHECK(end(killed.path(), "step:3", false).signal == SIGKILL);
  CHECK(end(killed.path(), "checkpoint:4:learner", true).signal == SIGKILL);
  CHECK(end(killed.path(), "", true).exit_code == 0);
  CHECK(FinalTheta(killed.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(killed.path()) == MetricsLines(whole.path()));
}

TEST_CASE("What ten updates on a device add to theta is what they add on the processor") {
  const MetaTrainConfig config = OnDevice(1, 10, "cpu");
  const Experiment experiment(config);
  const Eigen::VectorXd start =
      experiment.learner.Init(ThetaKey(experiment.run_key)).theta.cast<double>();
  const Eigen::VectorXd host = Train(config).learner.theta.cast<double>() - start;
  const Eigen::VectorXd device =
      Train(OnDevice(1, 10, "emulated")).learner.theta.cast<double>() - start;
  CHECK(host.norm() > 1e-3);
  CHECK_LT((device - host).norm(), 1e-5 * host.norm());
  CHECK(device != host);
}

TEST_CASE("theta has the same bits on a device for any ranks and threads") {
  const MetaTrainConfig config = OnDevice(3, 3, "emulated");
  const Eigen::VectorXf alone = Train(config).learner.theta;
  CHECK(Train(config, "", 2).learner.theta == alone);
  const LocalJob job = RunLocalJob(config, 3);
  CHECK(job.errors == std::vector<std::string>(3));
  CHECK(job.result.learner.theta == alone);
}

TEST_CASE("A run on a device goes on from a checkpoint to the same end, on any ranks") {
  const TempDirectory whole;
  const TempDirectory parts;
  Train(OnDevice(3, 5, "emulated"), whole.path());
  for (const auto& [ranks, steps, gather] :
       {std::tuple{1, 1, false}, std::tuple{3, 3, true}, std::tuple{2, 5, false}}) {
    MetaTrainConfig config = OnDevice(3, steps, "emulated");
    config.gather_checkpoints = gather;
    const LocalJob job = RunLocalJob(config, ranks, {.out_dir = parts.path(), .resume = steps > 1});
    CHECK(job.errors == std::vector<std::string>(static_cast<size_t>(ranks)));
  }
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
}

TEST_CASE("A run on a device trains asynchronously, with a deadline, frozen and evaluated") {
  const TempDirectory directory;
  MetaTrainConfig config = OnDevice(3, 3, "emulated");
  config.mode = Config::Parse(R"({"type": "Async", "batch_size": 2, "staleness": 2})", "test");
  config.frozen = {".*b.*"};
  config.eval_every = 2;
  config.eval_steps = 5;
  config.eval_seeds = 1;
  const LocalJob job = RunLocalJob(config, 2, {.out_dir = directory.path()});
  CHECK(job.errors == std::vector<std::string>(2));
  CHECK(std::filesystem::exists(directory / "theta_best.safetensors"));
  const Experiment experiment(config);
  const Layout& layout = experiment.optimizer->theta_layout();
  const Eigen::VectorXf start = experiment.learner.Init(ThetaKey(experiment.run_key)).theta;
  bool trained = false;
  for (const auto& [name, array] : FinalTheta(directory.path())) {
    const auto& tensor = layout.Find(name);
    const bool same = std::equal(array.As<float>().begin(), array.As<float>().end(),
                                 start.data() + tensor.offset);
    CHECK((same || name.find('b') == std::string::npos));
    trained = trained || !same;
  }
  CHECK(trained);

  config.mode = Config::Parse(R"({"type": "Sync", "deadline_seconds": 1e-9, "quorum": 2})", "test");
  CHECK(RunLocalJob(config, 2).errors == std::vector<std::string>(2));
}

TEST_CASE("A run says which device it was made on, and another one at resume is an error") {
  const TempDirectory directory;
  Train(OnDevice(1, 1, "emulated"), directory.path());
  const RunDirectory run(directory.path());
  CHECK(run.ReadManifest().device == "emulated");
  CHECK(CheckpointStore(run.CheckpointPath(), {}).ReadNewest()->device == "emulated");
  CHECK(Config::Load(directory / "config.json").json().at("device") == "emulated");

  const MetaTrainConfig elsewhere = OnDevice(1, 2, "cpu");
  CHECK(ErrorOf([&] { Train(elsewhere, directory.path(), 1, true); }) ==
        "cannot resume from " + directory.path() +
            "/checkpoints/step-00000001: its windows ran on the device emulated, those of this "
            "run now on cpu, so the result would have other bits; choose the same (device, "
            "--device), or allow the change (--allow-isa-change)");
  CHECK(Train(elsewhere, directory.path(), 1, true, true).updates == 1);
  CHECK_FALSE(run.ReadManifest().device.has_value());
  CHECK(CheckpointStore(run.CheckpointPath(), {}).ReadNewest()->device == "cpu");
}

TEST_CASE("A learner that computes nothing opens no device, and the record has its workers'") {
  const TempDirectory directory;
  const auto run = [&](int64_t steps, bool resume) {
    return RunLocalJob(OnDevice(2, steps, "emulated"), 3, [&](int rank) {
      MetaTrainerOptions options{
          .out_dir = directory.path(), .resume = resume, .learner_only = true};
      if (rank == 0) options.gpus = {0};  // an error for who opens a device that is none of them
      return options;
    });
  };
  for (const int64_t steps : {2, 4}) {
    const LocalJob job = run(steps, steps == 4);
    CHECK(job.errors == std::vector<std::string>(3));
    CHECK(job.result.learner.theta == Train(OnDevice(2, steps, "emulated")).learner.theta);
    const RunDirectory files(directory.path());
    CHECK(files.ReadManifest().device == "emulated");
    CHECK(CheckpointStore(files.CheckpointPath(), {}).ReadNewest()->device == "emulated");
  }
  CHECK(ErrorOf([&] {
          Train(OnDevice(2, 5, "cpu"), directory.path(), 1, true);
        }).find("its windows ran on the device emulated, those of this run now on cpu, ") !=
        std::string::npos);
}

// The error of ranks that meet and say this.
std::string ErrorOfMeeting(const std::vector<Hello>& hellos, bool allow_isa_change) {
  const auto transports = MakeLocalTransports(static_cast<int>(hellos.size()));
  Wakeup wakeup;
  MessageLoop loop(transports[0].get(), &wakeup, {});
  Ranks ranks(OnDevice(1, 1, "cuda"), {.allow_isa_change = allow_isa_change}, transports[0].get(),
              &loop);
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    ranks.Handle({.from = static_cast<int>(rank), .kind = kHello, .bytes = ToWire(hellos[rank])});
  }
  return ErrorOf([&] { ranks.Meet(); });
}

Hello HelloOn(const std::string& device) {
  return {.host = "h", .version = "1", .isa = "avx2", .device = device};
}

// The same of two, of which rank 1 differs from rank 0.
std::string ErrorOfMeeting(const std::function<void(Hello*)>& change, bool allow_isa_change) {
  std::vector<Hello> hellos(2, HelloOn("NVIDIA H100"));
  change(&hellos[1]);
  return ErrorOfMeeting(hellos, allow_isa_change);
}

TEST_CASE("Ranks on different devices or instruction sets are an error unless that is allowed") {
  const auto other_device = [](Hello* hello) { hello->device = "NVIDIA A100"; };
  const auto other_isa = [](Hello* hello) { hello->isa = "sse4"; };
  CHECK(ErrorOfMeeting([](Hello*) {}, false) == "no error");
  CHECK(ErrorOfMeeting(other_device, true) == "no error");
  CHECK(ErrorOfMeeting(other_isa, true) == "no error");
  CHECK(ErrorOfMeeting(other_device, false) ==
        "the windows of rank 1 (h) run on the device NVIDIA A100, those of the run on NVIDIA "
        "H100, so the result would depend on who computes what; give all ranks one model "
        "(--devices), or allow the difference (--allow-isa-change)");
  CHECK(ErrorOfMeeting(other_isa, false) ==
        "rank 1 (h) computes with instruction set sse4, rank 0 (h) with avx2, so the result would "
        "depend on who computes what; pin it (isa, --isa), or allow the difference "
        "(--allow-isa-change)");
}

TEST_CASE("The devices of ranks that compute are compared, with the first of them") {
  const auto error = [](const std::vector<std::string>& devices) {
    std::vector<Hello> hellos;
    for (const std::string& device : devices) hellos.push_back(HelloOn(device));
    return ErrorOfMeeting(hellos, false);
  };
  CHECK(error({"", "NVIDIA H100", "NVIDIA H100"}) == "no error");
  CHECK(error({"NVIDIA H100", "", "NVIDIA H100"}) == "no error");
  CHECK(error({"", "NVIDIA H100", "cpu"})
            .starts_with("the windows of rank 2 (h) run on the device cpu, those of the run on "
                         "NVIDIA H100, "));
}

TEST_CASE("Ranks of different versions of the program are an error, whatever is allowed") {
  for (const bool allowed : {false, true}) {
    CHECK(ErrorOfMeeting([](Hello* hello) { hello->version = "2"; }, allowed) ==
          "rank 1 (h) runs version '2' of the program, rank 0 (h) version '1'");
  }
}

// Of the host; counts what is copied from and to the host.
class CountingMemory : public Memory {
 public:
  std::string_view name() const override { return "counting"; }
  // Bytes since the last call.
  int64_t TakeFromHost() const { return from_host_.exchange(0); }
  int64_t TakeToHost() const { return to_host_.exchange(0); }

 private:
  std::byte* Allocate(size_t size) const override {
    auto* bytes = static_cast<std::byte*>(::operator new (size, std::align_val_t{64}));
    std::memset(bytes, 0, size);
    return bytes;
  }
  void Free(std::byte* bytes, size_t /*size*/) const override {
    ::operator delete (bytes, std::align_val_t{64});
  }
  void Copy(const std::byte* from, std::byte* to, size_t size) const override {
    std::memcpy(to, from, size);
  }
  void CopyFromHost(const std::byte* from, std::byte* to, size_t size) const override {
    from_host_ += static_cast<int64_t>(size);
    Copy(from, to, size);
  }
  void CopyToHost(const std::byte* from, std::byte* to, size_t size) const override {
    to_host_ += static_cast<int64_t>(size);
    Copy(from, to, size);
  }

  mutable std::atomic<int64_t> from_host_ = 0;
  mutable std::atomic<int64_t> to_host_ = 0;
};

class CountingDevice : public EmulatedDevice {
 public:
  const CountingMemory& memory() const override { return memory_; }

 private:
  CountingMemory memory_;
};

TEST_CASE(
    "Between windows theta, keys, configs, stretches, new starts and the losses' weights go to a "
    "device, and losses, the gradient and norms come back") {
  static const CountingDevice device;
  MetaTrainConfig config = OnDevice(1, 1, "cpu");
  config.estimators.resize(1);  // PES: 3 pairs of 10 numbers, windows of 5 steps
  const Experiment experiment(config, &device);
  const LogicalWorker& worker = experiment.workers[0];
  const WorkerWeights weights =
      experiment.learner.GetStateForWorker(experiment.learner.Init(ThetaKey(experiment.run_key)));
  WorkerState state = InitWorkerState(weights, worker.estimators, worker.key);
  const auto run = [&] {
    return GradientWorkerCompute(weights, worker.estimators, 1, worker.key, &state).counts;
  };
  run();  // the state moves to the device
  device.memory().TakeFromHost();
  device.memory().TakeToHost();
  constexpr int64_t kReplicas = 6;
  constexpr int64_t kSteps = 5;
  const int64_t always = weights.theta.size() * 4 + kReplicas / 2 * 8 + (kReplicas + 1) * 8 +
                         kReplicas * int64_t{sizeof(DeviceStretch)};
  const int64_t configs = state.estimators[0].At("unroll/config").shape()[1] * 4;
  constexpr int64_t kPairs = kReplicas / 2;
  const int64_t back = kReplicas * kSteps * 4 + weights.theta.size() * 4 +
                       TilesOf(weights.theta.size()) * 8 + kPairs * 8;
  int64_t all_ended = 0;
  for (int window = 0; window < 5; ++window) {
    const int64_t ended = run().episodes_ended;
    CHECK_EQ(device.memory().TakeToHost(), back);
    // A pair's losses that share one sum are in one piece, or two where an episode ends.
    const int64_t fixed = always + (kPairs + 1) * 8 + kReplicas * configs +
                          ended * (int64_t{sizeof(DeviceStretch)} + configs + 10 * 4);
    const int64_t pieces = device.memory().TakeFromHost() - fixed;
    CHECK_EQ(pieces % int64_t{sizeof(DeviceLosses)}, 0);
    CHECK_GE(pieces, kPairs * int64_t{sizeof(DeviceLosses)});
    CHECK_LE(pieces, 2 * kPairs * int64_t{sizeof(DeviceLosses)});
    all_ended += ended;
  }
  CHECK_GT(all_ended, 0);
  // Saving reads each array once.
  const int64_t held =
      kReplicas * 4 * (10 + state.estimators[0].At("unroll/optimizer_state").shape()[1]) +
      kPairs * weights.theta.size() * 4;
  PackWorkers(0, std::span(&state, 1), [](const WorkerBlock&, const std::vector<std::byte>&) {});
  CHECK_EQ(device.memory().TakeToHost(), held);
  CHECK_EQ(device.memory().TakeFromHost(), 0);
}

TEST_CASE("A device that a config cannot use is an error that says why") {
  const auto error = [](const std::string& estimator, const std::string& optimizer,
                        const std::string& device = "emulated") {
    MetaTrainConfig config = OnDevice(1, 1, device);
    config.learned_optimizer = Config::Parse(optimizer, "test");
    config.estimators = {Config::Parse(estimator, "test")};
    return ErrorOf([&] { Train(config); });
  };
  const std::string of_quadratics = R"({"type": "TruncatedPES", "task": {"type": "QuadraticTask"},
      "lengths": {"type": "ConstantTruncationSchedule"}})";
  const std::string mlp = R"({"type": "MLPLOpt"})";
  CHECK(error(R"({"type": "FullGrad", "task": {"type": "QuadraticTask"},
                  "lengths": {"type": "ConstantTruncationSchedule"}})",
              mlp) ==
        "estimator 'FullGrad' differentiates its windows, which no device does, and the device is "
        "'emulated'; choose the device 'cpu', or an estimator that only runs windows, such as "
        "TruncatedPES");
  CHECK(error(R"({"type": "TruncatedPES", "task": {"type": "ImageConv"},
                  "lengths": {"type": "ConstantTruncationSchedule"}})",
              mlp)
            .starts_with("device: the task lopt::ImageConv has no functions for a device; those "
                         "that have are ImageMLP"));
  CHECK(error(of_quadratics, R"({"type": "LearnableAdam"})")
            .starts_with("device: the optimizer LearnableAdam has no functions for a device; those "
                         "that have are MLPLOpt"));
  CHECK(error(of_quadratics, mlp, "tpu") ==
        "device: 'tpu' is none; choose cpu, cuda, cuda:<number of a GPU> or emulated");
}

TEST_CASE("GPUs are named for the device cuda alone") {
  CHECK(DeviceOfRank("cpu", {}, 0) == nullptr);
  CHECK(DeviceOfRank("emulated", {}, 0)->name() == "emulated");
  CHECK(ErrorOf([&] { DeviceOfRank("emulated", {0}, 0); }) ==
        "GPUs are named (--devices), but the device is 'emulated'; choose 'cuda'");
  // The ranks of a host take them in turn.
  for (const int place : {0, 1, 2}) {
    const std::string gpu = place == 1 ? "cuda:2718" : "cuda:31415";
    CHECK(ErrorOf([&] {
            DeviceOfRank("cuda", {31415, 2718}, place);
          }).starts_with("device: there is no '" + gpu + "'"));
  }
  CHECK(ErrorOf([&] { RunMetaTraining(OnDevice(1, 1, "cpu"), {.gpus = {0}}); }) ==
        "GPUs are named (--devices), but the device is 'cpu'; choose 'cuda'");
}

}  // namespace
}  // namespace lopt
