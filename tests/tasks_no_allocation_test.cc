#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "count_allocations.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

TEST_CASE("An evaluation allocates nothing once its scratch memory is there") {
  const TaskResources resources("");
  for (const std::string text :
       {R"({"type": "QuadraticTask"})",
        R"({"type": "FixedDimQuadraticFamily"})",
        R"({"type": "NoisyQuadraticFamily"})",
        R"({"type": "LogQuadraticTask"})",
        R"({"type": "ImageMLP"})",
        R"({"type": "ImageMLP", "hidden": [20, 33], "activation": "tanh", "batch_size": 300})",
        R"({"type": "ImageMLP", "hidden": [20, 33], "activation": "gelu"})",
        R"({"type": "ImageMLP", "norm": "layer"})",
        R"({"type": "ImageMLP", "norm": "batch", "batch_size": 300})",
        R"({"type": "ImageAutoencoder"})",
        R"({"type": "ImageConv", "image_channels": 3, "activation": "gelu"})",
        R"({"type": "ImageConv", "pool": "max", "head": "flatten", "batch_size": 300})",
        R"({"type": "ImageMLP", "augment": {"type": "Drawn", "permute": 0.5}})",
        R"({"type": "ImageMLP", "augment": {"type": "CTAugment"}})",
        R"({"type": "ParametricImageMLP"})",
        R"({"type": "TableMLP", "rows": 100, "outputs": 3, "batch_size": 300})",
        R"({"type": "TableMLP", "rows": 100, "classes": 3, "norm": "batch"})",
        R"({"type": "EmbeddingProduct", "rows": 100})",
        R"({"type": "ByteTransformer", "width": 12, "layers": 2, "heads": 3})",
        R"({"type": "ByteLSTM", "width": 12, "layers": 2, "batch_size": 70})",
        R"({"type": "ImageTransformer", "batch_size": 40, "augment": {"type": "CTAugment"}})",
        R"({"type": "SampledFamily", "tasks": [{"type": "ReparamWeights", "task": {"type":
            "DelayedGradients", "task": {"type": "ESTask", "task": {"type": "ReducedBatchsize",
            "task": {"type": "ImageMLP"}}}}}]})",
        R"({"type": "TrainedStart", "steps": 3, "task": {"type": "TableMLP"}, "earlier": {"type":
            "TableMLP", "classes": 3}})",
        R"({"type": "NormalizeTaskGradient", "task": {"type": "SubsampleDirections", "task":
            {"type": "QuadraticTask"}}})"}) {
    CAPTURE(text);
    const auto family = TaskRegistry().Make(Config::Parse(text, "test"), resources);
    std::vector<float> config(family->config_layout().size());
    std::vector<float> params(family->params_layout().size());
    std::vector<float> gradient(params.size());
    std::vector<float> aux(family->aux_layout().size());
    std::vector<float> model_state(family->model_state_layout().size());
    float loss = 0;
    Key key = KeyFromSeed(1);
    family->Sample(key, config);
    family->Init(config, key, params, model_state);
    TaskEvaluation evaluation;
    evaluation.config = config;
    evaluation.params = params;
    evaluation.model_state = model_state;
    evaluation.keys = {&key, 1};
    evaluation.losses = {&loss, 1};
    evaluation.gradients = gradient;
    evaluation.aux = aux;
    Workspace scratch;
    family->Evaluate(evaluation, scratch);
    const int64_t before = allocations;
    for (int step = 0; step < 5; ++step) {
      key = FoldIn(key, 0);
      family->Evaluate(evaluation, scratch);
    }
    CHECK(allocations == before);
  }
}

TEST_CASE("A start that is trained allocates nothing once its scratch memory is there") {
  const auto family = TaskRegistry().Make(
      Config::Parse(R"({"type": "TrainedStart", "steps": 3, "task": {"type": "TableMLP"}, "earlier":
                       {"type": "TableMLP", "classes": 3}})",
                    "test"),
      TaskResources(""));
  std::vector<float> params(family->params_layout().size());
  family->Init({}, KeyFromSeed(1), params, {});
  const int64_t before = allocations;
  for (uint64_t seed = 2; seed < 5; ++seed) family->Init({}, KeyFromSeed(seed), params, {});
  CHECK(allocations == before);
}

}  // namespace
}  // namespace lopt
