#include "lopt/tasks/registry.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lopt/tasks/image/fixed_task.h"
#include "lopt/tasks/image/image_autoencoder.h"
#include "lopt/tasks/image/image_conv.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/image/parametric_image_mlp.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/sequence/byte_lstm.h"
#include "lopt/tasks/sequence/byte_transformer.h"
#include "lopt/tasks/sequence/image_transformer.h"
#include "lopt/tasks/table/embedding_product.h"
#include "lopt/tasks/table/table_mlp.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tasks/wrappers/delayed_gradients.h"
#include "lopt/tasks/wrappers/es_task.h"
#include "lopt/tasks/wrappers/normalize_task_gradient.h"
#include "lopt/tasks/wrappers/reduced_batchsize.h"
#include "lopt/tasks/wrappers/reparam_weights.h"
#include "lopt/tasks/wrappers/sampled_family.h"
#include "lopt/tasks/wrappers/subsample_directions.h"
#include "lopt/tasks/wrappers/trained_start.h"

namespace lopt {
namespace {

template <class Family, class Options>
void AddQuadratic(TaskTypes* types, const std::string& type, std::string summary) {
  types->Add<Options>(type, std::move(summary), [](const Options& options, const TaskResources&) {
    return std::make_shared<Family>(options);
  });
}

// The options of a family over another.
template <class Own>
struct OverTask {
  Config task;
  Own own;

  void Visit(FieldVisitor& v) {
    v.Typed("task", &task, TaskRegistry().table(), "The family that is wrapped.");
    own.Visit(v);
  }
};

template <class Wrapper, class Own>
void AddWrapper(TaskTypes* types, const std::string& type, std::string summary) {
  using Options = OverTask<Own>;
  types->Add<Options>(
      type, std::move(summary), [](const Options& options, const TaskResources& resources) {
        return std::make_shared<Wrapper>(TaskRegistry().Make(options.task, resources), options.own);
      });
}

struct FineTuningOptions {
  Config task;
  Config earlier;
  TrainedStartOptions own;

  void Visit(FieldVisitor& v) {
    v.Typed("task", &task, TaskRegistry().table(), "The family that is wrapped.");
    v.Typed("earlier", &earlier, TaskRegistry().table(),
            "The family that the params were trained on before, with the same tensors but for "
            "fresh ones.");
    own.Visit(v);
  }
};

struct MixOptions {
  std::vector<Config> tasks;
  SampledFamilyOptions own;

