// Denormal numbers in the params and gradients of tasks.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lopt/base/denormals.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

struct Evaluated {
  float loss = 0;
  std::vector<float> gradient;
  bool operator==(const Evaluated&) const = default;
};

// At params of this size.
Evaluated Evaluate(const std::string& config, float size) {
  const auto task = TaskRegistry().Make(Config::Parse(config, "test"), TaskResources(""));
  std::vector<float> drawn(static_cast<size_t>(task->config_layout().size()));
  std::vector<float> params(static_cast<size_t>(task->params_layout().size()));
  std::vector<float> model_state(static_cast<size_t>(task->model_state_layout().size()));
  const Key key = KeyFromSeed(1);
  task->Sample(key, drawn);
  task->Init(drawn, key, params, model_state);
  Normal(KeyFromSeed(2), params);
  for (float& p : params) p *= size;
  Evaluated result{.gradient = std::vector<float>(params.size())};
  Workspace scratch;
  task->Evaluate({.rows = 1,
                  .config = drawn,
                  .params = params,
                  .model_state = model_state,
                  .split = Split::kTrain,
                  .keys = {&key, 1},
                  .losses = {&result.loss, 1},
                  .gradients = result.gradient},
                 scratch);
  return result;
}

// Each with a size of params at which gradients would be denormal.
struct Case {
  const char* config;
  float size;
};
constexpr Case kCases[] = {
    {R"({"type": "QuadraticTask", "dim": 5})", 1e-39F},
    {R"({"type": "ImageMLP", "image_size": 4, "hidden": [8, 8, 8], "batch_size": 16,
         "data": "glyphs"})",
     1e-13F},
    {R"({"type": "TableMLP", "rows": 60, "inputs": 3, "hidden": [5, 5, 5], "batch_size": 16,
         "activation": "tanh"})",
     1e-13F}};

TEST_CASE("An evaluation has the same bits whatever denormal numbers are to its caller") {
  for (const auto& [config, size] : kCases) {
    INFO(config);
    const Evaluated plain = Evaluate(config, size);
    CHECK_FALSE(FlushDenormals::Active());
    const FlushDenormals flush;
    CHECK(Evaluate(config, size) == plain);
    CHECK(FlushDenormals::Active());
  }
}

TEST_CASE("No gradient is denormal; a param that is does what a zero does") {
  for (const auto& [config, size] : kCases) {
    INFO(config);
    for (const float g : Evaluate(config, size).gradient) {
      CHECK((g == 0 || std::isnormal(g)));
    }
  }
  CHECK(Evaluate(kCases[0].config, 1e-39F) == Evaluate(kCases[0].config, 0));
}

}  // namespace
}  // namespace lopt
