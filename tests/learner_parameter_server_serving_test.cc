#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/utf8.h"
#include "tests/error_of.h"
#include "tests/mutated_frames.h"
#include "tests/parameter_server_job.h"

namespace lopt {
namespace {

// "w" alone, one number, which SGD of rate 1 steps.
ParameterServerOptions OneNumber(int64_t grads_to_wait) {
  ParameterServerOptions options = SmallModel();
  options.variables = {{.name = "w", .shape = {1}}};
  options.optimizer = SgdConfig(1);
  options.grads_to_wait = grads_to_wait;
  return options;
}

PushRequest PushOf(const ServerRequest& request, int64_t version, float value) {
  return {.request = request,
          .version = version,
          .dense = {{.name = "w", .shape = {1}, .numbers = {value}}}};
}

float ValueOf(ServersByHand& job) {
  return job.server().store().Variable("w", PulledParams::kTraining).As<float>()[0];
}

TEST_CASE("A step adds up in the order of the workers, whoever comes first, and then answers") {
  for (const Carriage carriage : Carriages()) {
    CAPTURE(ToString(carriage));
    const std::array<float, 3> values = {1e16F, -1e16F, 1};  // with the last before another, 0
    std::vector<int> order = {0, 1, 2};
    do {
      ServersByHand job(OneNumber(3), 3, carriage);
      for (const int w : order) {
        CHECK_EQ(job.server().store().version(), 0);
        job.Send(w, kPushGradients, PushOf(job.Begin(w), 0, values[static_cast<size_t>(w)]));
        const bool last = w == order.back();
        for (int other = 0; other < 3; ++other) {
          const auto answer = job.Answer(other);
          REQUIRE_EQ(answer.has_value(), last);
          if (!last) continue;
          CHECK_EQ(answer->error, "");
          CHECK_EQ(answer->version, 1);
          CHECK_FALSE(answer->stale);
        }
      }
      CHECK_EQ(ValueOf(job), -1.0F / 3);
    } while (std::ranges::next_permutation(order).found);
  }
}

TEST_CASE("Gradients that are too old are refused with both numbers and change nothing") {
  for (const Carriage carriage : Carriages()) {
    CAPTURE(ToString(carriage));
    ParameterServerOptions options = OneNumber(1);
    options.staleness = 1;
    ServersByHand job(options, 2, carriage);
    for (const int64_t version : {0, 0}) {  // the second is one behind
      job.Send(0, kPushGradients, PushOf(job.Begin(0), version, 1));
      CHECK_FALSE(job.Answer(0)->stale);
    }
    job.Send(1, kPushGradients, PushOf(job.Begin(1), 0, 100));
    const auto answer = job.Answer(1);
    CHECK(answer->stale);
    CHECK_EQ(answer->error, "");
    CHECK_EQ(answer->version, 2);
    CHECK_EQ(ValueOf(job), -2);
    job.Send(1, kPushGradients, PushOf(job.Begin(1), 1, 1));
    CHECK_FALSE(job.Answer(1)->stale);
    CHECK_EQ(ValueOf(job), -3);
  }
}

TEST_CASE("A pull makes the vectors that it asks for, and no push that is refused makes one") {
  for (const Carriage carriage : Carriages()) {
    CAPTURE(ToString(carriage));
    ServersByHand job(SmallModel(), 1, carriage);
    const auto rows = [&] { return job.server().store().Rows("e"); };
    job.Send(0, kPullVectors,
             VectorRequest{.request = job.Begin(0), .layer = "e", .ids = {5, 5, 8}});
    CHECK_EQ(job.Answer(0)->vectors, std::vector<float>(6, 1));
    CHECK_EQ(rows(), 2);
    job.Send(0, kPullVectors, VectorRequest{.request = job.Begin(0), .layer = "e", .ids = {9, -1}});
    CHECK_EQ(job.Answer(0)->error,
             "parameter server: embedding layer 'e': ids must be in [0, 1000), got -1 at place 1");
    job.Send(0, kPushGradients,
             PushRequest{.request = job.Begin(0),
                         .sparse = {{.layer = "e", .ids = {7}, .rows = {1, 2, 3}}}});
    CHECK_EQ(
        job.Answer(0)->error,
        "parameter server: gradient of embedding layer 'e': 1 ids of width 2 want 2 numbers, got "
        "3");
    CHECK_EQ(rows(), 2);
    // The rows of 1 are added up, and each vector makes one step: 1 - 0.1 (1 + 3).
    job.Send(0, kPushGradients,
             PushRequest{.request = job.Begin(0),
                         .sparse = {{.layer = "e", .ids = {1, 1, 3}, .rows = {1, 2, 3, 4, 5, 6}}}});
    CHECK_EQ(job.Answer(0)->version, 1);
    CHECK_EQ(rows(), 4);
    job.Send(0, kPullVectors, VectorRequest{.request = job.Begin(0), .layer = "e", .ids = {1, 3}});
    CHECK_EQ(job.Answer(0)->vectors, std::vector<float>{0.6F, 0.4F, 0.5F, 0.4F});
  }
}

TEST_CASE("Refusals say what is wrong with a request") {
  ServersByHand job(SmallModel(2), 2);
  const auto refusal = [&](int kind, const auto& request) {
    job.Send(0, kind, request);
    const auto answer = job.Answer(0);
    return answer ? answer->error : "no answer";
  };
  const auto variables = [&](std::vector<std::string> names) {
    return VariableRequest{.request = job.Begin(0), .names = std::move(names)};
  };
  const auto push = [&](VariableNumbers numbers) {
    return PushRequest{.request = job.Begin(0), .dense = {std::move(numbers)}};
  };
  CHECK_EQ(refusal(kPullVariables, variables({"w"})), "");
  CHECK_EQ(refusal(kPullVariables, variables({"v"})),
           "parameter server: there is no variable 'v'; there are: b, w");
  CHECK_EQ(refusal(kPullVariables, variables({"b"})),
           "parameter server: variable 'b' is on server 1, this is server 0 of 2");
  CHECK_EQ(refusal(kPullVariables, variables({"w", "w"})),
           "parameter server: variable 'w' is asked for twice");
  CHECK_EQ(refusal(kPullVariables,
                   VariableRequest{.request = job.Begin(0), .which = static_cast<PulledParams>(2)}),
           "parameter server: there are no params 2; wanted 0, for training, or 1, for evaluation");
  CHECK_EQ(refusal(kPullVectors, VectorRequest{.request = job.Begin(0), .layer = "f"}),
           "parameter server: there is no embedding layer 'f'; there are: e");
  CHECK_EQ(refusal(kPullVectors, VectorRequest{.request = job.Begin(0), .layer = "e", .ids = {3}}),
           "parameter server: embedding layer 'e': id 3 is on server 1, this is server 0 of 2");
  CHECK_EQ(refusal(kPushGradients, push({"w", {3, 2}, std::vector<float>(6)})),
           "parameter server: gradient of variable 'w': wanted [2, 3], got [3, 2] with 6 numbers");
  CHECK_EQ(refusal(kPushGradients, push({"w", {2, 3}, std::vector<float>(5)})),
           "parameter server: gradient of variable 'w': wanted [2, 3], got [2, 3] with 5 numbers");
  CHECK_EQ(
      refusal(kPushGradients,
              push({"w", {2, 3}, std::vector<float>(6, std::numeric_limits<float>::infinity())})),
      "parameter server: gradient of variable 'w': wanted finite numbers, got others");
  CHECK_EQ(refusal(kPushGradients, push({"b", {3}, std::vector<float>(3)})),
           "parameter server: variable 'b' is on server 1, this is server 0 of 2");
  CHECK_EQ(refusal(kPushGradients,
                   PushRequest{.request = job.Begin(0),
                               .sparse = {{.layer = "e", .ids = {2, 3}, .rows = {1, 2, 3, 4}}}}),
           "parameter server: embedding layer 'e': id 3 is on server 1, this is server 0 of 2");
  CHECK_EQ(refusal(kPushGradients, PushRequest{.request = job.Begin(0), .version = 1}),
           "parameter server: the gradients are of version 1, wanted one in [0, 0]");
  CHECK_EQ(refusal(kSaveServer, job.Begin(0)),
           "parameter server: the job has no directory to save to");
  CHECK_EQ(refusal(kServerAnswer, job.Begin(0)),
           "parameter server: there are no requests of kind 105");
  CHECK_EQ(
      refusal(kPullVariables, VariableRequest{.request = {.number = 1, .digest = 1}}).substr(0, 75),
      "parameter server: the request was made with other options than the server's");
  job.SendBytes(0, kPullVectors, {});
  CHECK_EQ(job.Answer(0)->error, "a message from another rank is damaged: it ends in 'number'");
  job.Leave(0);
  CHECK_EQ(refusal(kPullVariables, variables({"w"})),
           "parameter server: worker 0 has left and asks for something");
  CHECK_FALSE(job.server().done());
  job.Leave(1);
  CHECK(job.server().done());
}

TEST_CASE("What another server sends is dropped, so servers never answer each other") {
  const auto transports = MakeLocalTransports(3);
  ParameterServing first(SmallModel(2), transports[0].get(), "", false);
  transports[1]->Send(0, kPullVariables, {});
  CHECK(first.Poll());
  CHECK_FALSE(transports[1]->Poll().has_value());
}

TEST_CASE("A worker has one push on its way, and none waits for workers that have left") {
  for (const Carriage carriage : Carriages()) {
    CAPTURE(ToString(carriage));
    ServersByHand job(OneNumber(3), 3, carriage);
    for (int i = 0; i < 2; ++i) job.Send(0, kPushGradients, PushOf(job.Begin(0), 0, 1));
    CHECK_EQ(job.Answer(0)->error,
             "parameter server: worker 0 has sent gradients that wait for those of others already");
    job.Leave(1);
    const std::string too_few =
        "parameter server: a step waits for 3 gradients, but of 3 workers 2 are left";
    CHECK_EQ(job.Answer(0)->error, too_few);
    job.Send(2, kPushGradients, PushOf(job.Begin(2), 0, 1));
    CHECK_EQ(job.Answer(2)->error, too_few);
    CHECK_EQ(ValueOf(job), 0);
  }
}

// A request of each kind.
std::vector<std::pair<int, std::vector<std::byte>>> Requests(ServersByHand* job,
                                                             std::mt19937_64* random) {
  const auto mutated = [&](auto request) {
    FieldMutator(random).Mutate(&request);
    return ToWire(request);
  };
  PushRequest push = {.request = job->Begin(0),
                      .dense = {{.name = "w", .shape = {2, 3}, .numbers = {1, 2, 3, 4, 5, 6}},
                                {.name = "b", .shape = {3}, .numbers = {1, 2, 3}}},
                      .sparse = {{.layer = "e", .ids = {3, 4}, .rows = {1, 2, 3, 4}}},
                      .loss = 1};
  return {
      {kPullVariables, mutated(VariableRequest{.request = job->Begin(0), .names = {"w", "b"}})},
      {kPullVectors, mutated(VectorRequest{.request = job->Begin(0), .layer = "e", .ids = {3, 4}})},
      {kPushGradients, mutated(push)},
      {kSaveServer, mutated(job->Begin(0))}};
}

TEST_CASE("Requests with a wrong field, cut ones and noise refuse their worker alone") {
  for (const Carriage carriage : Carriages()) {
    CAPTURE(ToString(carriage));
    std::mt19937_64 random(3);
    ServersByHand job(SmallModel(), 2, carriage);
    int refused = 0;
    for (int round = 0; round < 500; ++round) {
      for (auto& [kind, bytes] : Requests(&job, &random)) {
        if (round % 3 == 1) bytes.resize(random() % (bytes.size() + 1));
        if (round % 3 == 2) bytes[random() % bytes.size()] ^= std::byte(1 + random() % 255);
        const NamedArrays before = job.server().store().Save();
        job.SendBytes(0, kind, bytes);
        const auto answer = job.Answer(0);
        REQUIRE(answer.has_value());
        if (answer->error.empty()) continue;
        ++refused;
        CHECK(IsPlainText(answer->error));
        CHECK(job.server().store().Save() == before);
      }
      job.Send(1, kPullVariables, VariableRequest{.request = job.Begin(1), .names = {"b"}});
      CHECK_EQ(job.Answer(1)->error, "");
    }
    CHECK(refused > 1000);
    for (const auto& [name, array] : job.server().store().Save()) {
      if (array.dtype() != DType::kFloat32) continue;
      for (const float value : array.As<float>()) REQUIRE(std::isfinite(value));
    }
  }
}

}  // namespace
}  // namespace lopt
