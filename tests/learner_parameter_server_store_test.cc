#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/finite.h"
#include "lopt/learner/parameter_server/parameter_store.h"
#include "lopt/lopt/registry.h"
#include "tests/default_optimizer.h"
#include "tests/error_of.h"
#include "tests/parameter_server_job.h"

namespace lopt {
namespace {

constexpr auto kTraining = PulledParams::kTraining;
constexpr auto kEvaluation = PulledParams::kEvaluation;

ParameterStore StoreOf(const ParameterServerOptions& options, int server = 0) {
  return {std::make_shared<ParameterModel>(options), server};
}

ParameterGradients Sparse(std::vector<int64_t> ids, std::vector<float> rows) {
  return {.sparse = {{.layer = "e", .ids = std::move(ids), .rows = std::move(rows)}}};
}

ParameterGradients Dense(const std::string& name, const Shape& shape,
                         const std::vector<float>& values) {
  ParameterGradients gradients;
  gradients.dense.Set(name, Array::Of<float>(shape, values));
  return gradients;
}

void StepWith(ParameterStore* store, const ParameterGradients& gradients) {
  store->Step(std::array{&gradients});
}

std::vector<float> VectorOf(ParameterStore* store, int64_t id, PulledParams which = kTraining) {
  return store->Vectors("e", std::array{id}, which);
}

std::vector<float> ValuesOf(const Array& array) {
  return {array.As<float>().begin(), array.As<float>().end()};
}

TEST_CASE("Names are partitioned by FNV-1a of 64 bits, whose known values are met, ids by mod") {
  CHECK_EQ(Fnv1a64(""), 0xcbf29ce484222325U);
  CHECK_EQ(Fnv1a64("a"), 0xaf63dc4c8601ec8cU);
  CHECK_EQ(Fnv1a64("foobar"), 0x85944171f73967e8U);
  const ParameterModel model(SmallModel(2));
  CHECK_EQ(model.ServerOf("w"), 0);
  CHECK_EQ(model.ServerOf("b"), 1);
  CHECK_EQ(model.ServerOfId(6), 0);
  CHECK_EQ(model.ServerOfId(7), 1);
}

TEST_CASE(
    "Ids [1, 1, 3]: the rows of 1 are added up, each vector makes one step, and no other is") {
  ParameterServerOptions options = SmallModel();
  ParameterStore store = StoreOf(options);
  CHECK_EQ(store.Rows("e"), 0);
  StepWith(&store, Sparse({1, 1, 3}, {1, 2, 3, 4, 5, 6}));
  CHECK_EQ(store.Rows("e"), 2);
  CHECK_EQ(store.version(), 1);
  // 1 - 0.1 (1 + 3), 1 - 0.1 (2 + 4)
  CHECK_EQ(VectorOf(&store, 1), std::vector<float>{0.6F, 0.4F});
  CHECK_EQ(VectorOf(&store, 3), std::vector<float>{0.5F, 0.4F});
  CHECK_EQ(VectorOf(&store, 2), std::vector<float>{1, 1});
  CHECK_EQ(store.Rows("e"), 3);
  const NamedArrays saved = store.Save();
  const auto updates = saved.At("layer/updates/e").As<int64_t>();
  CHECK_EQ(std::vector<int64_t>(updates.begin(), updates.end()), std::vector<int64_t>{1, 0, 1});
}

TEST_CASE(
    "With Adam a row's first step is one of the learning rate, when it is the first of its own") {
  ParameterServerOptions options = SmallModel();
  options.optimizer = Config::Parse(R"({"type": "Adam", "learning_rate": 0.25})", "test");
  ParameterStore store = StoreOf(options);
  StepWith(&store, Sparse({1, 1}, {1, -2, 3, -4}));
  StepWith(&store, Sparse({1}, {0, 0}));
  StepWith(&store, Sparse({5}, {-7, 7}));
  const std::vector<float> late = VectorOf(&store, 5);
  CHECK(late[0] == doctest::Approx(1.25).epsilon(1e-6));
  CHECK(late[1] == doctest::Approx(0.75).epsilon(1e-6));
}

TEST_CASE(
    "A vector begins as a function of key, layer and id, whatever was asked before, and where") {
  ParameterServerOptions options = SmallModel();
  options.layers = {{.name = "e", .width = 3, .initial = {.mean = 2, .stddev = 0.5F}},
                    {.name = "f", .width = 3, .initial = {.mean = 2, .stddev = 0.5F}}};
  ParameterStore one = StoreOf(options);
  ParameterStore other = StoreOf(options);
  one.Vectors("f", std::array<int64_t, 2>{8, 9}, kTraining);
  const std::vector<float> forward = one.Vectors("e", std::array<int64_t, 2>{7, 3}, kTraining);
  const std::vector<float> backward = other.Vectors("e", std::array<int64_t, 2>{3, 7}, kTraining);
  CHECK(std::equal(forward.begin(), forward.begin() + 3, backward.begin() + 3));
  CHECK(std::equal(forward.begin() + 3, forward.end(), backward.begin()));
  options.servers = 2;
  ParameterStore half = StoreOf(options, 1);
  CHECK_EQ(half.Vectors("e", std::array<int64_t, 2>{7, 3}, kTraining), forward);
  CHECK_EQ(half.Rows("e"), 2);
  CHECK_EQ(half.Rows("f"), 0);

  std::vector<float> normal(3);
  Normal(FoldIn(FoldIn(FoldIn(options.key, 1), Fnv1a64("e")), 7), normal);
  for (size_t i = 0; i < 3; ++i) CHECK_EQ(forward[i], 2 + 0.5F * normal[i]);
  CHECK(one.Vectors("f", std::array<int64_t, 1>{7}, kTraining) !=
        std::vector<float>(forward.begin(), forward.begin() + 3));
}

TEST_CASE("A step takes the mean of the pushes in their order, in float64") {
  ParameterServerOptions options = SmallModel();
  options.optimizer = SgdConfig(1);
  options.variables = {{.name = "b", .shape = {1}}};
  options.layers[0].initial = {.mean = 0};
  ParameterStore store = StoreOf(options);
  std::vector<ParameterGradients> pushes;
  for (const float value : {1e16F, 1.0F, -1e16F, 3.0F}) {
    pushes.push_back(Dense("b", {1}, {value}));
    pushes.back().sparse = Sparse({4}, {value, -value}).sparse;
  }
  std::vector<const ParameterGradients*> order;
  for (const ParameterGradients& push : pushes) order.push_back(&push);
  store.Step(order);  // 1e16 + 1 is 1e16
  CHECK_EQ(ValuesOf(store.Variable("b", kTraining)), std::vector<float>{-0.75F});
  CHECK_EQ(VectorOf(&store, 4), std::vector<float>{-0.75F, 0.75F});
}

TEST_CASE("A variable without a gradient stays as it is, one with zeros makes a step") {
  ParameterServerOptions options = SmallModel();
  options.optimizer =
      Config::Parse(R"({"type": "AdamW", "learning_rate": 0.5, "weight_decay": 0.5})", "test");
  ParameterStore store = StoreOf(options);
  const Array before = store.Variable("w", kTraining);
  StepWith(&store, Dense("b", {3}, {0, 0, 0}));
  CHECK(store.Variable("w", kTraining) == before);
  StepWith(&store, Dense("w", {2, 3}, {0, 0, 0, 0, 0, 0}));
  for (size_t i = 0; i < 6; ++i) {
    CHECK_EQ(store.Variable("w", kTraining).As<float>()[i], 0.75F * before.As<float>()[i]);
  }
}

TEST_CASE("An optimizer that sees shapes treats a row as a vector and a variable as it is") {
  ParameterServerOptions options = SmallModel();
  options.optimizer = Config::Parse(R"({"type": "Muon", "learning_rate": 0.1})", "test");
  ParameterStore store = StoreOf(options);
  const auto optimizer = OptimizerRegistry().Make(options.optimizer);
  REQUIRE(optimizer->sees_shapes());
  const auto after_step = [&](const Shape& shape, std::vector<float> params,
                              const std::vector<float>& gradient) {
    const auto rule = optimizer->Bind(Layout({{"x", shape}}), AsSpan(optimizer->InitTheta(Key{})));
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    rule->InitState({}, params, state);
    Workspace scratch;
    rule->Update({}, gradient, params, state, scratch);
    return params;
  };
  const std::vector<float> gradient = {1, -2, 3, 0.5F, 2, 1};
  const std::vector<float> before = ValuesOf(store.Variable("w", kTraining));
  ParameterGradients gradients = Dense("w", {2, 3}, gradient);
  gradients.sparse = Sparse({9}, {3, -1}).sparse;
  StepWith(&store, gradients);
  CHECK_EQ(ValuesOf(store.Variable("w", kTraining)), after_step({2, 3}, before, gradient));
  CHECK_EQ(VectorOf(&store, 9), after_step({2}, {1, 1}, {3, -1}));
  CHECK(VectorOf(&store, 9) != after_step({1, 2}, {1, 1}, {3, -1}));
}

TEST_CASE("Params for evaluation are those that the training stands for") {
  ParameterServerOptions options = SmallModel();
  options.optimizer = Config::Parse(R"({"type": "ScheduleFreeAdamW"})", "test");
  ParameterStore store = StoreOf(options);
  for (int step = 0; step < 3; ++step) {
    ParameterGradients gradients = Dense("w", {2, 3}, {1, 2, 3, -4, -5, -6});
    gradients.sparse = Sparse({9}, {3, -1}).sparse;
    StepWith(&store, gradients);
  }
  const NamedArrays saved = store.Save();
  const auto x = saved.At("variable/state/w").As<float>();  // the state begins with x
  CHECK_EQ(ValuesOf(store.Variable("w", kEvaluation)),
           std::vector<float>(x.begin(), x.begin() + 6));
  CHECK(store.Variable("w", kEvaluation) != store.Variable("w", kTraining));
  CHECK(VectorOf(&store, 9, kEvaluation) != VectorOf(&store, 9));
}

TEST_CASE("Every registered optimizer steps params on a server, but two that mix tensors") {
  std::vector<std::string> refused;
  for (const TypeEntry& type : OptimizerRegistry().table().entries()) {
    CAPTURE(type.type);
    ParameterServerOptions options = SmallModel();
    options.optimizer = Config::Parse(DefaultsOf(type.type), "test");
    options.num_steps = 4;
    const std::string error = ErrorOf([&] { StoreOf(options); });
    if (error != "no error") {
      CHECK_EQ(error, "parameter server: LearnedOptimizer: a " + type.type +
                          " does not treat each tensor by itself, which this class needs");
      refused.push_back(type.type);
      continue;
    }
    ParameterGradients gradients = Dense("w", {2, 3}, {1, -2, 3, 0.5F, 2, 1});
    gradients.sparse = Sparse({9, 4, 9}, {3, -1, 2, 2, 1, 1}).sparse;
    gradients.loss = 1.5F;
    ParameterStore store = StoreOf(options);
    const std::vector<float> before = VectorOf(&store, 9);
    for (int step = 0; step < 3; ++step) {
      store.CheckStep(gradients);
      StepWith(&store, gradients);
    }
    CHECK(VectorOf(&store, 9) != before);
    CHECK(AllFinite(VectorOf(&store, 9)));
    CHECK(AllFinite(store.Variable("w", kTraining).As<float>()));
  }
  CHECK_EQ(refused, std::vector<std::string>{"RNNMLPLOpt", "Prodigy"});
}

TEST_CASE("An optimizer that needs the loss, or the length of the run, is not stepped without") {
  ParameterServerOptions options = SmallModel();
  options.optimizer = Config::Parse(R"({"type": "CeloAdam"})", "test");
  options.num_steps = 1;
  ParameterStore store = StoreOf(options);
  ParameterGradients gradients = Sparse({9}, {3, -1});
  CHECK_EQ(ErrorOf([&] { store.CheckStep(gradients); }),
           "parameter server: a CeloAdam needs the loss with the gradients, got none");
  gradients.loss = 1;
  store.CheckStep(gradients);
  StepWith(&store, gradients);
  CHECK_EQ(ErrorOf([&] { store.CheckStep(gradients); }),
           "parameter server: the run has num_steps 1, which are made; no gradients are wanted");
}

TEST_CASE("A server that is stopped and restored goes on with the same bits") {
  ParameterServerOptions options = SmallModel(2);
  options.optimizer = Config::Parse(R"({"type": "AdamW", "schedule": "cosine"})", "test");
  options.num_steps = 10;
  options.layers[0].initial.stddev = 1;
  const auto push = [](int step) {
    const auto id = static_cast<int64_t>(2 * (step % 3));
    ParameterGradients gradients = Dense("w", {2, 3}, {1.0F * step, 2, -3.0F * step, 0.5F, 2, 1});
    gradients.sparse = Sparse({id, 2, id}, {3, -1, 2, 2.0F * step, 1, 1}).sparse;
    return gradients;
  };
  ParameterStore whole = StoreOf(options);
  ParameterStore first = StoreOf(options);
  for (int step = 0; step < 8; ++step) StepWith(&whole, push(step));
  for (int step = 0; step < 4; ++step) StepWith(&first, push(step));
  first.Vectors("e", std::array<int64_t, 2>{10, 6}, kTraining);
  ParameterStore second = StoreOf(options);
  second.Restore(first.Save());
  CHECK(second.Save() == first.Save());
  CHECK_EQ(second.version(), 4);
  CHECK_EQ(second.Rows("e"), 5);
  for (int step = 4; step < 8; ++step) StepWith(&second, push(step));
  whole.Vectors("e", std::array<int64_t, 2>{6, 10}, kTraining);  // made at another time
  CHECK(second.Save() == whole.Save());
}

TEST_CASE("What is not a checkpoint of this server is refused") {
  ParameterServerOptions options = SmallModel(2);
  ParameterStore store = StoreOf(options);
  store.Vectors("e", std::array<int64_t, 2>{4, 2}, kTraining);
  const NamedArrays good = store.Save();
  const auto error_of = [&](const std::function<void(NamedArrays*)>& change) {
    return ErrorOf([&] {
      NamedArrays arrays = good;
      change(&arrays);
      StoreOf(options).Restore(arrays);
    });
  };
  const auto set_int64 = [](const std::string& name, const Shape& shape,
                            const std::vector<int64_t>& values) {
    return [=](NamedArrays* arrays) { arrays->Set(name, Array::Of<int64_t>(shape, values)); };
  };
  CHECK_EQ(error_of([](NamedArrays*) {}), "no error");
  CHECK_EQ(error_of([](NamedArrays* arrays) { arrays->Take("version"); }),
           "parameter server: the checkpoint has no array 'version'");
  CHECK_EQ(error_of(set_int64("version", {}, {-1})),
           "parameter server: the checkpoint is of version -1, wanted at least 0");
  CHECK_EQ(error_of(set_int64("server", {2}, {1, 2})),
           "parameter server: the checkpoint is of another server");
  CHECK_EQ(error_of(set_int64("layer/ids/e", {2}, {2, 2})),
           "parameter server: array 'layer/ids/e' of the checkpoint has id 2 twice");
  CHECK_EQ(error_of(set_int64("layer/ids/e", {2}, {2, 3})),
           "parameter server: embedding layer 'e': id 3 is on server 1, this is server 0 of 2");
  CHECK_EQ(error_of(set_int64("layer/ids/e", {2}, {-2, 2})),
           "parameter server: embedding layer 'e': ids must be in [0, 1000), got -2 at place 0");
  CHECK_EQ(error_of(set_int64("layer/ids/e", {3}, {0, 2, 4})),
           "parameter server: array 'layer/values/e' of the checkpoint: wanted F32 [3, 2], got F32 "
           "[2, 2]");
  CHECK_EQ(error_of(set_int64("layer/updates/e", {2}, {0, 1})),
           "parameter server: array 'layer/updates/e' of the checkpoint: wanted numbers in [0, 0], "
           "got 1");
  CHECK_EQ(error_of(set_int64("variable/values/w", {1, 6}, {1, 2, 3, 4, 5, 6})),
           "parameter server: array 'variable/values/w' of the checkpoint: wanted F32 [1, 6], got "
           "I64 [1, 6]");
  CHECK_EQ(error_of(set_int64("more", {}, {1})),
           "parameter server: the checkpoint has 13 arrays, this model's have 12");
  const auto with = [&](const std::function<void(ParameterServerOptions*)>& change) {
    ParameterServerOptions changed = options;
    change(&changed);
    return ErrorOf([&] { StoreOf(changed).Restore(good); });
  };
  CHECK_EQ(with([](ParameterServerOptions* o) { o->optimizer = SgdConfig(0.2); }),
           "parameter server: the checkpoint is of another optimizer");
  CHECK_EQ(with([](ParameterServerOptions* o) { o->key = KeyFromSeed(8); }),
           "parameter server: the checkpoint is of another key");
}

TEST_CASE(
    "A server goes on from what a version with fewer keys saved, and not with another length") {
  ParameterServerOptions options = SmallModel();
  options.optimizer = Config::Parse(R"({"type": "SGD", "schedule": "cosine"})", "test");
  options.num_steps = 10;
  NamedArrays saved = StoreOf(options).Save();
  const auto restore = [&](int64_t num_steps) {
    ParameterServerOptions changed = options;
    changed.num_steps = num_steps;
    return ErrorOf([&] { StoreOf(changed).Restore(saved); });
  };
  CHECK_EQ(restore(10), "no error");
  CHECK_EQ(restore(11), "parameter server: the checkpoint is of another num_steps");
  saved.Take("num_steps");
  CHECK_EQ(restore(11), "no error");
  const auto set_optimizer = [&](const std::string& text) {
    saved.Set("optimizer", Array::Of<uint8_t>({std::ssize(text)},
                                              std::vector<uint8_t>(text.begin(), text.end())));
  };
  set_optimizer(R"({"type": "SGD", "schedule": {"type": "Cosine"}})");
  CHECK_EQ(restore(10), "no error");
  for (const char* text : {R"({"type": "SGD"})", R"({"type": "SGD", "wings": 2})", "SGD"}) {
    set_optimizer(text);
    CHECK_EQ(restore(10), "parameter server: the checkpoint is of another optimizer");
  }
  // Where the optimizer does not need the length it may change.
  options.optimizer = SgdConfig(0.1);
  saved = StoreOf(options).Save();
  CHECK_EQ(restore(11), "no error");
}

TEST_CASE("Errors of options name what is wrong") {
  const auto error_of = [](const std::function<void(ParameterServerOptions*)>& change) {
    return ErrorOf([&] {
      ParameterServerOptions options = SmallModel();
      change(&options);
      StoreOf(options);
    });
  };
  CHECK_EQ(error_of([](ParameterServerOptions* o) { o->servers = 0; }),
           "parameter server: servers must be in [1, 100000], got 0");
  CHECK_EQ(error_of([](ParameterServerOptions* o) { o->staleness = -1; }),
           "parameter server: staleness must be at least 0, got -1");
  CHECK_EQ(error_of([](ParameterServerOptions* o) {
             o->variables.push_back({"w", {2}});
           }),
           "parameter server: two variables have the name 'w'");
  CHECK_EQ(error_of([](ParameterServerOptions* o) { o->layers[0].width = 0; }),
           "parameter server: embedding layer 'e': width must be in [1, 268435456], got 0");
  CHECK_EQ(
      error_of([](ParameterServerOptions* o) { o->variables[0].initial.stddev = -1; }),
      "parameter server: variable 'w': initial values want a finite mean and a finite stddev of "
      "at least 0, got 0 and -1");
  CHECK_EQ(error_of([](ParameterServerOptions* o) {
             o->variables[0].shape = {1 << 14, 1 << 15};
           }),
           "parameter server: with variable 'w' [16384, 32768], server 0 has more than 268435456 "
           "numbers in variables; take more servers, or an embedding layer");
  CHECK_EQ(
      error_of([](ParameterServerOptions* o) {
        o->optimizer = Config::Parse(R"({"type": "SGD", "schedule": "cosine"})", "test");
      }),
      "parameter server: SGD with schedule 'cosine' needs the length of the run: set num_steps");
  CHECK_EQ(error_of([](ParameterServerOptions* o) {
             o->variables.clear();
             o->layers.clear();
           }),
           "parameter server: wanted variables or embedding layers, got neither");
}

}  // namespace
}  // namespace lopt
