#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lopt/torch/registry.h"
#include "tests/contracts/examples.h"
#include "tests/error_of.h"
#include "tests/torch_example_tasks.h"

// Graphs of torch tasks, for TensorBoard.

namespace lopt {
namespace {

// "name: op(inputs) [shape]", one a line.
std::string TextOf(const std::vector<GraphNode>& nodes) {
  std::string text;
  for (const GraphNode& node : nodes) {
    text += node.name + ": " + node.op + "(";
    for (const std::string& input : node.inputs) text += " " + input;
    text += " ) " + (node.shape ? ToString(*node.shape) : "?") + "\n";
  }
  return text;
}

TEST_CASE("The graph of a net has its params, its operations in their layers, and the shapes") {
  const TorchTaskFamily family(
      [](Key, const torch::Tensor&) -> NamedTensors {
        return {{"net/in/w", torch::zeros({3, 2})},
                {"net/in/b", torch::zeros({2})},
                {"net/out/w", torch::zeros({1, 2})},
                {"scale", torch::zeros({})}};
      },
      [x = torch::ones({5, 3})](const TorchEvaluation& e) -> TorchLoss {
        const torch::Tensor h = torch::tanh(torch::matmul(x, e.params[0]) + e.params[1]);
        const torch::Tensor y = torch::matmul(h, e.params[2].t());
        return (y * e.params[3]).sum();
      },
      {}, TorchRows::kOneByOne);
  CHECK_EQ(TextOf(family.Graph()),
           "net/in/w: Parameter( ) [3, 2]\n"
           "net/in/b: Parameter( ) [2]\n"
           "net/out/w: Parameter( ) [1, 2]\n"
           "scale: Parameter( ) []\n"
           "net/in/matmul_1: aten::matmul( net/in/w ) [5, 2]\n"
           "net/in/add_2: aten::add( net/in/matmul_1 net/in/b ) [5, 2]\n"
           "tanh_3: aten::tanh( net/in/add_2 ) [5, 2]\n"
           "net/out/t_4: aten::t( net/out/w ) [2, 1]\n"
           "net/out/matmul_5: aten::matmul( tanh_3 net/out/t_4 ) [5, 1]\n"
           "mul_6: aten::mul( net/out/matmul_5 scale ) [5, 1]\n"
           "sum_7: aten::sum( mul_6 ) []\n"
           "losses: Output( sum_7 ) ?\n");
}

// Whether the losses are made of this node.
bool Reaches(const std::map<std::string, std::vector<std::string>>& inputs,
             const std::string& wanted) {
  std::vector<std::string> open = {"losses"};
  std::set<std::string> seen;
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    if (name == wanted) return true;
    if (!seen.insert(name).second) continue;
    for (const std::string& input : inputs.at(name)) open.push_back(input);
  }
  return false;
}

void CheckGraph(const TorchTaskFamily& family) {
  const std::vector<GraphNode> nodes = family.Graph();
  CAPTURE(TextOf(nodes));
  std::map<std::string, std::vector<std::string>> inputs;
  for (const GraphNode& node : nodes) CHECK(inputs.emplace(node.name, node.inputs).second);
  for (const LayoutEntry& entry : family.params_layout().entries()) {
    CAPTURE(entry.name);
    CHECK(Reaches(inputs, entry.name));
  }
  CHECK_EQ(TextOf(family.Graph()), TextOf(nodes));
}

TEST_CASE("All torch tasks have a graph that leads from every param to the losses") {
  const TaskResources resources("");
  int families = 0;
  for (const contracts::Example& example : contracts::TaskExamples()) {
    CAPTURE(example.config);
    const Config config = Config::Parse(example.config, "test");
    const auto& entries = TorchTaskRegistry().table().entries();
    const bool torch = std::ranges::any_of(
        entries, [&](const auto& entry) { return entry.type == config.Type(); });
    if (!torch) continue;
    ++families;
    CheckGraph(dynamic_cast<const TorchTaskFamily&>(*TorchTaskRegistry().Make(config, resources)));
  }
  CHECK_GT(families, 6);
  CheckGraph(*NormalizedPoints(resources));
  CheckGraph(Recurrence());
}

TEST_CASE("What a loss throws is the graph's Error, and the next graph is whole") {
  bool fails = true;
  const TorchTaskFamily family(
      [](Key, const torch::Tensor&) -> NamedTensors {
        return {{"w", torch::ones({2})}};
      },
      [&](const TorchEvaluation& e) -> TorchLoss {
        if (fails) torch::matmul(e.params[0], torch::ones({3}));
        return e.params[0].sum();
      },
      {}, TorchRows::kOneByOne);
  const std::string error = ErrorOf([&] { family.Graph(); });
  CHECK_MESSAGE(error.starts_with("torch task: the graph of the loss failed: "), error);
  fails = false;
  CHECK_EQ(TextOf(family.Graph()),
           "w: Parameter( ) [2]\nsum_1: aten::sum( w ) []\nlosses: Output( sum_1 ) ?\n");
}

}  // namespace
}  // namespace lopt
