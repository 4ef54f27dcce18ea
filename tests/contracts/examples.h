#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lopt::contracts {

// A config that the suite builds a registered type from. A type with no example here is built from
// its defaults; several examples of one type are all used. Sizes are small: the suite runs all
// combinations.
struct Example {
  std::string config;
  // Estimators: inner steps of one window, both of a pair counted; 0: not a fixed number.
  int64_t inner_steps = 0;
  // Estimators: differentiates its tasks twice, which TypesWithDerivatives() are for.
  bool needs_derivatives = false;
};

inline std::vector<Example> TaskExamples() {
  return {
      {.config = R"({"type": "QuadraticTask", "dim": 9})"},
      {.config = R"({"type": "FixedDimQuadraticFamily", "dim": 10})"},
      {.config = R"({"type": "NoisyQuadraticFamily", "dim": 5, "cov": 0})"},
      {.config = R"({"type": "NoisyQuadraticFamily", "dim": 5, "cov": 0.5})"},
      {.config = R"({"type": "LogQuadraticTask", "dim": 7})"},
      {.config = R"({"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 16,
                     "data": "glyphs"})"},
      {.config = R"({"type": "ImageMLP", "image_size": 5, "hidden": [6, 3], "batch_size": 17,
                     "activation": "tanh", "data": "glyphs", "sampling": "epoch"})"},
      {.config = R"({"type": "ImageMLP", "image_size": 4, "hidden": [9], "batch_size": 16,
                     "activation": "gelu", "data": "glyphs"})"},
      {.config = R"({"type": "ImageMLP", "image_size": 4, "hidden": [9, 4], "batch_size": 16,
                     "norm": "layer", "data": "glyphs"})"},
      {.config = R"({"type": "ImageMLP", "image_size": 4, "hidden": [5, 4], "batch_size": 16,
                     "norm": "batch", "activation": "tanh", "data": "glyphs"})"},
      {.config = R"({"type": "ImageAutoencoder", "image_size": 4, "hidden": [7, 3],
                     "batch_size": 16, "data": "glyphs"})"},
      {.config = R"({"type": "ImageConv", "image_size": 4, "image_channels": 3, "channels": [3, 4],
                     "batch_size": 16, "activation": "tanh", "data": "glyphs"})"},
      {.config = R"({"type": "ImageConv", "image_size": 6, "channels": [4], "strides": [1],
                     "kernel": [5, 5], "batch_size": 16, "pool": "max", "head": "flatten",
                     "data": "glyphs"})"},
      {.config = R"({"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 16,
                     "data": "glyphs", "augment": {"type": "Drawn", "permute": 0.5}})"},
      {.config = R"({"type": "ImageMLP", "image_size": 6, "hidden": [5], "batch_size": 16,
                     "data": "glyphs", "augment": {"type": "CTAugment", "probes": 3}})"},
      {.config = R"({"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 16,
                     "norm": "batch", "data": "glyphs", "augment": {"type": "CTAugment"}})"},
      {.config = R"({"type": "ImageConv", "image_size": 4, "image_channels": 3, "channels": [3],
                     "strides": [2], "batch_size": 8, "activation": "tanh", "data": "glyphs",
                     "augment": {"type": "CTAugment", "probes": 9, "translate": "fraction"}})"},
      {.config = R"({"type": "ImageMLP", "image_size": 0, "hidden": [3], "batch_size": 16,
                     "data": "mnist1d"})"},
      {.config = R"({"type": "ImageMLP", "image_size": 3, "hidden": [4], "batch_size": 16,
                     "data": "coloured_glyphs"})"},
      {.config = R"({"type": "TorchImageMLP", "image_size": 4, "hidden": [5], "batch_size": 16,
                     "data": "glyphs"})"},
      {.config = R"({"type": "ParametricImageMLP", "family_seed": 65, "data": "glyphs"})"},
      {.config = R"({"type": "TableMLP", "rows": 60, "inputs": 3, "categories": [4], "outputs": 2,
                     "hidden": [5], "activation": "tanh", "batch_size": 1, "noise": 0.1,
                     "unit_range": 3})"},
      {.config = R"({"type": "EmbeddingProduct", "rows": 60, "users": 5, "items": 4, "width": 3,
                     "batch_size": 6})"},
      {.config = R"({"type": "ByteTransformer", "length": 3, "batch_size": 2, "width": 4,
                     "layers": 1, "heads": 2})"},
      {.config = R"({"type": "ImageTransformer", "image_size": 4, "patch": 4, "batch_size": 4,
                     "width": 4, "data": "glyphs", "augment": {"type": "CTAugment", "probes": 2}})"},
      {.config = R"({"type": "ByteLSTM", "length": 3, "batch_size": 2, "width": 4})"},
      {.config = R"({"type": "ImageTransformer", "image_size": 4, "patch": 2, "batch_size": 5,
                     "width": 6, "layers": 2, "heads": 1, "data": "glyphs"})"},
      {.config = R"({"type": "TableMLP", "rows": 60, "inputs": 3, "classes": 3, "hidden": [5],
                     "batch_size": 16, "sampling": "epoch"})"},
      {.config = R"({"type": "TableMLP", "rows": 60, "inputs": 2, "hidden": [5, 4],
                     "batch_size": 16, "norm": "batch", "activation": "tanh"})"},
      {.config = R"({"type": "ReparamWeights", "levels": ["none", "global", "parameter"],
                     "ranges": [0.5, 4, 1, 2], "task": {"type": "FixedDimQuadraticFamily",
                     "dim": 3}})"},
      {.config = R"({"type": "ReparamWeights", "levels": ["tensor"], "ranges": [0.5, 2],
                     "task": {"type": "ImageMLP", "image_size": 3, "hidden": [3],
                     "batch_size": 8, "data": "glyphs"}})"},
      {.config = R"({"type": "NormalizeTaskGradient", "task": {"type": "LogQuadraticTask",
                     "dim": 3}})"},
      {.config = R"({"type": "NormalizeTaskGradient", "task": {"type": "ImageMLP",
                     "image_size": 3, "hidden": [3], "batch_size": 8, "data": "glyphs"}})"},
      {.config = R"({"type": "SubsampleDirections", "directions": 2, "task": {
                     "type": "NoisyQuadraticFamily", "dim": 3}})"},
      {.config = R"({"type": "SubsampleDirections", "directions": 3, "sign": true, "task": {
                     "type": "ImageMLP", "image_size": 3, "hidden": [3], "batch_size": 8,
                     "data": "glyphs"}})"},
      {.config = R"({"type": "ReducedBatchsize", "fraction": 0.3, "task": {"type": "ImageMLP",
                     "image_size": 3, "hidden": [3], "batch_size": 8, "data": "glyphs"}})"},
      {.config = R"({"type": "DelayedGradients", "delay": 2, "task": {
                     "type": "FixedDimQuadraticFamily", "dim": 3}})"},
      {.config = R"({"type": "DelayedGradients", "task": {"type": "ReducedBatchsize",
                     "fraction": 0.5, "task": {"type": "TableMLP", "rows": 60, "inputs": 2,
                     "hidden": [3], "batch_size": 8}}})"},
      {.config = R"({"type": "DelayedGradients", "task": {"type": "ImageMLP", "image_size": 3,
                     "hidden": [3], "batch_size": 8, "data": "glyphs"}})"},
      {.config = R"({"type": "ESTask", "pairs": 2, "task": {"type": "FixedDimQuadraticFamily",
                     "dim": 3}})"},
      {.config = R"({"type": "ESTask", "pairs": 2, "task": {"type": "ImageMLP", "image_size": 3,
                     "hidden": [3], "batch_size": 8, "data": "glyphs"}})"},
      {.config = R"({"type": "TrainedStart", "steps": 20, "fresh_tensors": 0, "task": {
                     "type": "FixedDimQuadraticFamily", "dim": 3}, "earlier": {
                     "type": "FixedDimQuadraticFamily", "dim": 3}})"},
      {.config = R"({"type": "TrainedStart", "steps": 2, "task": {"type": "TableMLP", "rows": 60,
                     "inputs": 2, "hidden": [5, 3], "batch_size": 8, "norm": "batch"},
                     "earlier": {"type": "TableMLP", "rows": 60, "inputs": 2, "hidden": [5, 3],
                     "batch_size": 8, "norm": "batch", "classes": 3, "table_seed": 1}})"},
      {.config = R"({"type": "SampledFamily", "weights": [1, 2, 3], "tasks": [
                     {"type": "QuadraticTask", "dim": 3},
                     {"type": "FixedDimQuadraticFamily", "dim": 3},
                     {"type": "DelayedGradients", "task": {"type": "ReparamWeights",
                      "levels": ["tensor"], "ranges": [0.5, 2], "task": {"type":
                      "ReparamWeights", "ranges": [0.5, 2], "task": {"type": "QuadraticTask",
                      "dim": 3}}}}]})"},
      {.config = R"({"type": "SampledFamily", "tasks": [
                     {"type": "ImageMLP", "image_size": 3, "hidden": [3], "batch_size": 8,
                      "data": "glyphs"},
                     {"type": "ImageMLP", "image_size": 3, "hidden": [3], "batch_size": 8,
                      "data": "glyphs", "activation": "tanh", "distortion": "dim"}]})"},
      {.config = R"({"type": "SampledFamily", "tasks": [
                     {"type": "DelayedGradients", "task": {"type": "ReparamWeights",
                      "levels": ["parameter"], "ranges": [0.5, 2], "task": {"type":
                      "TorchImageMLP", "image_size": 3, "hidden": [3], "batch_size": 8,
                      "data": "glyphs"}}},
                     {"type": "DelayedGradients", "task": {"type": "ImageMLP", "image_size": 3,
                      "hidden": [3], "batch_size": 8, "data": "glyphs"}}]})"},
      {.config =
           R"({"type": "TorchImageConv", "image_size": 5, "image_channels": 3, "channels": [3, 2],
                     "batch_size": 6, "data": "glyphs"})"},
      {.config = R"({"type": "TorchImageAutoencoder", "image_size": 5, "channels": [2, 3],
                     "batch_size": 4, "data": "glyphs"})"},
      {.config = R"({"type": "TorchRowLSTM", "image_size": 4, "hidden_size": 3, "batch_size": 5,
                     "data": "glyphs"})"},
      {.config = R"({"type": "TorchRowLSTM", "image_size": 3, "cell": "gru", "hidden_size": 4,
                     "batch_size": 6, "data": "glyphs"})"},
      {.config = R"({"type": "TorchRowLSTM", "image_size": 3, "cell": "gru", "hidden_size": 7,
                     "batch_size": 5, "data": "glyphs"})"},
      {.config = R"({"type": "TorchSTN", "image_size": 18, "localization_channels": [2, 2],
                     "localization_hidden": 3, "channels": [2, 2], "hidden": 4, "batch_size": 3,
                     "data": "glyphs"})"},
      {.config = R"({"type": "TorchSequenceRegression", "hidden": 3, "steps": 4})"},
      {.config = R"({"type": "ByteLM", "width": 2, "length": 5, "batch_size": 4})"},
      {.config = R"({"type": "ByteLM", "body": "transformer", "width": 4, "length": 5,
                     "batch_size": 4})"},
  };
}

