#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/parameter_server/parameter_server.h"
#include "lopt/lopt/registry.h"
#include "tests/error_of.h"
#include "tests/parameter_server_job.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

constexpr int64_t kIds = 12;

ParameterServerOptions AdamModel(int64_t servers, int64_t workers) {
  ParameterServerOptions options = SmallModel(servers);
  options.optimizer = Config::Parse(R"({"type": "Adam", "learning_rate": 0.1})", "test");
  options.layers[0].initial.stddev = 1;
  options.grads_to_wait = workers;
  options.staleness = 0;
  return options;
}

// Some numbers, which follow from these.
std::vector<float> SomeNumbers(uint64_t worker, uint64_t step, uint64_t what, size_t size) {
  std::vector<float> numbers(size);
  Normal(FoldIn(FoldIn(FoldIn(KeyFromSeed(11), worker), step), what), numbers);
  return numbers;
}

std::vector<int64_t> SomeIds(uint64_t worker, uint64_t step) {
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < 5; ++i) {
    ids.push_back(Randint(FoldIn(FoldIn(FoldIn(KeyFromSeed(12), worker), step), i), 0, kIds));
  }
  return ids;
}

// A gradient that depends on the params: params + noise.
std::vector<float> Plus(std::span<const float> params, const std::vector<float>& noise) {
  std::vector<float> sums(noise);
  for (size_t i = 0; i < noise.size(); ++i) sums[i] += params[i];
  return sums;
}

// What is left in the end.
using Trained = std::map<std::string, std::vector<float>>;

void Train(ParameterClient& client, int64_t first, int64_t end) {
  const auto worker = static_cast<uint64_t>(client.worker());
  for (int64_t step = first; step < end; ++step) {
    const auto number = static_cast<uint64_t>(step);
    const PulledVariables pulled = client.PullVariables();
    const std::vector<int64_t> ids = SomeIds(worker, number);
    const Array vectors = client.PullEmbeddingVectors("e", ids);
    ParameterGradients gradients;
    gradients.dense.Set("w", Array::Of<float>({2, 3}, Plus(pulled.values.At("w").As<float>(),
                                                           SomeNumbers(worker, number, 0, 6))));
    if (worker == 0) {
      gradients.dense.Set("b", Array::Of<float>({3}, SomeNumbers(worker, number, 1, 3)));
    }
    gradients.sparse = {
        {.layer = "e",
         .ids = ids,
         .rows = Plus(vectors.As<float>(), SomeNumbers(worker, number, 2, 2 * ids.size()))}};
    const PushResult result = client.PushGradients(gradients, pulled.versions);
    Require(result.refused.empty() &&
                result.versions == ParameterVersions(pulled.versions.size(), step + 1),
            "a push at step {}: {}", step, result.refused);
  }
}

Trained WhatIsLeft(ParameterClient& client) {
  Trained trained;
  for (const auto& [name, array] : client.PullVariables().values) {
    trained[name] = {array.As<float>().begin(), array.As<float>().end()};
  }
  std::vector<int64_t> ids(kIds);
  for (int64_t i = 0; i < kIds; ++i) ids[static_cast<size_t>(i)] = i;
  const Array vectors = client.PullEmbeddingVectors("e", ids);
  trained["e"] = {vectors.As<float>().begin(), vectors.As<float>().end()};
  return trained;
}

Trained RunJob(Carriage carriage, const ParameterServerOptions& options,
               const ParameterJobOptions& job, int64_t first, int64_t end) {
  Trained trained;
  RunJobOver(carriage, options, job, [&](ParameterClient& client) {
    Train(client, first, end);
    if (client.worker() == 0) {
      trained = WhatIsLeft(client);
      if (!job.directory.empty()) client.Save();
    }
  });
  return trained;
}

// A tensor with its optimizer.
struct Stepped {
  std::vector<float> params;
  std::vector<float> state = {};
  int64_t updates = 0;
};

// One process that has no servers: it steps with the mean over workers of the same gradients.
class OneProcess {
 public:
  explicit OneProcess(int workers) : workers_(workers) {
    const ParameterServerOptions options = AdamModel(1, 1);
    optimizer_ = OptimizerRegistry().Make(options.optimizer);
    const auto normal = [&](uint64_t domain, const char* name) {
      return FoldIn(FoldIn(options.key, domain), Fnv1a64(name));
    };
    tensors_["w"].params.resize(6);
    Normal(normal(0, "w"), tensors_["w"].params);
    tensors_["b"].params.resize(3);
    for (int64_t id = 0; id < kIds; ++id) {
      std::vector<float>& vector = tensors_[Row(id)].params;
      vector.resize(2);
      Normal(FoldIn(normal(1, "e"), static_cast<uint64_t>(id)), vector);
      for (float& number : vector) number = 1 + 1 * number;
    }
  }

