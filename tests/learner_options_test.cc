#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/type_table.h"
#include "lopt/estimators/estimator_options.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/learner/theta_opt.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/float64_rules.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/sequence/byte_lstm.h"
#include "lopt/tasks/sequence/byte_transformer.h"
#include "lopt/tasks/sequence/image_transformer.h"
#include "lopt/tasks/table/embedding_product.h"
#include "lopt/tasks/table/table_mlp.h"
#include "tests/error_of.h"
#include "tests/paths.h"

namespace lopt {
namespace {

// Gives one field of an options struct a value that the field must refuse: a number on the wrong
// side of a bound or not finite, a choice outside its table, an unknown type; in JSON also a value
// of another kind. `number` counts these values over all fields, from 0:
//   for (int number = 0;; ++number) {
//     Options options;
//     WrongValue wrong(number);
//     options.Visit(wrong);
//     if (wrong.field().empty()) break;  // there are no more
//   }
class WrongValue : public FieldVisitor {
 public:
  using Json = nlohmann::ordered_json;

  explicit WrongValue(int number) : left_(number) {}

  const std::string& field() const { return field_; }
  const std::optional<Json>& json() const { return json_; }  // none: JSON has no such value
  bool is_set() const { return is_set_; }  // false: C++ has no such value, the options are right

  void Field(const char* name, bool*, const char*) override { Next(name, "yes"); }
  void Field(const char* name, int64_t* value, Range range, const char*) override {
    Scalar(name, value, range);
  }
  void Field(const char* name, double* value, Range range, const char*) override {
    Scalar(name, value, range);
  }
  void Field(const char* name, std::optional<int64_t>* value, Range range, const char*) override {
    Scalar(name, value, range);
  }
  void Field(const char* name, std::optional<double>* value, Range range, const char*) override {
    Scalar(name, value, range);
  }
  void Field(const char* name, std::vector<int64_t>* value, Range range, const char*) override {
    List(name, value, range);
  }
  void Field(const char* name, std::vector<double>* value, Range range, const char*) override {
    List(name, value, range);
  }
  void Field(const char* name, std::string*, const char*) override { Next(name, 7); }
  void Field(const char* name, std::vector<std::string>*, const char*) override {
    Next(name, "one");
    Next(name, Json::array({7}));
  }
  void Typed(const char* name, Config* value, const TypeTable&, const char*) override {
    const Json unknown = {{"type", "NoSuchType"}};
    Next(name, 7);
    if (Next(name, unknown)) Set(value, Config::FromJson(unknown));
  }
  void Typed(const char* name, std::vector<Config>* value, const TypeTable&, const char*) override {
    const Json unknown = {{"type", "NoSuchType"}};
    Next(name, 7);
    if (Next(name, Json::array({unknown}))) Set(value, {Config::FromJson(unknown)});
  }

 private:
  void Number(const char* name, int64_t* value, ChoiceTable table, const char*) override {
    int64_t outside = 0;
    while (FindName(table, outside) != nullptr) ++outside;
    if (Next(name, "no such choice")) Set(value, outside);
  }
  void NumberList(const char* name, std::vector<int64_t>* value, ChoiceTable table,
                  const char*) override {
    int64_t outside = 0;
    while (FindName(table, outside) != nullptr) ++outside;
    Next(name, 7);
    if (Next(name, Json::array({"no such choice"}))) Set(value, {outside});
  }

  bool Next(const char* name, std::optional<Json> json) {
    if (left_-- != 0) return false;
    field_ = name;
    json_ = std::move(json);
    return true;
  }

  template <class T>
  void Set(T* value, T wrong) {
    *value = std::move(wrong);
    is_set_ = true;
  }

  static std::vector<double> Outside(const Range& range) {
    std::vector<double> numbers;
    if (std::isfinite(range.min)) numbers.push_back(range.open_min ? range.min : range.min - 1);
    if (std::isfinite(range.max)) numbers.push_back(range.open_max ? range.max : range.max + 1);
    return numbers;
  }

  template <class T>
  void Scalar(const char* name, T* value, const Range& range) {
    using Plain = std::decay_t<decltype(std::optional(*value).value())>;
    Next(name, "ten");
    for (const double number : Outside(range)) {
      if (Next(name, static_cast<Plain>(number))) Set(value, T(static_cast<Plain>(number)));
    }
    if constexpr (std::is_same_v<Plain, double>) {
      using Limits = std::numeric_limits<double>;
      for (const double number : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
        if (Next(name, std::nullopt)) Set(value, T(number));
      }
    }
  }