inline std::vector<Example> OptimizerExamples() {
  return {
      {.config = R"({"type": "MLPLOpt", "hidden_size": 4})"},
      {.config = R"({"type": "MLPLOpt"})"},
      {.config = R"({"type": "MLPLOpt", "hidden_size": 4, "progress_features": true,
                     "schedule": "cosine", "relative_step": true, "relative_to_parameter": true,
                     "normalizer_epsilon": 1e-24})"},
      {.config = R"({"type": "MLPLOpt", "hidden_size": 16, "precision": "bf16"})"},
      {.config = R"({"type": "OrthogonalSteps", "optimizer": {"type": "MLPLOpt",
                     "hidden_size": 4}})"},
      {.config = R"({"type": "MatricesAndVectors",
                     "matrices": {"type": "OrthogonalSteps",
                                  "optimizer": {"type": "LearnableSGDM"}},
                     "vectors": {"type": "MLPLOpt", "hidden_size": 4}})"},
      {.config = R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps",
                     "optimizer": {"type": "LearnableSGDM", "learning_rate": 1000}}})"},
      {.config = R"({"type": "UnknownLength", "optimizer": {"type": "MLPLOpt", "hidden_size": 4,
                     "progress_features": true, "schedule": "cosine"}})"},
      {.config = R"({"type": "AdafacMLPLOpt", "initial_rms_decays": [0.9, 0.5],
                     "initial_momentum_decays": [0.5, 0], "initial_adafactor_decays": [0.9, 0]})"},
      {.config = R"({"type": "AdafacMLPLOpt", "hidden_size": 32, "step_mult": 0.01})"},
      {.config = R"({"type": "Celo", "lstm_size": 6})"},
      {.config = R"({"type": "Celo", "scheduled": false, "lstm_size": 5})"},
      {.config = R"({"type": "CeloAdam", "lstm_size": 6})"},
      {.config = R"({"type": "Sinv6", "lstm_size": 7})"},
      {.config = R"({"type": "Celo2"})"},
      {.config = R"({"type": "Celo2", "one_d": "adamw", "weight_decay": 0.1})"},
      {.config = R"({"type": "Celo2", "one_d": "learned", "schedule": "linear"})"},
      {.config = R"({"type": "Celo2Base"})"},
      {.config = R"({"type": "RNNMLPLOpt", "hidden_size": 5, "lstm_hidden_size": 6,
                     "from_lstm_size": 3, "step_mult": 1e-4})"},
      {.config = R"({"type": "LearnableSGD", "learning_rate": 1e-4})"},
      {.config = R"({"type": "LearnableSGDM", "learning_rate": 1e-4})"},
      {.config = R"({"type": "LearnableAdam"})"},
      {.config = R"({"type": "LearnableAdam", "schedule": "cosine"})"},
  };
}

