#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/processor.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/registry.h"
#include "tests/on_every_isa.h"
#include "tests/optimizer_examples.h"

namespace lopt {
namespace {

// Matrices of one to seven vectors of eight columns and as many of four, upright and lying; vectors
// of whole groups of parameters and of what is left.
Layout ParamsOfManyWidths() {
  std::vector<std::pair<std::string, Shape>> tensors = {
      {"scalar", {}}, {"short", {7}}, {"long", {131}}, {"filter", {3, 3, 2, 5}}};
  for (int64_t columns = 4; columns <= 56; columns += 4) {
    const std::string name = std::to_string(columns);
    tensors.emplace_back("upright" + name, Shape{70, columns});
    tensors.emplace_back("lying" + name, Shape{columns, 57});
  }
  return Layout(std::move(tensors));
}

// What two updates make of params and state.
std::vector<float> Updated(const std::string& optimizer) {
  const auto made = OptimizerRegistry().Make(Config::Parse(optimizer, "test"));
  const Layout layout = ParamsOfManyWidths();
  const Eigen::VectorXf theta = made->InitTheta(KeyFromSeed(1));
  const auto rule = made->Bind(layout, AsSpan(theta));
  std::vector<float> params(static_cast<size_t>(layout.size()));
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  Normal(KeyFromSeed(2), params);
  rule->InitState({.step = 0, .num_steps = 10}, params, state);
  Workspace scratch;
  std::vector<float> gradient(params.size());
  for (int64_t step = 0; step < 2; ++step) {
    Normal(KeyFromSeed(3 + step), gradient);
    rule->Update({.step = step, .num_steps = 10, .loss = 1}, gradient, params, state, scratch);
  }
  params.insert(params.end(), state.begin(), state.end());
  return params;
}

// Both at once: an instruction set has the code of one of them at most.
std::vector<float> UpdatedWith(bool small_tiles, bool paced_stores, const std::string& optimizer) {
  const SmallTilesScope tiles(small_tiles);
  const PacedStoresScope stores(paced_stores);
  return Updated(optimizer);
}

void CheckThatTilesChangeNothing(const std::string& optimizer) {
  OnEveryIsa(
      [&] { CHECK(UpdatedWith(true, true, optimizer) == UpdatedWith(false, false, optimizer)); });
}

TEST_CASE("Small tiles and paced stores change no bit of an optimizer's updates") {
  for (const auto& [name, optimizer] : OptimizerExamples()) {
    CAPTURE(name);
    CheckThatTilesChangeNothing(optimizer);
  }
}

TEST_CASE("Small tiles and paced stores change no bit of networks of any width and depth") {
  for (const int hidden : {3, 4, 8, 16, 31, 32, 33}) {
    for (const int layers : {1, 2, 3}) {
      const std::string sizes = "\"hidden_size\": " + std::to_string(hidden) +
                                ", \"hidden_layers\": " + std::to_string(layers) + "}";
      CAPTURE(sizes);
      CheckThatTilesChangeNothing(R"({"type": "MLPLOpt", )" + sizes);
      CheckThatTilesChangeNothing(R"({"type": "AdafacMLPLOpt", )" + sizes);
    }
  }
}

}  // namespace
}  // namespace lopt
