#include "lopt/tools/bench/bench_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/environment.h"
#include "lopt/base/file.h"
#include "lopt/base/parallel.h"
#include "lopt/base/print.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/elastic/grpc_connections.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/transport/transport.h"
#include "lopt/lopt/registry.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/job_command.h"

namespace lopt {
namespace {

namespace po = boost::program_options;

constexpr const char* kTransportSynopsis = "lopt bench transport [OPTIONS]";
constexpr const char* kTransportExamples =
    "Updates per second of a job whose workers compute nothing, and the learner's own time for an "
    "update.\n\n"
    "Examples:\n"
    "  lopt bench transport --workers 1000 --updates 100\n"
    "  mpiexec -n 5 lopt bench transport --workers 1000 --gradient-sum tree\n"
    "  lopt bench transport --workers 1000 --updates 100 --threads 2\n"
    "  lopt bench transport --frame 401000 --updates 2000\n";

struct NullOptions {
  int64_t size = 1;
  void Visit(FieldVisitor& v) { v.Field("size", &size, AtLeast(1), "Numbers of theta."); }
};

class NullRule final : public UpdateRule {
 public:
  explicit NullRule(const Layout& params) : UpdateRule(params, Layout()) {}

 private:
  void DoUpdate(const StepInfo&, std::span<const float>, std::span<float>, std::span<float>,
                Workspace&) const override {}
};

// An optimizer that only has weights.
class NullOptimizer final : public LearnedOptimizer {
 public:
  explicit NullOptimizer(const NullOptions& options)
      : LearnedOptimizer(Layout({{"weights", {options.size}}})) {}

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override { Normal(key, theta); }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params, std::span<const float>) const override {
    return std::make_unique<NullRule>(params);
  }
};

// An estimator that computes nothing: its gradient is theta.
class NullEstimator final : public GradientEstimator {
 public:
  explicit NullEstimator(const Layout& theta) : GradientEstimator(theta) {}

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights&, Key) const override { return {}; }
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key, EstimatorState*) const override {
    return {.gradient = weights.theta, .mean_loss = 1, .counts = {.inner_steps = 1}, .metrics = {}};
  }
};

struct NoOptions {
  void Visit(FieldVisitor&) {}
};

void AddNullTypes() {
  OptimizerRegistry().Add<NullOptions>(
      "NullOptimizer", "Weights only.",
      [](const NullOptions& options) { return std::make_shared<NullOptimizer>(options); });
  EstimatorRegistry().Add<NoOptions>(
      "NullEstimator", "Computes nothing.",
      [](const NoOptions&, const std::shared_ptr<const LearnedOptimizer>& optimizer,
         const TaskResources&) {
        return std::make_shared<ConfiguredEstimator>(ConfiguredEstimator{
            .estimator = std::make_shared<NullEstimator>(optimizer->theta_layout()),
            .weight = 1,
            .task = "Null"});
      });
}

MetaTrainConfig NullConfig(int64_t workers, int64_t theta, int64_t updates,
                           const std::string& gradient_sum) {
  return ReadOptions<MetaTrainConfig>(
      Config::Parse(fmt::format(R"({{"learned_optimizer": {{"type": "NullOptimizer", "size": {}}},
                      "theta_opt": {{"type": "Adam"}}, "estimators": [{{"type": "NullEstimator"}}],
                      "gradient_sum": "{}", "workers": {}, "meta_steps": {}}})",
                                theta, gradient_sum, workers, updates),
                    "bench transport"));
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return SecondsBetween(start, SteadyClock::now());
}

// Several copies of a frame are in memory.
constexpr int64_t kMostFrameBytes = int64_t{1} << 30;

// The other ranks of a job wait five seconds for this one when it has ended.
constexpr double kLearnerSeconds = 2.5;

// Seconds for one update at the learner: the gradients out of their messages, their mean, Adam, and
// the weights into a message; one message for each of `ranks`. On the pool around the call.
double LearnerSeconds(const MetaTrainConfig& config, int64_t ranks) {
  const auto optimizer = OptimizerRegistry().Make(config.learned_optimizer);
  const GradientLearner learner(optimizer, config.theta_opt, {.sum = config.gradient_sum});
  LearnerState state = learner.Init(KeyFromSeed(0));
  std::vector<std::vector<std::byte>> messages;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t first = rank * config.workers / ranks;
    std::vector<AggregatedGradient> to_put(
        static_cast<size_t>((rank + 1) * config.workers / ranks - first));
    for (AggregatedGradient& gradient : to_put) {
      gradient = {.gradient = state.theta, .mean_loss = 1};
      gradient.estimators.resize(1);
    }
    if (config.gradient_sum == GradientSum::kTree) AddUpNodes(first, config.workers, to_put);
    std::vector<WorkerGradient> gradients;
    for (int64_t w = first; AggregatedGradient & gradient : to_put) {
      gradients.push_back({.worker = w++, .windows = 1, .gradient = std::move(gradient)});
    }
    messages.push_back(ToWire(gradients));
  }
  double fastest = 1e9;
  const auto begin = std::chrono::steady_clock::now();
  for (int repeat = 0; repeat < 200 && SecondsSince(begin) < kLearnerSeconds; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<AggregatedGradient> to_put;
    for (const auto& message : messages) {
      for (WorkerGradient& gradient : FromWire<std::vector<WorkerGradient>>(message)) {
        to_put.push_back(std::move(gradient.gradient));
      }
    }
    UpdateSummary summary;
    state = learner.Update(std::move(state), to_put, &summary);
    const std::vector<std::byte> weights = ToWire(learner.GetStateForWorker(state));
    fastest = std::min(fastest, SecondsSince(start));
    state.outer_step = 0;
  }
  return fastest;
}