inline std::vector<Example> ScheduleExamples() {
  return {
      {.config = R"({"type": "ScheduledTruncationSchedule", "outer_steps": [0, 10, 1000],
                     "lengths": [3, 50, 20], "std": 15, "min_length": 2})"},
  };
}

// The task is replaced by each task example in turn.
inline std::vector<Example> EstimatorExamples() {
  return {
      {.config = R"({"type": "TruncatedPES", "num_tasks": 3, "trunc_length": 4,
                     "random_initial_iteration_offset": 5, "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3,
                                  "max_length": 9}})",
       .inner_steps = int64_t{2} * 3 * 4},
      {.config = R"({"type": "TruncatedES", "num_tasks": 6, "trunc_length": 3,
                     "meta_loss": "inner_valid", "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3,
                                  "max_length": 9}})",
       .inner_steps = int64_t{2} * 6 * 3},
      {.config = R"({"type": "TruncatedES", "num_tasks": 2, "trunc_length": 5, "carried": "mean",
                     "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3,
                                  "max_length": 9}})",
       .inner_steps = int64_t{3} * 2 * 5},
      {.config = R"({"type": "TruncatedNRES", "num_tasks": 3, "trunc_length": 4, "burn_in": 9,
                     "random_initial_iteration_offset": 8, "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3,
                                  "max_length": 9}})",
       .inner_steps = int64_t{2} * 3 * 4},
      {.config = R"({"type": "GPESK", "num_tasks": 3, "trunc_length": 4, "K": 3,
                     "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3,
                                  "max_length": 9}})",
       .inner_steps = int64_t{2} * 3 * 4},
      {.config = R"({"type": "FullES", "num_tasks": 3, "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "ConstantTruncationSchedule", "total_length": 7}})",
       .inner_steps = int64_t{2} * 3 * 7},
      {.config = R"({"type": "FullES", "num_tasks": 2, "loss_type": "last_recompute",
                     "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3,
                                  "max_length": 9}})"},
      {.config = R"({"type": "TruncatedPES", "num_tasks": 3, "trunc_length": 4,
                     "directions": "orthogonal", "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "ConstantTruncationSchedule", "total_length": 6}})",
       .inner_steps = int64_t{2} * 3 * 4},
      {.config = R"({"type": "TruncatedES", "num_tasks": 4, "trunc_length": 3,
                     "directions": "orthogonal", "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "ConstantTruncationSchedule", "total_length": 6}})",
       .inner_steps = int64_t{2} * 4 * 3},
      {.config = R"({"type": "FullES", "num_tasks": 9, "directions": "orthogonal",
                     "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "ConstantTruncationSchedule", "total_length": 3}})",
       .inner_steps = int64_t{2} * 9 * 3},
      {.config = R"({"type": "FullGrad", "num_tasks": 2, "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "ConstantTruncationSchedule", "total_length": 5}})",
       .inner_steps = int64_t{2} * 5,
       .needs_derivatives = true},
      {.config = R"({"type": "TruncatedGrad", "num_tasks": 2, "trunc_length": 3,
                     "task": {"type": "QuadraticTask"}, "random_initial_iteration_offset": 3,
                     "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3,
                                  "max_length": 6}})",
       .inner_steps = int64_t{2} * 3,
       .needs_derivatives = true},
  };
}

}  // namespace lopt::contracts