  void Step(uint64_t step) {
    std::map<std::string, std::vector<double>> sums;
    const auto add = [&](const std::string& name, std::span<const float> gradient) {
      std::vector<double>& sum = sums[name];
      sum.resize(gradient.size());
      for (size_t i = 0; i < gradient.size(); ++i) sum[i] += gradient[i];
    };
    for (uint64_t w = 0; w < static_cast<uint64_t>(workers_); ++w) {
      add("w", Plus(tensors_["w"].params, SomeNumbers(w, step, 0, 6)));
      if (w == 0) add("b", SomeNumbers(w, step, 1, 3));
      const std::vector<int64_t> ids = SomeIds(w, step);
      const std::vector<float> noise = SomeNumbers(w, step, 2, 2 * ids.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        add(Row(ids[i]), Plus(tensors_[Row(ids[i])].params, {noise[2 * i], noise[2 * i + 1]}));
      }
    }
    for (auto& [name, sum] : sums) Update(&tensors_[name], &sum);
  }

  Trained WhatIsLeft() const {
    Trained trained = {{"w", tensors_.at("w").params}, {"b", tensors_.at("b").params}};
    for (int64_t id = 0; id < kIds; ++id) {
      const std::vector<float>& vector = tensors_.at(Row(id)).params;
      trained["e"].insert(trained["e"].end(), vector.begin(), vector.end());
    }
    return trained;
  }

 private:
  static std::string Row(int64_t id) { return "e/" + std::to_string(id); }
  void Update(Stepped* tensor, std::vector<double>* sum) {
    for (double& number : *sum) number /= workers_;
    const auto rule = optimizer_->Bind(Layout({{"x", {std::ssize(tensor->params)}}}),
                                       AsSpan(optimizer_->InitTheta(Key{})));
    tensor->state.resize(static_cast<size_t>(rule->state_layout().size()));
    Workspace scratch;
    rule->UpdateInFloat64({.step = tensor->updates++}, *sum, tensor->params, tensor->state,
                          scratch);
  }

  int workers_;
  std::shared_ptr<const LearnedOptimizer> optimizer_;
  std::map<std::string, Stepped> tensors_;
};

TEST_CASE("3 workers with 1, 2 and 5 servers have the bits of one process that averages") {
  OneProcess alone(3);
  for (uint64_t step = 0; step < 20; ++step) alone.Step(step);
  const Trained wanted = alone.WhatIsLeft();
  for (const Carriage carriage : Carriages()) {
    for (const int64_t servers : {1, 2, 5}) {
      CAPTURE(ToString(carriage));
      CAPTURE(servers);
      CHECK(RunJob(carriage, AdamModel(servers, 3), {.workers = 3}, 0, 20) == wanted);
    }
  }
}

TEST_CASE("A job that was saved, ended and resumed has the bits of one that was not") {
  for (const Carriage carriage : Carriages()) {
    CAPTURE(ToString(carriage));
    const TempDirectory directory;
    const ParameterJobOptions saving = {.workers = 2, .directory = directory.path() + "/servers"};
    const ParameterServerOptions options = AdamModel(2, 2);
    RunJob(carriage, options, saving, 0, 6);
    CHECK(Exists(saving.directory + "/server-1-of-2.safetensors"));
    CHECK_EQ(
        ErrorOf([&] { RunJob(carriage, options, saving, 6, 12); }),
        "parameter server: " + saving.directory +
            "/server-0-of-2.safetensors is there already; resume, or choose another directory");
    ParameterJobOptions resuming = saving;
    resuming.resume = true;
    CHECK(RunJob(carriage, options, resuming, 6, 12) ==
          RunJob(Carriage::kLocal, options, {.workers = 2}, 0, 12));
    CHECK_EQ(ErrorOf([&] { RunJob(carriage, AdamModel(3, 2), resuming, 12, 13); }),
             "parameter server: cannot resume: there is no " + saving.directory +
                 "/server-0-of-3.safetensors");
  }
}

