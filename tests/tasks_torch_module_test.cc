#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lopt/base/describe_fields.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/torch/torch_module.h"
#include "tests/error_of.h"
#include "tests/on_every_isa.h"

namespace lopt {
namespace {

const char* const kConfig = R"({"type": "TorchImageMLP", "hidden": [8], "batch_size": 16})";

bool TorchIsLoaded() {
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  return text.find("libtorch") != std::string::npos;
}

struct Results {
  std::vector<float> losses, gradients, aux;
};

Results Evaluate(const TaskFamily& task, const std::vector<Key>& keys,
                 std::span<const float> params) {
  const auto n = static_cast<int64_t>(keys.size());
  Results results;
  results.losses.resize(keys.size());
  results.gradients.resize(params.size());
  results.aux.resize(keys.size());
  Workspace scratch;
  task.Evaluate({.rows = n,
                 .params = params,
                 .keys = keys,
                 .losses = results.losses,
                 .gradients = results.gradients,
                 .aux = results.aux},
                scratch);
  return results;
}

}  // namespace

// Each test case runs in a process of its own, so the first two see torch come in.
TEST_CASE("Finding the torch module and listing task types loads no LibTorch") {
  REQUIRE(FindModule(kTorchModule).has_value());
  CHECK_NE(TaskRegistry().table().entries().size(), 0);
  TaskRegistry().Make(Config::Parse(R"({"type": "ImageMLP"})", "test"), TaskResources(""));
  CHECK_FALSE(TorchIsLoaded());
}

TEST_CASE("Opening the module loads LibTorch and names its version") {
  const TorchModule& module = OpenTorchModule("this test");
  CHECK(TorchIsLoaded());
  const std::string version = module.torch_version;
  CHECK_NE(version.find('.'), std::string::npos);
  CHECK_EQ(&OpenTorchModule("this test"), &module);
}

TEST_CASE("A torch task made by name in a program without LibTorch equals the native one") {
  const TaskResources resources("");
  const auto torch_task = TaskRegistry().Make(Config::Parse(kConfig, "test"), resources);
  const auto native_task = TaskRegistry().Make(
      Config::Parse(R"({"type": "ImageMLP", "hidden": [8], "batch_size": 16})", "test"), resources);
  REQUIRE_EQ(torch_task->params_layout(), native_task->params_layout());

  const auto size = static_cast<size_t>(native_task->params_layout().size());
  std::vector<float> params(2 * size);
  for (size_t row = 0; row < 2; ++row) {
    const auto values = std::span(params).subspan(row * size, size);
    std::vector<float> wanted(size);
    native_task->Init({}, KeyFromSeed(row), wanted, {});
    torch_task->Init({}, KeyFromSeed(row), values, {});
    REQUIRE(std::equal(wanted.begin(), wanted.end(), values.begin()));
  }
  const std::vector<Key> keys = {KeyFromSeed(5), KeyFromSeed(6)};
  const Results got = Evaluate(*torch_task, keys, params);
  const Results wanted = Evaluate(*native_task, keys, params);
  for (size_t i = 0; i < 2; ++i) {
    CHECK_EQ(got.losses[i], doctest::Approx(wanted.losses[i]).epsilon(1e-5));
    CHECK_EQ(got.aux[i], wanted.aux[i]);
  }
  for (size_t i = 0; i < got.gradients.size(); ++i) {
    REQUIRE_LT(std::abs(got.gradients[i] - wanted.gradients[i]), 1e-5);
  }
}

TEST_CASE("An Error thrown inside the module is caught as Error outside") {
  const auto task = TaskRegistry().Make(Config::Parse(kConfig, "test"), TaskResources(""));
  const std::vector<float> params(static_cast<size_t>(task->params_layout().size()));
  const std::vector<int32_t> examples = {0, 123456789};
  float loss = 0;
  Workspace scratch;
  CHECK_THROWS_WITH_AS(
      task->Evaluate({.params = params, .examples = examples, .losses = std::span<float>(&loss, 1)},
                     scratch),
      "TaskFamily: there is no example 123456789 among 19000", Error);
  CHECK_THROWS_AS(
      OpenTorchModule("this test")
          .tasks(CurrentIsa())
          .Make(Config::Parse(R"({"type": "TorchImageMLP", "activation": "cube"})", "test"),
                TaskResources("")),
      Error);
}

TEST_CASE("The program knows the module's tasks and their options, no more and no fewer") {
  TaskTypes known("torch task");
  torch_types::AddAll(&known);
  const TypeTable& made = OpenTorchModule("this test").tasks(CurrentIsa()).table();
  REQUIRE_EQ(known.table().entries().size(), made.entries().size());
  for (size_t i = 0; i < made.entries().size(); ++i) {
    CHECK_EQ(known.table().entries()[i].type, made.entries()[i].type);
    CHECK_EQ(known.table().entries()[i].summary, made.entries()[i].summary);
    CHECK_EQ(DescribeFields(known.table().entries()[i].fields),
             DescribeFields(made.entries()[i].fields));
  }
}

TEST_CASE("The module takes the data that the program loaded, and leaves it what it loads itself") {
  const TaskResources resources("");
  const auto make = [&](int64_t image_size) {
    return TaskRegistry().Make(
        WriteOptions("TorchImageMLP", ImageMlpOptions{.images = {.image_size = image_size}}),
        resources);
  };
  // Held by the resources, by what is held here, by the task's init, its loss and what shows a
  // batch.
  const auto loaded_here = GetImages({.image_size = 4}, resources);
  const auto first = make(4);
  CHECK_EQ(loaded_here.use_count(), 5);
  const auto second = make(5);
  const auto loaded_there = GetImages({.image_size = 5}, resources);
  CHECK_EQ(loaded_there.use_count(), 5);
}

TEST_CASE("A torch task computes with the pinned instruction set") {
  OnEveryIsa([&] {
    const TaskResources resources("");
    const auto torch_task = TaskRegistry().Make(Config::Parse(kConfig, "test"), resources);
    const auto native_task = TaskRegistry().Make(
        Config::Parse(R"({"type": "ImageMLP", "hidden": [8], "batch_size": 16})", "test"),
        resources);
    const auto size = static_cast<size_t>(native_task->params_layout().size());
    std::vector<float> got(size);
    std::vector<float> wanted(size);
    torch_task->Init({}, KeyFromSeed(3), got, {});
    native_task->Init({}, KeyFromSeed(3), wanted, {});
    CHECK(got == wanted);
  });
}

TEST_CASE("Torch tasks may be evaluated by many threads at once with the same bits") {
  const auto task = TaskRegistry().Make(Config::Parse(kConfig, "test"), TaskResources(""));
  std::vector<float> params(static_cast<size_t>(task->params_layout().size()));
  task->Init({}, KeyFromSeed(1), params, {});
  const Results wanted = Evaluate(*task, {KeyFromSeed(2)}, params);
  std::vector<Results> results(4);
  std::vector<std::thread> threads;
  for (Results& result : results) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 10; ++repeat) {
        result = Evaluate(*task, {KeyFromSeed(2)}, params);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Results& result : results) {
    CHECK(result.losses == wanted.losses);
    CHECK(result.gradients == wanted.gradients);
  }
}

TEST_CASE("A torch task names the native one that does what it cannot") {
  const auto error = [](const std::string& config) {
    return ErrorOf([&] { TaskRegistry().Make(Config::Parse(config, "test"), TaskResources("")); });
  };
  CHECK(error(R"({"type": "TorchImageMLP", "augment": {"type": "Drawn"}})") ==
        "TorchImageMLP: augment must be None, got Drawn; ImageMLP augments its images");
  CHECK(error(R"({"type": "TorchImageConv", "augment": {"type": "CTAugment"}})") ==
        "TorchImageConv: augment must be None, got CTAugment; ImageConv augments its images");
}

}  // namespace lopt
