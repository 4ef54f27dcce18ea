// What a process that connects to a parameter server sends.
#include <cmath>
#include <memory>
#include <stdexcept>

#include "lopt/learner/parameter_server/parameter_join.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/given_frames.h"
#include "tests/parameter_server_job.h"

namespace lopt {
namespace {

constexpr size_t kServerFrames = 5;

// The server goes on, whatever comes.
void TakeServerFrames(std::string_view input) {
  const ParameterServerOptions options = SmallModel();
  ParameterServerTransport transport(
      options, 0, {.workers = 2},
      std::make_unique<GivenFrames>(input, kServerFrames, kPullVariables));
  ParameterServing serving(options, &transport, "", false);
  while (serving.Poll()) {
  }
  const Array left = serving.store().Variable("w", PulledParams::kTraining);
  for (const float number : left.As<float>()) {
    if (!std::isfinite(number)) throw std::logic_error("the params are not finite any more");
  }
}

std::vector<std::string> ServerFrameSeeds() {
  ServersByHand job(SmallModel(), 2);
  const ParameterJoin join{.workers = 2, .servers = 1, .digest = job.model().digest()};
  const auto answer = [](int kind, const auto& message) {
    return FrameInput(FrameType::kAnswer, 0, kind - kPullVariables, ToWire(message));
  };
  const PushRequest push{.request = job.Begin(0),
                         .dense = {{.name = "b", .shape = {3}, .numbers = {1, 2, 3}}}};
  return {
      JoinParts({FrameInput(FrameType::kJoin, 0, 0, ToWire(join)),
                 answer(kPullVariables, VariableRequest{.request = job.Begin(0), .names = {"w"}}),
                 answer(kPushGradients, push), FrameInput(FrameType::kPulse, 0, 0, {}),
                 FrameInput(FrameType::kAnswer, 0, kLeaveServer - kPullVariables, {})})};
}

const AddFuzzTarget server_frames_target({"learner_parameter_frames", TakeServerFrames,
                                          ServerFrameSeeds});

}  // namespace
}  // namespace lopt