  void Visit(FieldVisitor& v) {
    v.Typed("tasks", &tasks, TaskRegistry().table(), "The families that are mixed.");
    own.Visit(v);
  }
};

void AddWrappers(TaskTypes* types) {
  AddWrapper<ReparamWeights, ReparamWeightsOptions>(
      types, "ReparamWeights",
      "Another task in other units: the loss at w is the task's at s w, with scales s per task.");
  AddWrapper<NormalizeTaskGradient, NormalizeTaskGradientOptions>(
      types, "NormalizeTaskGradient",
      "Another task whose gradients are divided by their norm over all tensors.");
  AddWrapper<SubsampleDirections, SubsampleDirectionsOptions>(
      types, "SubsampleDirections",
      "Another task whose gradients are known along a few random directions only.");
  AddWrapper<ReducedBatchsize, ReducedBatchsizeOptions>(
      types, "ReducedBatchsize", "Another task with the first examples of its batches only.");
  AddWrapper<DelayedGradients, DelayedGradientsOptions>(
      types, "DelayedGradients", "Another task with the gradients of earlier params.");
  AddWrapper<ESTask, ESTaskOptions>(
      types, "ESTask",
      "Another task whose gradients are estimated from losses by antithetic pairs.");
  types->Add<FineTuningOptions>(
      "TrainedStart", "Another task, from params that Adam has trained on an earlier one.",
      [](const FineTuningOptions& options, const TaskResources& resources) {
        return std::make_shared<TrainedStart>(TaskRegistry().Make(options.task, resources),
                                              TaskRegistry().Make(options.earlier, resources),
                                              options.own);
      });
  types->Add<MixOptions>(
      "SampledFamily",
      "A mix of families with one layout of params: each task is from one of them.",
      [](const MixOptions& options, const TaskResources& resources) {
        std::vector<std::shared_ptr<const TaskFamily>> tasks;
        for (const Config& task : options.tasks) {
          tasks.push_back(TaskRegistry().Make(task, resources));
        }
        return std::make_shared<SampledFamily>(std::move(tasks), options.own);
      });
}

TaskTypes BuiltIn() {
  TaskTypes types("task", kTypesOfPlugins);
  AddQuadratic<QuadraticTask, QuadraticOptions>(&types, "QuadraticTask",
                                                "sum(x^2), started at x ~ N(0, I).");
  AddQuadratic<FixedDimQuadraticFamily, QuadraticOptions>(
      &types, "FixedDimQuadraticFamily",
      "sum((c - x)^2) with a target c ~ N(0, I) per task, started at x ~ N(0, I).");
  AddQuadratic<NoisyQuadraticFamily, NoisyQuadraticOptions>(
      &types, "NoisyQuadraticFamily",
      "sum((scale (center - x))^2) with center ~ N(0, I) and scale ~ 25 U(0, 1) per task and a "
      "noisy gradient.");
  AddQuadratic<LogQuadraticTask, QuadraticOptions>(&types, "LogQuadraticTask",
                                                   "log(sum(x^2)), started at x ~ N(0, I).");
  types.Add<ImageMlpOptions>("ImageMLP", "A multilayer perceptron that classifies small images.",
                             [](const ImageMlpOptions& options, const TaskResources& resources) {
                               return std::make_shared<ImageMlp>(
                                   options, GetImages(options.images, resources));
                             });
  types.Add<ImageAutoencoderOptions>(
      "ImageAutoencoder", "A multilayer perceptron that learns to give back images.",
      [](const ImageAutoencoderOptions& options, const TaskResources& resources) {
        return std::make_shared<ImageAutoencoder>(options, GetImages(options.images, resources));
      });
  types.Add<ImageConvOptions>("ImageConv", "A network of convolutions that classifies images.",
                              [](const ImageConvOptions& options, const TaskResources& resources) {
                                return std::make_shared<ImageConv>(
                                    options, GetImages(options.images, resources));
                              });
  types.Add<ParametricImageMlpOptions>(
      "ParametricImageMLP",
      "Multilayer perceptrons of sizes that a seed draws, each task with its own activation and "
      "initializer.",
      [](const ParametricImageMlpOptions& options, const TaskResources& resources) {
        return std::make_shared<ParametricImageMlp>(
            options, GetImages(ParametricImageMlp::Drawn(options).images, resources));
      });
  types.Add<FixedTaskOptions>(
      "FixedTask", "A task of google/learned_optimization's tasks/fixed on the data of its name.",
      MakeFixedTask);
  types.Add<TableMlpOptions>(
      "TableMLP", "A multilayer perceptron on a table that is drawn: regression or classes.",
      [](const TableMlpOptions& options, const TaskResources& resources) {
        return std::make_shared<TableMlp>(options, GetTable(options.table, resources));
      });
  types.Add<EmbeddingProductOptions>(
      "EmbeddingProduct",
      "Matrix factorization: predicts drawn ratings from embeddings of users and items.",
      [](const EmbeddingProductOptions& options, const TaskResources& resources) {
        return std::make_shared<EmbeddingProduct>(options, GetRatings(options.ratings, resources));
      });
  types.Add<ByteTransformerOptions>(
      "ByteTransformer",
      "A causal transformer predicts the bytes of a text; needs no torch module.",
      [](const ByteTransformerOptions& options, const TaskResources& resources) {
        return std::make_shared<ByteTransformer>(options, GetText(options.text, resources));
      });
  types.Add<ByteLstmOptions>(
      "ByteLSTM", "An LSTM predicts the bytes of a text; needs no torch module.",
      [](const ByteLstmOptions& options, const TaskResources& resources) {
        return std::make_shared<ByteLstm>(options, GetText(options.text, resources));
      });
  types.Add<ImageTransformerOptions>(
      "ImageTransformer", "A vision transformer that classifies small images.",
      [](const ImageTransformerOptions& options, const TaskResources& resources) {
        return std::make_shared<ImageTransformer>(options, GetImages(options.images, resources));
      });
  AddWrappers(&types);
  torch_types::AddAll(&types);
  return types;
}

}  // namespace

TaskTypes& TaskRegistry() {
  static TaskTypes types = BuiltIn();
  return types;
}

}  // namespace lopt
