// What a parameter server is sent: a message of the kind that the first byte says, or its file.
#include <stdexcept>
#include <utility>

#include "lopt/base/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/parameter_server_job.h"

namespace lopt {
namespace {

constexpr char kServerFile = 'f';

// The server refuses what is not good, and answers all but a worker's end.
void ReadServerMessage(int kind, std::span<const std::byte> bytes) {
  ServersByHand job(SmallModel(), 1);
  job.SendBytes(0, kind, {bytes.begin(), bytes.end()});
  const auto answer = job.Answer(0);
  if (!answer && kind != kLeaveServer && kind != kWorkerLost)
    throw std::logic_error("a request has no answer");
  Require(!answer || answer->error.empty(), "refused: {}", answer ? answer->error : "");
}

void ReadServerInput(std::string_view input) {
  if (input.empty()) return;
  const auto bytes = AsBytes(input.substr(1));
  if (input[0] != kServerFile) {
    ReadServerMessage(kPullVariables + input[0] % 8, bytes);
    return;
  }
  ParameterStore store(std::make_shared<ParameterModel>(SmallModel()), 0);
  store.Restore(ParseArrayFile(bytes, "input").arrays);
}

std::vector<std::string> ServerSeeds() {
  ServersByHand job(SmallModel(), 1);
  const auto message = [](int kind, const auto& request) {
    return static_cast<char>(kind - kPullVariables) + AsText(ToWire(request));
  };
  ParameterStore store(std::make_shared<ParameterModel>(SmallModel()), 0);
  store.Vectors("e", std::array<int64_t, 2>{3, 1}, PulledParams::kTraining);
  return {
      message(kPullVariables, VariableRequest{.request = job.Begin(0), .names = {"b", "w"}}),
      message(kPullVectors, VectorRequest{.request = job.Begin(0), .layer = "e", .ids = {1, 1, 3}}),
      message(kPushGradients,
              PushRequest{.request = job.Begin(0),
                          .dense = {{.name = "b", .shape = {3}, .numbers = {1, 2, 3}}},
                          .sparse = {{.layer = "e", .ids = {1, 1}, .rows = {1, 2, 3, 4}}},
                          .loss = 1}),
      message(kLeaveServer, std::string()),
      kServerFile + AsText(SerializeArrayFile({.arrays = store.Save(), .metadata = {}})),
  };
}

const AddFuzzTarget server_target({"learner_parameter_requests", ReadServerInput, ServerSeeds});

}  // namespace
}  // namespace lopt