TEST_CASE("A worker is told that its gradients are too old, by which servers and how much") {
  ParameterServerOptions options = SmallModel(2);
  options.staleness = 1;
  const auto work = [](ParameterClient& client) {
    ParameterVersions versions = client.PullVariables(std::vector<std::string>()).versions;
    CHECK_EQ(versions, ParameterVersions{0, 0});
    for (int i = 0; i < 2; ++i) CHECK_EQ(client.PushGradients({}, versions).refused, "");
    versions[1] = 2;
    const PushResult result = client.PushGradients({}, versions);
    CHECK_EQ(result.refused,
             "server 0 is at version 2 and refuses gradients of version 0, more than 1 behind");
    CHECK_EQ(result.versions, ParameterVersions{2, 3});
  };
  for (const Carriage carriage : Carriages()) RunJobOver(carriage, options, {}, work);
}

TEST_CASE("Errors of a client name the layer or variable, what was wanted and what was got") {
  RunParameterJob(SmallModel(2), {}, [](ParameterClient& client) {
    const auto pull = [&](const std::string& layer, std::vector<int64_t> ids) {
      return ErrorOf([&] { client.PullEmbeddingVectors(layer, ids); });
    };
    CHECK_EQ(pull("f", {1}), "parameter server: there is no embedding layer 'f'; there are: e");
    CHECK_EQ(pull("e", {1, -1}),
             "parameter server: embedding layer 'e': ids must be in [0, 1000), got -1 at place 1");
    CHECK_EQ(
        pull("e", {1000}),
        "parameter server: embedding layer 'e': ids must be in [0, 1000), got 1000 at place 0");
    CHECK_EQ(pull("e", {}), "no error");
    CHECK_EQ(ErrorOf([&] {
               client.PullVariables({"w", "v"});
             }),
             "parameter server: there is no variable 'v'; there are: b, w");
    ParameterGradients gradients;
    gradients.dense.Set("w", Array(DType::kFloat32, {3, 2}));
    CHECK_EQ(ErrorOf([&] {
               client.PushGradients(gradients, {0, 0});
             }),
             "parameter server: gradient of variable 'w': wanted F32 [2, 3], got F32 [3, 2]");
    gradients = {.sparse = {{.layer = "e", .ids = {1, 2}, .rows = {1, 2, 3}}}};
    CHECK_EQ(ErrorOf([&] {
               client.PushGradients(gradients, {0, 0});
             }),
             "parameter server: gradient of embedding layer 'e': 2 ids of width 2 want 4 numbers, "
             "got 3");
    CHECK_EQ(ErrorOf([&] { client.PushGradients({}, {0}); }),
             "parameter server: gradients want the versions of 2 servers, as they were pulled, got "
             "1");
    CHECK_EQ(ErrorOf([&] { client.Save(); }),
             "server 0: parameter server: the job has no directory to save to; server 1: parameter "
             "server: the job has no directory to save to");
    client.Leave();
    CHECK_EQ(ErrorOf([&] { client.PullVariables(); }),
             "parameter server: worker 0 has left and asks for something");
  });
}

TEST_CASE("Wrong answers of a server are errors that name it, and what a worker sends is dropped") {
  const auto error_of = [](int from, int kind, std::vector<std::byte> bytes) {
    const auto transports = MakeLocalTransports(3);
    ParameterClient client(SmallModel(1), transports[1].get());
    transports[static_cast<size_t>(from)]->Send(1, kind, std::move(bytes));
    transports[0]->Send(1, kServerFailed, ToWire(std::string("it \x1b ended")));
    return ErrorOf([&] { client.PullVariables({"w"}); });
  };
  const auto answer = [](int64_t number, std::vector<VariableNumbers> variables) {
    return ToWire(ServerAnswer{.number = number, .variables = std::move(variables)});
  };
  const std::string ended = "server 0 has failed: it \\x1b ended";
  CHECK_EQ(error_of(2, kServerAnswer, answer(1, {})), ended);
  CHECK_EQ(error_of(0, kPullVariables, answer(1, {})),
           "server 0 has sent a message of kind 100, wanted 105");
  CHECK_EQ(error_of(0, kServerAnswer, answer(2, {})),
           "server 0 has answered request 2, which does not wait for an answer");
  CHECK_EQ(error_of(0, kServerAnswer, {}),
           "a message from another rank is damaged: it ends in 'number'");
}