// The next frame, or opening, of these connections.
Connections::Event Await(Connections* connections) {
  for (;;) {
    if (auto event = connections->Poll()) {
      Require(event->what != Connections::Event::What::kClosed, "closed: {}", event->text);
      return *event;
    }
    std::this_thread::yield();
  }
}

// One frame after the other from a learner to a worker and back, each in a thread of its own.
int SendFrames(int64_t bytes, int64_t round_trips) {
  std::future<void> worker_end;  // ends after the learner: that closes what it waits for
  const auto learner = ListenGrpc({.host = "127.0.0.1", .port = 0}, {});
  const std::string where = learner->Description();
  const auto most = static_cast<size_t>(bytes) + 1000;
  worker_end = std::async(std::launch::async, [where, most, round_trips] {
    const auto worker = JoinGrpc(ParseNetAddress(where.substr(where.rfind(' ') + 1)), {});
    worker->Trust(1, most);
    worker->Send(1, {});
    for (int64_t i = 0; i < round_trips; ++i) worker->Send(1, Await(worker.get()).frame);
    while (!worker->Idle()) std::this_thread::yield();
  });
  const int64_t worker = Await(learner.get()).connection;
  learner->Trust(worker, most);
  Await(learner.get());  // it says that it trusts us
  const Frame frame = {.type = FrameType::kTell,
                       .body = MakeBody(std::vector<std::byte>(static_cast<size_t>(bytes)))};
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < round_trips; ++i) {
    learner->Send(worker, frame);
    Await(learner.get());
  }
  const double seconds = SecondsSince(start);
  learner->Close(worker);
  worker_end.get();
  PrintOut("frames of {} bytes: {:.0f} us to and fro, {:.0f} MB/s each way\n", bytes,
           1e6 * seconds / static_cast<double>(round_trips),
           1e-6 * static_cast<double>(bytes * round_trips) / (seconds / 2));
  return 0;
}

po::options_description TransportOptions() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("workers", po::value<int64_t>()->value_name("W"),
      "Logical workers, each of which sends a gradient for each update. Default: one a rank.");
  add("theta", po::value<int64_t>()->value_name("D")->default_value(1762),
      "Numbers of theta and of a gradient.");
  add("updates", po::value<int64_t>()->value_name("N")->default_value(5000),
      "Updates of theta, or with --frame round trips.");
  add("gradient-sum", po::value<std::string>()->value_name("ORDER")->default_value("in_order"),
      "How gradients are added up: in_order or tree (gradient_sum).");
  add("threads", po::value<int>()->value_name("N")->default_value(1),
      "Threads of each rank, also those of the learner's own time.");
  add("out", po::value<std::string>()->value_name("DIR"),
      "Also write all files of a run there, in place of the run that it holds.");
  add("frame", po::value<int64_t>()->value_name("BYTES"),
      "Send frames of this size to and fro over gRPC on the loopback instead.");
  return options;
}

int64_t AtLeastOne(const po::variables_map& values, const char* option) {
  const auto value = values[option].as<int64_t>();
  if (value < 1) {
    throw UsageError(
        fmt::format("bench transport: --{} must be at least 1, got {}", option, value));
  }
  return value;
}

int64_t FrameBytes(const po::variables_map& values) {
  const int64_t bytes = AtLeastOne(values, "frame");
  if (bytes > kMostFrameBytes) {
    throw UsageError(
        fmt::format("bench transport: --frame must be at most {}, got {}", kMostFrameBytes, bytes));
  }
  return bytes;
}

int RunTransportBench(const po::variables_map& values, Transport* transport) {
  const int64_t updates = AtLeastOne(values, "updates");
  if (values.contains("frame")) {
    for (const char* option : {"workers", "theta", "gradient-sum", "threads", "out"}) {
      if (values.contains(option) && !values[option].defaulted()) {
        throw UsageError(fmt::format("bench transport: --{} does not go with --frame", option));
      }
    }
    if (transport->size() > 1) {
      throw UsageError(
          fmt::format("bench transport: --frame wants one process, got {}", transport->size()));
    }
    return SendFrames(FrameBytes(values), updates);
  }
  const int64_t theta = AtLeastOne(values, "theta");
  const int64_t workers =
      values.contains("workers") ? AtLeastOne(values, "workers") : transport->size();
  const int threads = ThreadsOption(values);
  const std::string out_dir = TextOption(values, "out").value_or("");
  AddNullTypes();
  const MetaTrainConfig config =
      NullConfig(workers, theta, updates, values["gradient-sum"].as<std::string>());
  const MetaTrainResult result = RunMetaTraining(config, {.out_dir = out_dir,
                                                          .threads = threads,
                                                          .overwrite = !out_dir.empty(),
                                                          .transport = transport});
  if (transport->rank() == 0) {
    double own_seconds = 0;
    ThreadPool(threads).Run([&] { own_seconds = LearnerSeconds(config, transport->size()); });
    PrintOut("{} ranks, {} workers, theta {}: {:.0f} updates/s; the learner's own time {:.0f} us\n",
             transport->size(), workers, theta, static_cast<double>(updates) / result.seconds,
             1e6 * own_seconds);
    if (!out_dir.empty()) {
      const int64_t bytes = FileSize(out_dir + "/metrics.jsonl").value_or(0);
      PrintOut("  metrics.jsonl: {} bytes per update\n", bytes / updates);
    }
  }
  return kExitDone;
}

}  // namespace

int BenchTransport(const std::vector<std::string>& arguments) {
  return RunAsRank(
      [&] {
        return ParseCommandLine(arguments, TransportOptions(), "", 0, kTransportSynopsis,
                                kTransportExamples);
      },
      RunTransportBench);
}

}  // namespace lopt
