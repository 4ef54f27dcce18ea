#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lopt {

// Learned optimizers, by a name, that between them use every type and every option of its steps
// that a theta file can have.
inline std::vector<std::pair<std::string, std::string>> OptimizerExamples() {
  return {
      {"MLPLOpt", R"({"type": "MLPLOpt"})"},
      {"MLPLOpt-options",
       R"({"type": "MLPLOpt", "hidden_size": 8, "progress_features": true, "schedule": "cosine",
           "relative_step": true, "relative_to_parameter": true, "step_mult": 0.1,
           "normalizer_epsilon": 1e-12})"},
      {"MLPLOpt-bf16", R"({"type": "MLPLOpt", "precision": "bf16"})"},
      {"AdafacMLPLOpt", R"({"type": "AdafacMLPLOpt"})"},
      {"Celo", R"({"type": "Celo"})"},
      {"Celo-alone", R"({"type": "Celo", "scheduled": false})"},
      {"CeloAdam", R"({"type": "CeloAdam"})"},
      {"Celo2Base", R"({"type": "Celo2Base", "weight_decay": 0.01, "schedule": "linear"})"},
      {"Celo2", R"({"type": "Celo2"})"},
      {"Celo2-learned", R"({"type": "Celo2", "one_d": "learned", "schedule": "warmup-cosine"})"},
      {"Celo2-adamw", R"({"type": "Celo2", "one_d": "adamw", "weight_decay": 0.01})"},
      {"RNNMLPLOpt", R"({"type": "RNNMLPLOpt"})"},
      {"LearnableSGD", R"({"type": "LearnableSGD", "schedule": "warmup-cosine"})"},
      {"LearnableSGDM", R"({"type": "LearnableSGDM"})"},
      {"LearnableAdam", R"({"type": "LearnableAdam", "schedule": "cosine", "weight_decay": 0.01})"},
      {"OrthogonalSteps-SGDM",
       R"({"type": "OrthogonalSteps", "optimizer": {"type": "LearnableSGDM"}})"},
      {"OrthogonalSteps-MLPLOpt",
       R"({"type": "OrthogonalSteps", "optimizer": {"type": "MLPLOpt"}})"},
      {"MatricesAndVectors",
       R"({"type": "MatricesAndVectors", "matrices": {"type": "AdafacMLPLOpt"},
           "vectors": {"type": "LearnableAdam"}})"},
      {"LearnedScheduler-MatricesAndVectors",
       R"({"type": "LearnedScheduler", "optimizer": {"type": "MatricesAndVectors",
           "matrices": {"type": "OrthogonalSteps",
                        "optimizer": {"type": "LearnableSGDM", "learning_rate": 100}},
           "vectors": {"type": "MLPLOpt", "step_mult": 1}}})"},
      {"LearnedScheduler-recommended",
       R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps",
           "optimizer": {"type": "LearnableSGDM", "learning_rate": 100}}})"},
      {"LearnedScheduler-Adam",
       R"({"type": "LearnedScheduler", "optimizer": {"type": "LearnableAdam"}})"},
      {"UnknownLength",
       R"({"type": "UnknownLength", "optimizer": {"type": "LearnedScheduler",
           "optimizer": {"type": "OrthogonalSteps",
                         "optimizer": {"type": "LearnableSGDM", "learning_rate": 100}}}})"},
      {"LearnedScheduler-Adafac",
       R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps",
           "optimizer": {"type": "AdafacMLPLOpt", "step_mult": 0.1}}})"},
  };
}

}  // namespace lopt
