#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "base/type_table.h"
#include "estimators/registry.h"
#include "learner/learning_rate_schedule.h"
#include "learner/meta_train_config.h"
#include "learner/theta_opt.h"
#include "lopt/learnable.h"
#include "lopt/mlp_lopt.h"
#include "lopt/registry.h"
#include "tasks/image_mlp.h"
#include "tasks/quadratic.h"
#include "tasks/registry.h"
#include "tests/contracts/wrong_values.h"

namespace lopt {
namespace {

std::string MessageOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

// Reads every wrong value of every field as a config has it. What else is missing is reported too
// and is none of this test's business.
int CheckWrongConfigs(const VisitFields& fields, const std::string& path) {
  int checked = 0;
  for (int number = 0;; ++number) {
    WrongValue wrong(number);
    fields(wrong);
    if (wrong.field().empty()) return checked;
    if (!wrong.json()) continue;
    const Config config = Config::FromJson({{wrong.field(), *wrong.json()}}, path);
    const std::string message = MessageOf([&] { ReadFields(config, fields); });
    CAPTURE(message);
    CHECK_NE(message.find("'" + path + "." + wrong.field()), std::string::npos);
    CHECK(message.starts_with("config: "));
    ++checked;
  }
}

// Constructs with every wrong value that C++ can have.
template <class Options, class Construct>
void CheckConstructor(const std::string& who, const Construct& construct) {
  CHECK_NOTHROW(construct(Options()));
  int checked = 0;
  for (int number = 0;; ++number) {
    Options options;
    WrongValue wrong(number);
    options.Visit(wrong);
    if (wrong.field().empty()) break;
    if (!wrong.is_set()) continue;
    const std::string message = MessageOf([&] { construct(options); });
    CAPTURE(message);
    CAPTURE(wrong.field());
    CHECK(message.starts_with(who + ": "));
    CHECK_NE(message.find(wrong.field()), std::string::npos);
    ++checked;
  }
  CHECK_GT(checked, 0);
}

template <class Made, class Options>
void CheckConstructor(const std::string& who) {
  CheckConstructor<Options>(who, [](const Options& options) { Made made(options); });
}

}  // namespace

TEST_CASE("A config with a wrong value of any field of any type is an Error with its path") {
  const std::vector<const TypeTable*> tables = {
      &TaskRegistry().table(),     &OptimizerRegistry().table(),
      &ScheduleRegistry().table(), &EstimatorRegistry().table(),
      &ThetaOptRegistry().table(), &LearningRateScheduleRegistry().table()};
  for (const TypeTable* table : tables) {
    int checked = 0;
    for (const TypeEntry& entry : table->entries()) {
      CAPTURE(entry.type);
      checked += CheckWrongConfigs(entry.fields, "some[0].thing");
    }
    CHECK_MESSAGE(checked > 5, table->kind());
  }
  CHECK(CheckWrongConfigs([](FieldVisitor& v) { MetaTrainConfig().Visit(v); }, "c") > 50);
}

TEST_CASE("Constructors refuse every wrong value of their options") {
  CheckConstructor<MLPLOpt, MLPLOptOptions>("MLPLOpt");
  CheckConstructor<LearnableSGD, LearnableSGDOptions>("LearnableSGD");
  CheckConstructor<LearnableSGDM, LearnableSGDMOptions>("LearnableSGDM");
  CheckConstructor<LearnableAdam, LearnableAdamOptions>("LearnableAdam");
  CheckConstructor<QuadraticTask, QuadraticOptions>("QuadraticTask");
  CheckConstructor<FixedDimQuadraticFamily, QuadraticOptions>("FixedDimQuadraticFamily");
  CheckConstructor<NoisyQuadraticFamily, NoisyQuadraticOptions>("NoisyQuadraticFamily");
  CheckConstructor<LogQuadraticTask, QuadraticOptions>("LogQuadraticTask");
}

}  // namespace lopt
