#include "lopt/learner/run/task_graphs.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/tasks/torch/torch_module.h"

namespace lopt {
namespace {

// TensorBoard draws so many in seconds.
constexpr size_t kMostNodes = 20000;

void AddInBox(const std::string& box, std::vector<GraphNode> graph, std::vector<GraphNode>* all) {
  for (GraphNode& node : graph) {
    node.name = box + "/" + node.name;
    for (std::string& input : node.inputs) input = box + "/" + input;
    all->push_back(std::move(node));
  }
}

}  // namespace

std::vector<GraphNode> TaskGraphs(const std::vector<std::pair<std::string, Config>>& named,
                                  const TaskResources& resources) {
  std::vector<std::vector<GraphNode>> graphs;
  std::vector<GraphNode> all;
  for (const auto& [name, config] : named) {
    try {
      std::vector<GraphNode> graph = GraphOfTorchTask(config, resources);
      Require(graph.size() <= kMostNodes, "it has {} nodes, at most {} are written", graph.size(),
              kMostNodes);
      if (graph.empty() || std::ranges::find(graphs, graph) != graphs.end()) continue;
      graphs.push_back(graph);
      AddInBox(name, std::move(graph), &all);
    } catch (const Error& error) {
      spdlog::warn("TensorBoard gets no graph of {}: {}", name, error.what());
    }
  }
  return all;
}

}  // namespace lopt