  template <class T>
  void List(const char* name, std::vector<T>* value, const Range& range) {
    Next(name, 7);
    for (const double number : Outside(range)) {
      const T wrong = static_cast<T>(number);
      if (Next(name, Json::array({wrong}))) Set(value, {wrong});
    }
  }

  int left_;
  std::string field_;
  std::optional<Json> json_;
  bool is_set_ = false;
};

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
  const std::vector<const TypeTable*> tables = {&TaskRegistry().table(),
                                                &OptimizerRegistry().table(),
                                                &ScheduleRegistry().table(),
                                                &EstimatorRegistry().table(),
                                                &ThetaOptTypes(),
                                                &RateScheduleTypes()};
  for (const TypeTable* table : tables) {
    int checked = 0;
    for (const TypeEntry& entry : table->entries()) {
      CAPTURE(entry.type);
      checked += CheckWrongConfigs(entry.fields, "some[0].thing");
    }
    CHECK_MESSAGE(checked > 5, table->kind());
  }
  CHECK(CheckWrongConfigs([](FieldVisitor& v) { MetaTrainConfig().Visit(v); }, "c") > 40);
}

TEST_CASE("The lengths of episodes are not called schedule any more, but in runs of old") {
  const Config old = Config::Parse(
      R"({"estimators": [{"type": "FullES", "schedule": {"type": "ConstantTruncationSchedule"},
                          "std": 1}, 3], "theta_opt": {"schedule": "constant"}})",
      "test");
  CHECK(InTodaysKeys(old).Dump(-1) ==
        R"({"estimators":[{"type":"FullES","lengths":{"type":"ConstantTruncationSchedule"},)"
        R"("std":1},3],"theta_opt":{"schedule":"constant"}})");
  CHECK(InTodaysKeys(InTodaysKeys(old)).Dump() == InTodaysKeys(old).Dump());
  CHECK(InTodaysKeys(Config::Parse("{}", "test")).Dump(-1) == "{}");
  const std::string error = ErrorOf([] {
    ReadOptions<EstimatorOptions>(Config::Parse(
        R"({"task": {"type": "QuadraticTask"}, "schedule": {"type": "LogUniformLengthSchedule"}})",
        "test"));
  });
  CAPTURE(error);
  CHECK(error ==
        "config: 'schedule' is now 'lengths'; 'schedule' is the factor of an optimizer's learning "
        "rate");
}

TEST_CASE("Modes, and Adam's betas, of runs of old have today's keys") {
  const auto today = [](const char* old) {
    return InTodaysKeys(Config::Parse(old, "test")).Dump(-1);
  };
  CHECK(today(R"({"mode": "sync", "batch_size": 2, "staleness": 1, "staleness_policy": "drop",
                  "deadline_seconds": 1.5, "quorum": 3, "seed": 4})") ==
        R"({"mode":{"type":"Sync","deadline_seconds":1.5,"quorum":3},"seed":4})");
  CHECK(today(R"({"mode": "async", "batch_size": 2, "staleness": 1, "staleness_policy": "drop",
                  "deadline_seconds": 1.5, "quorum": 3})") ==
        R"({"mode":{"type":"Async","batch_size":2,"staleness":1,"staleness_policy":"drop"}})");
  CHECK(today(R"({"theta_opt": {"type": "AdamW", "b1": 0.8, "b2": 0.9, "epsilon": 1}})") ==
        R"({"theta_opt":{"type":"AdamW","beta1":0.8,"beta2":0.9,"epsilon":1}})");
  for (const char* kept :
       {R"({"mode":{"type":"Sync","quorum":1}})", R"({"mode":"other","quorum":1})",
        R"({"theta_opt":{"type":"OfAPlugIn","b1":0.8}})", R"({"theta_opt":["b1"]})"}) {
    CHECK(today(kept) == kept);
  }
  CHECK(InTodaysKeys(Config()).empty());
}

