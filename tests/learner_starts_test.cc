#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/evaluation/evaluate.h"
#include "lopt/learner/starts.h"
#include "lopt/lopt/registry.h"
#include "tests/logged_lines.h"

namespace lopt {
namespace {

// One that says how it was meta-trained: on trainings of 19 steps.
NamedLearnedOptimizer MetaTrainedOf(const std::string& config) {
  NamedLearnedOptimizer learned;
  learned.name = "mine";
  learned.config = Config::Parse(config, "test");
  learned.optimizer = OptimizerRegistry().Make(learned.config);
  learned.theta = learned.optimizer->InitTheta(KeyFromSeed(7));
  learned.source = "mine.safetensors";
  learned.trained_horizon = 19;
  learned.meta_training = Config::Parse(R"({"seed": 0})", "test");
  return learned;
}

TEST_CASE("A start's steps are multiplied where they make the params that a training stands for") {
  const auto names = [](const std::string& config) {
    EvaluatedOptimizers optimizers{.learned = {MetaTrainedOf(config)}};
    AddStarts(&optimizers);
    return NamesOf(optimizers);
  };
  CHECK(names(R"({"type": "LearnableSGD"})") ==
        std::vector<std::string>{"mine", "mine-start", "mine-start-0.3"});
  const std::vector<std::string> alone = {"mine", "mine-start"};
  CHECK(names(R"({"type": "ScheduleFreeAdamW"})") == alone);
  CHECK(names(R"({"type": "UnknownLength", "optimizer": {"type": "LearnableSGD"}})") == alone);
}

TEST_CASE("Trainings beyond what weights were trained for are named once for all made of these") {
  const EvaluationConfig config = ReadEvaluationConfig(Config::Parse(
      R"({"steps": [20], "tasks": {"bowl": {"task": {"type": "QuadraticTask"}}}})", "test"));
  EvaluatedOptimizers optimizers{.learned = {MetaTrainedOf(R"({"type": "MLPLOpt"})")}};
  AddStarts(&optimizers);
  AddUnknownLengths(&optimizers);
  AddTunedSteps(&optimizers);
  CHECK(NamesOf(optimizers) == std::vector<std::string>{"mine", "mine-tuned", "mine-unknown",
                                                        "mine-start", "mine-start-tuned",
                                                        "mine-start-0.3"});
  const LoggedLines log;
  WarnBeyondHorizons(config, optimizers);
  const std::string text = log.text();
  const std::string warning = "mine was meta-trained on trainings of at most 19 inner steps";
  CHECK(text.find(warning) != std::string::npos);
  CHECK(text.find(warning) == text.rfind("was meta-trained") - std::string("mine ").size());
}

}  // namespace
}  // namespace lopt
