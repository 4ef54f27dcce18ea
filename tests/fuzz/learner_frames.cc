// What a process that connects to an elastic learner sends.
#include <deque>
#include <memory>
#include <utility>

#include "lopt/learner/elastic/elastic_transport.h"
#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/messages.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

using Event = Connections::Event;

// One connection, whose frames are given.
class GivenFrames final : public Connections {
 public:
  explicit GivenFrames(std::deque<Event> events) : events_(std::move(events)) {}

  std::string Description() const override { return "given"; }
  std::optional<Event> Poll() override {
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void Send(int64_t, Frame) override {}
  void Trust(int64_t, size_t) override {}
  int64_t Arrived(int64_t) override { return 0; }
  void Close(int64_t) override { events_.clear(); }
  bool Idle() const override { return events_.empty(); }
  void NotifyOnEvent(Wakeup*) override {}

 private:
  std::deque<Event> events_;
};

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

// A frame is a part: its type, its lease, the kind of its message, and the message.
void TakeFrames(std::string_view input) {
  std::deque<Event> events = {{.what = Event::What::kOpened, .connection = 1, .peer = "there"}};
  for (const std::string& part : SplitParts(input, kFrames)) {
    if (part.size() < 3) continue;
    const auto body = AsBytes(part).subspan(3);
    events.push_back({.connection = 1,
                      .frame = {.type = static_cast<FrameType>(part[0]),
                                .lease = part[1],
                                .kind = part[2],
                                .body = MakeBody({body.begin(), body.end()})}});
  }
  static const Experiment experiment(TwoWorkers(), nullptr);
  MetaTrainerOptions options;
  options.version = kLearnerHello.version;
  ElasticTransport transport(experiment.config, options, {},
                             std::make_unique<GivenFrames>(std::move(events)));
  transport.Know(experiment);
  transport.Send(0, kHello, ToWire(kLearnerHello));
  const int64_t size = experiment.optimizer->theta_layout().size();
  const WorkerWeights weights{.theta = Eigen::VectorXf::Constant(size, 0.5F), .outer = {}};
  for (const MessageKind kind : {kBegin, kWeights}) transport.Send(1, kind, ToWire(weights));
  while (transport.Poll()) {
  }
}

std::vector<std::string> FrameSeeds() {
  const auto frame = [](FrameType type, int lease, int kind, const std::vector<std::byte>& body) {
    return std::string{static_cast<char>(type), static_cast<char>(lease), static_cast<char>(kind)} +
           AsText(body);
  };
  WorkerGradient gradient{.worker = 0, .first_window = 0, .windows = 1};
  gradient.gradient.gradient = Eigen::VectorXf::Zero(4);  // of LearnableAdam
  gradient.gradient.estimators.resize(1);
  const std::string join =
      frame(FrameType::kJoin, 0, 0, ToWire(JoinRequest{.version = kLearnerHello.version}));
  const std::string equipped =
      frame(FrameType::kEquipped, 0, 0, ToWire(Equipment{.hello = kLearnerHello, .threads = 2}));
  return {JoinParts({join, equipped, frame(FrameType::kPulse, 0, 0, {}),
                     frame(FrameType::kAnswer, 1, kReady, {}),
                     frame(FrameType::kAnswer, 1, kGradients, ToWire(std::vector{gradient})),
                     frame(FrameType::kFailed, 0, 0, ToWire(std::string("enough")))}),
          JoinParts({join, frame(FrameType::kAskStop, 0, 0, {}), "", "", "", ""})};
}

const AddFuzzTarget frames_target({"learner_frames", TakeFrames, FrameSeeds});

}  // namespace
}  // namespace lopt
