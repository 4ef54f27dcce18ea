// What a process that connects to an elastic learner sends.
#include <memory>

#include "lopt/learner/elastic/elastic_transport.h"
#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/messages.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/given_frames.h"

namespace lopt {
namespace {

constexpr size_t kFrames = 6;

MetaTrainConfig TwoWorkers() {
  return ReadOptions<MetaTrainConfig>(Config::Parse(R"({
    "learned_optimizer": {"type": "LearnableAdam"}, "workers": 2, "gather_checkpoints": true,
    "estimators": [{"type": "TruncatedES", "num_tasks": 1, "trunc_length": 2, "std": 0.1,
                    "task": {"type": "FixedDimQuadraticFamily", "dim": 2},
                    "lengths": {"type": "ConstantTruncationSchedule", "total_length": 4}}]})",
                                                    "the fuzzed experiment"));
}

const Hello kLearnerHello = {.host = "here", .pid = 1, .version = "v", .config = "{}"};

void TakeFrames(std::string_view input) {
  static const Experiment experiment(TwoWorkers(), nullptr);
  MetaTrainerOptions options;
  options.version = kLearnerHello.version;
  ElasticTransport transport(experiment.config, options, {},
                             std::make_unique<GivenFrames>(input, kFrames));
  transport.Know(experiment);
  transport.Send(0, kHello, ToWire(kLearnerHello));
  const int64_t size = experiment.optimizer->theta_layout().size();
  const WorkerWeights weights{.theta = Eigen::VectorXf::Constant(size, 0.5F), .outer = {}};
  for (const MessageKind kind : {kBegin, kWeights}) transport.Send(1, kind, ToWire(weights));
  while (transport.Poll()) {
  }
}

std::vector<std::string> FrameSeeds() {
  WorkerGradient gradient{.worker = 0, .first_window = 0, .windows = 1};
  gradient.gradient.gradient = Eigen::VectorXf::Zero(4);  // of LearnableAdam
  gradient.gradient.estimators.resize(1);
  const std::string join =
      FrameInput(FrameType::kJoin, 0, 0, ToWire(JoinRequest{.version = kLearnerHello.version}));
  Equipment equipment{.hello = kLearnerHello, .threads = 2};
  equipment.hello.device = "cpu";
  const std::string equipped = FrameInput(FrameType::kEquipped, 0, 0, ToWire(equipment));
  return {JoinParts({join, equipped, FrameInput(FrameType::kPulse, 0, 0, {}),
                     FrameInput(FrameType::kAnswer, 1, kReady, {}),
                     FrameInput(FrameType::kAnswer, 1, kGradients, ToWire(std::vector{gradient})),
                     FrameInput(FrameType::kFailed, 0, 0, ToWire(std::string("enough")))}),
          JoinParts({join, FrameInput(FrameType::kAskStop, 0, 0, {}), "", "", "", ""})};
}

const AddFuzzTarget frames_target({"learner_frames", TakeFrames, FrameSeeds});

}  // namespace
}  // namespace lopt
