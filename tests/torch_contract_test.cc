#include <doctest/doctest.h>

#include <string>

#include "lopt/base/config.h"
#include "lopt/tasks/check/task_checks.h"
#include "lopt/tasks/check/task_rows.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/torch/registry.h"
#include "tests/contracts/passed.h"
#include "tests/torch_example_tasks.h"

// Torch tasks linked in, without the module: what every task family promises.

namespace lopt::contracts {
namespace {

void CheckAll(const TaskFamily& task) {
  CheckKeeps(checks::TaskChecks(), AllBut({}, checks::TaskChecks()), task);
}

TEST_CASE("The torch image MLP keeps the contract of task families") {
  const TaskResources resources("");
  for (const Activation activation : {Activation::kRelu, Activation::kTanh}) {
    INFO(NameOf("activation", activation, kActivations));
    const ImageMlpOptions options{
        .images = {.image_size = 4, .batch_size = 17}, .hidden = {6, 3}, .activation = activation};
    CheckAll(*TorchTaskRegistry().Make(WriteOptions("TorchImageMLP", options), resources));
  }
}

TEST_CASE("Models of bytes that are not among the examples of all families keep the contract") {
  const TaskResources resources("");
  for (const char* config :
       {R"({"type": "ByteLM", "body": "bigram", "length": 5, "batch_size": 4})",
        R"({"type": "ByteLM", "body": "gru", "width": 3, "layers": 2, "length": 5})",
        R"({"type": "TorchSequenceRegression", "cell": "gru", "hidden": 3})"}) {
    INFO(std::string(config));
    CheckAll(*TorchTaskRegistry().Make(Config::Parse(config, "test"), resources));
  }
}

TEST_CASE("A torch task with a model state and data of its own keeps the contract") {
  CheckAll(*NormalizedPoints(TaskResources("")));
}

TEST_CASE("A torch task that is evaluated row by row keeps the contract") {
  const Recurrence task;
  CHECK(checks::RowsAreExact(task));
  CheckAll(task);
}

}  // namespace
}  // namespace lopt::contracts