TEST_CASE("Variables that a server sends are those that it was asked for") {
  const auto error_of = [](std::vector<VariableNumbers> variables, std::vector<float> vectors) {
    const auto transports = MakeLocalTransports(2);
    ParameterClient client(SmallModel(1), transports[1].get());
    const bool dense = vectors.empty();
    transports[0]->Send(
        1, kServerAnswer,
        ToWire(ServerAnswer{
            .number = 1, .variables = std::move(variables), .vectors = std::move(vectors)}));
    return ErrorOf([&] {
      if (dense) client.PullVariables({"w"});
      if (!dense) client.PullEmbeddingVectors("e", std::array<int64_t, 3>{1, 3, 1});
    });
  };
  const std::vector<float> six(6);
  CHECK_EQ(error_of({{"w", {2, 3}, six}}, {}), "no error");
  CHECK_EQ(error_of({}, {}), "server 0 was asked for 1 variables and sent 0");
  CHECK_EQ(error_of({{"b", {3}, {1, 2, 3}}}, {}),
           "server 0 was asked for variable 'w' [2, 3] and sent 'b' [3]");
  CHECK_EQ(error_of({{"w", {3, 2}, six}}, {}),
           "server 0 was asked for variable 'w' [2, 3] and sent 'w' [3, 2]");
  CHECK_EQ(error_of({}, {1, 2, 3, 4}), "no error");
  CHECK_EQ(error_of({}, {1, 2, 3}),
           "server 0 was asked for 2 vectors of embedding layer 'e' of width 2 and sent 3 numbers");
}

TEST_CASE("A pull answers in the order of its ids, each as often as it is named") {
  ParameterServerOptions options = AdamModel(3, 1);
  RunParameterJob(options, {}, [&](ParameterClient& client) {
    const std::array<int64_t, 6> ids = {5, 4, 5, 0, 9, 4};
    const Array vectors = client.PullEmbeddingVectors("e", ids);
    REQUIRE_EQ(vectors.shape(), Shape{6, 2});
    for (size_t i = 0; i < ids.size(); ++i) {
      const Array one = client.PullEmbeddingVectors("e", std::array{ids[i]});
      CHECK_EQ(one.As<float>()[0], vectors.As<float>()[2 * i]);
      CHECK_EQ(one.As<float>()[1], vectors.As<float>()[2 * i + 1]);
    }
  });
}

TEST_CASE("What a worker throws ends the job, and no other worker waits for it for ever") {
  for (const Carriage carriage : Carriages()) {
    CAPTURE(ToString(carriage));
    std::string other;
    CHECK_EQ(ErrorOf([&] {
               RunJobOver(carriage, AdamModel(2, 2), {.workers = 2}, [&](ParameterClient& client) {
                 if (client.worker() == 0) throw Error("worker 0 has had enough");
                 other = ErrorOf([&] { client.PushGradients({}, {0, 0}); });
               });
             }),
             "worker 0 has had enough");
    CHECK_EQ(
        other,
        "server 0: parameter server: a step waits for 2 gradients, but of 2 workers 1 are left; "
        "server 1: parameter server: a step waits for 2 gradients, but of 2 workers 1 are left");
  }
}

TEST_CASE("A server that cannot begin tells the workers and ends the job") {
  for (const Carriage carriage : Carriages()) {
    CAPTURE(ToString(carriage));
    const TempDirectory directory;
    for (const char* name : {"/server-0-of-2.safetensors", "/server-1-of-2.safetensors"}) {
      WriteTextFile(directory.path() + name, "not a file of arrays");
    }
    std::string told;
    const std::string error = ErrorOf([&] {
      RunJobOver(carriage, SmallModel(2), {.directory = directory.path(), .resume = true},
                 [&](ParameterClient& client) {
                   told = ErrorOf([&] { client.PullVariables(); });
                   throw Error(told);
                 });
    });
    CHECK_NE(error.find("server-0-of-2.safetensors"), std::string::npos);
    CHECK_MESSAGE(told.find(" has failed: ") != std::string::npos, told);
  }
}

TEST_CASE("Jobs that could not run are errors") {
  const auto nothing = [](ParameterClient&) {};
  CHECK_EQ(ErrorOf([&] { RunParameterJob(AdamModel(1, 3), {.workers = 2}, nothing); }),
           "parameter server: grads_to_wait must be at most the number of workers, 2, got 3");
  ParameterServerOptions split = SmallModel(3);
  split.grads_to_wait = 2;
  CHECK(ErrorOf([&] { RunParameterJob(split, {.workers = 3}, nothing); })
            .starts_with("parameter server: with 3 servers grads_to_wait must be 1 or the number "
                         "of workers, 3, got 2"));
  CHECK_EQ(ErrorOf([&] { RunParameterJob(SmallModel(), {.workers = 0}, nothing); }),
           "parameter server: wanted at least 1 worker, got 0");
  CHECK_EQ(ErrorOf([&] { RunParameterJob(SmallModel(), {.resume = true}, nothing); }),
           "parameter server: resume needs a directory");
}

}  // namespace
}  // namespace lopt