TEST_CASE("The config in every trained optimizer's file is its preset's, in today's keys") {
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("trained"))) {
    if (entry.path().extension() != ".safetensors") continue;
    CAPTURE(entry.path().string());
    const Config config = InTodaysKeys(ReadThetaFile(entry.path().string()).config);
    const auto read = ReadOptions<MetaTrainConfig>(config);
    CheckConfig(read);
    const auto preset =
        ReadOptions<MetaTrainConfig>(MetaTrainPresets().Find(entry.path().stem().string()));
    // The tutorial's file is of a longer run.
    const std::vector<std::string> others =
        entry.path().stem() == "tutorial" ? std::vector<std::string>{"meta_steps", "metrics_steps"}
                                          : std::vector<std::string>{};
    CHECK(WriteOptions("", read).Differences(WriteOptions("", Resolved(preset)), others,
                                             "in the file", "now") == std::vector<std::string>());
  }
}

TEST_CASE("A learning rate whose logarithm is theta is above 0 where a config is read") {
  for (const char* type :
       {"Adam", "AdamW", "SGD", "SGDM", "LearnableSGD", "LearnableSGDM", "LearnableAdam",
        "Nesterov", "NAdamW", "Lion", "ScheduleFreeAdamW", "Muon", "SOAP"}) {
    for (const int rate : {0, -1}) {
      CAPTURE(type);
      CHECK(MessageOf([&] {
              ReadOptions<MetaTrainConfig>(Config::FromJson(
                  {{"learned_optimizer", {{"type", type}, {"learning_rate", rate}}},
                   {"theta_opt", {{"type", "Adam"}}}}));
            }) == fmt::format("config: 'learned_optimizer.learning_rate' must be a number above "
                              "0, got {}",
                              rate));
    }
  }
}

TEST_CASE("Constructors refuse every wrong value of their options") {
  CheckConstructor<MLPLOpt, MLPLOptOptions>("MLPLOpt");
  CheckConstructor<LearnableSGD, LearnableSGDOptions>("LearnableSGD");
  CheckConstructor<LearnableSGDM, LearnableSGDMOptions>("LearnableSGDM");
  CheckConstructor<LearnableAdam, LearnableAdamOptions>("LearnableAdam");
  CheckConstructor<Adam, AdamOptions>("Adam");
  CheckConstructor<AdamW, AdamWOptions>("AdamW");
  CheckConstructor<SGD, SGDOptions>("SGD");
  CheckConstructor<SGDM, SGDMOptions>("SGDM");
  CheckConstructor<QuadraticTask, QuadraticOptions>("QuadraticTask");
  CheckConstructor<FixedDimQuadraticFamily, QuadraticOptions>("FixedDimQuadraticFamily");
  CheckConstructor<NoisyQuadraticFamily, NoisyQuadraticOptions>("NoisyQuadraticFamily");
  CheckConstructor<LogQuadraticTask, QuadraticOptions>("LogQuadraticTask");
  const auto images = GetImages({}, TaskResources(""));
  CheckConstructor<ImageMlpOptions>(
      "ImageMLP", [&](const ImageMlpOptions& options) { ImageMlp made(options, images); });
  CheckConstructor<ImageTransformerOptions>(
      "ImageTransformer",
      [&](const ImageTransformerOptions& options) { ImageTransformer made(options, images); });
  const auto text = GetText({}, TaskResources(""));
  CheckConstructor<ByteTransformerOptions>(
      "ByteTransformer",
      [&](const ByteTransformerOptions& options) { ByteTransformer made(options, text); });
  CheckConstructor<ByteLstmOptions>(
      "ByteLSTM", [&](const ByteLstmOptions& options) { ByteLstm made(options, text); });
  const auto table = GetTable({}, TaskResources(""));
  CheckConstructor<TableMlpOptions>(
      "TableMLP", [&](const TableMlpOptions& options) { TableMlp made(options, table); });
  const auto ratings = GetRatings({}, TaskResources(""));
  CheckConstructor<EmbeddingProductOptions>(
      "EmbeddingProduct",
      [&](const EmbeddingProductOptions& options) { EmbeddingProduct made(options, ratings); });
  CheckConstructor<RatingsOptions>("EmbeddingProduct",
                                   [](const RatingsOptions& options) { Ratings{options}; });
  CheckConstructor<TableOptions>("table", [](const TableOptions& options) { TableData{options}; });
  CheckConstructor<ImageOptions>(
      "image task", [&](const ImageOptions& options) { ImageClassifierParts(options, *images); });
}

}  // namespace lopt
