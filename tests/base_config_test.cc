#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lopt/base/describe_fields.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/options.h"
#include "lopt/base/type_table.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

struct QuadraticOptions {
  int64_t dim = 10;
  double scale = 1;

  void Visit(FieldVisitor& v) {
    v.Field("dim", &dim, AtLeast(1), "Dimensions.");
    v.Field("scale", &scale, Above(0), "Scale.");
  }
};

struct MlpOptions {
  std::vector<int64_t> hidden = {32};

  void Visit(FieldVisitor& v) { v.Field("hidden", &hidden, AtLeast(1), "Layer sizes."); }
};

struct MixtureOptions {
  std::vector<Config> tasks;

  void Visit(FieldVisitor& v);
};

const TypeTable& Tasks() {
  static const TypeTable table = [] {
    TypeTable tasks("task");
    tasks.Add({"Quadratic", "A bowl.", [](FieldVisitor& v) { QuadraticOptions().Visit(v); }});
    tasks.Add({"ImageMLP", "A network.", [](FieldVisitor& v) { MlpOptions().Visit(v); }});
    tasks.Add({"Mixture", "Several.", [](FieldVisitor& v) { MixtureOptions().Visit(v); }});
    return tasks;
  }();
  return table;
}

void MixtureOptions::Visit(FieldVisitor& v) { v.Typed("tasks", &tasks, Tasks(), "The tasks."); }

enum class LossType { kAvg, kMin, kLast };
constexpr Named<LossType> kLossTypes[] = {
    {LossType::kAvg, "avg"}, {LossType::kMin, "min"}, {LossType::kLast, "last"}};

struct PesOptions {
  int64_t num_tasks = 4;
  double std = 0.01;
  std::optional<double> clip;
  bool sign = false;
  LossType loss_type = LossType::kAvg;
  std::string note;
  std::vector<double> weights = {1, 0.5};
  Config task;
  Config reserve = Config::FromJson({{"type", "Quadratic"}, {"dim", 3}});

  void Visit(FieldVisitor& v) {
    v.Field("num_tasks", &num_tasks, AtLeast(1), "Pairs | of replicas.");
    v.Field("std", &std, Above(0), "Standard deviation.");
    v.Field("clip", &clip, Above(0), "Largest loss.");
    v.Field("sign", &sign, "Sign only.");
    v.Choice("loss_type", &loss_type, kLossTypes, "The loss.");
    v.Field("note", &note, "Any text.");
    v.Field("weights", &weights, Between(0, 1), "Weights.");
    v.Typed("task", &task, Tasks(), "The task.");
    v.Typed("reserve", &reserve, Tasks(), "Another task.");
  }
};

struct RunOptions {
  std::vector<Config> tasks;
  int64_t seed = 0;

  void Visit(FieldVisitor& v) {
    v.Typed("tasks", &tasks, Tasks(), "The tasks.");
    v.Field("seed", &seed, {}, "The seed.");
  }
};

enum class Mode { kNone, kA, kB };
constexpr Named<Mode> kModes[] = {{Mode::kA, "a"}, {Mode::kB, "b"}};

struct RequiredOptions {
  int64_t steps = 0;
  double rate = 0;
  Mode mode = Mode::kNone;

  void Visit(FieldVisitor& v) {
    v.Field("steps", &steps, AtLeast(1), "Steps.");
    v.Field("rate", &rate, Above(0), "Rate.");
    v.Choice("mode", &mode, kModes, "Mode.");
  }
};

// The config of an estimator as it stands in a file, with `members` besides the task.
Config Pes(const std::string& members) {
  const Config file = Config::Parse(R"({"task": {"type": "Quadratic"}, )" + members + "}", "f");
  return Config::FromJson(file.json(), "estimators[0]");
}

template <class Options>
std::string ReadError(const Config& config) {
  try {
    ReadOptions<Options>(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

std::string PesError(const std::string& members) { return ReadError<PesOptions>(Pes(members)); }

std::string ParseError(const std::string& text) {
  try {
    Config::Parse(text, "c.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

std::string WithError(const Config& config, const std::string& dotted, const std::string& value) {
  try {
    config.With(dotted, value);
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

}  // namespace

TEST_CASE("a config may have comments and keeps the order of its keys") {
  const Config config =
      Config::Parse("// one\n{\"z\": 1, /* two\n */ \"a\": [true] // three\n}", "f");
  CHECK(config.Dump(-1) == R"({"z":1,"a":[true]})");
  CHECK(config.path().empty());
}

TEST_CASE("a config file is read, and one that is not there is an Error") {
  const TempDirectory directory;
  const std::string path = directory / "c.json";
  CHECK_THROWS_AS(Config::Load(path), Error);
  WriteTextFile(path, "{\"a\": 1}");
  CHECK(Config::Load(path).Dump(-1) == R"({"a":1})");
  WriteTextFile(path, "{\"a\": 1,\n}");
  CHECK_THROWS_WITH_AS(
      Config::Load(path),
      (path +
       ": line 2, column 1: syntax error while parsing object key - unexpected '}'; expected "
       "string literal")
          .c_str(),
      Error);
}

TEST_CASE("a key that appears twice is an Error with its path and line") {
  CHECK(ParseError("{\"a\": 1,\n \"a\": 2}") == "c.json: line 2: key 'a' appears twice");
  CHECK(ParseError("{\"estimators\": [{},\n\n {\"task\": {\"dim\": 1, \"dim\": 1}}]}") ==
        "c.json: line 3: key 'estimators[1].task.dim' appears twice");
  CHECK(ParseError("{\"a\": {\"x\": 1}, \"b\": {\"x\": 1}}") == "no Error");
}

TEST_CASE("text that is not a JSON object is an Error with its line") {
  CHECK(ParseError("[1]") == "c.json: line 1: a config must be a JSON object, got [1]");
  CHECK(ParseError("") == "c.json: it is empty; wanted JSON");
  CHECK(ParseError("{\"a\": NaN}").starts_with("c.json: line 1, column 7: "));
  // As a crash may leave behind what was written.
  for (const char* behind : {"", "{\"a\": 1}", "}"}) {
    CHECK(
        ParseError(std::string("{\n}") + '\0' + behind) ==
        "c.json: line 2: a byte of value 0, which no JSON text has: damaged, or UTF-16 or UTF-32?");
  }
  CHECK(ParseError("{\"a\": 1e999}") == "c.json: line 1: number overflow parsing '1e999'");
  CHECK(ParseError("{\"a\": \"\xff\"}").starts_with("c.json: line 1, column 8: "));
  CHECK(ParseError("{\"a\": /* 1}").find("invalid comment; missing closing '*/'") !=
        std::string::npos);
}

TEST_CASE("fields are filled from a config and keep their defaults where it is silent") {
  const PesOptions options = ReadOptions<PesOptions>(Pes(
      R"("num_tasks": 16, "clip": 2, "sign": true, "loss_type": "min", "weights": [0, 1, 0.25])"));
  CHECK(options.num_tasks == 16);
  CHECK(options.std == 0.01);
  CHECK(options.clip == 2);
  CHECK(options.sign);
  CHECK(options.loss_type == LossType::kMin);
  CHECK(options.weights == std::vector<double>{0, 1, 0.25});
  CHECK(options.task.path() == "estimators[0].task");
  CHECK(options.task.Type() == "Quadratic");
  CHECK(options.reserve.path() == "estimators[0].reserve");
  CHECK(ReadOptions<QuadraticOptions>(options.reserve).dim == 3);
  CHECK_FALSE(ReadOptions<PesOptions>(Pes(R"("clip": null)")).clip.has_value());
}

TEST_CASE("an unknown key is an Error that lists the valid ones") {
  CHECK(PesError(R"("stdd": 1)") ==
        "config: unknown key 'estimators[0].stdd'; valid keys: num_tasks, std, clip, sign, "
        "loss_type, note, weights, task, reserve; did you mean 'std'?");
  CHECK(PesError(R"("temperature": 1)") ==
        "config: unknown key 'estimators[0].temperature'; valid keys: num_tasks, std, clip, sign, "
        "loss_type, note, weights, task, reserve");
  CHECK(PesError(R"("num_taks": 1)").ends_with("; did you mean 'num_tasks'?"));
  CHECK(PesError(R"("Loss_Type": 1)").ends_with("; did you mean 'loss_type'?"));
  CHECK(PesError(R"("type": "TruncatedPES")") == "no Error");
}

TEST_CASE("a missing key that an unknown one means is not reported again") {
  CHECK(ReadError<PesOptions>(Config::Parse(R"({"tsak": {"type": "Quadratic"}})", "f")) ==
        "config: unknown key 'tsak'; valid keys: num_tasks, std, clip, sign, loss_type, note, "
        "weights, task, reserve; did you mean 'task'?");
}

TEST_CASE("a value of the wrong type is an Error with its path") {
  CHECK(PesError(R"("std": "abc")") ==
        "config: 'estimators[0].std' must be a number above 0, got \"abc\"");
  CHECK(PesError(R"("std": null)") ==
        "config: 'estimators[0].std' must be a number above 0, got null");
  CHECK(PesError(R"("sign": 1)") == "config: 'estimators[0].sign' must be true or false, got 1");
  CHECK(PesError(R"("note": 1)") == "config: 'estimators[0].note' must be text, got 1");
  CHECK(PesError(R"("clip": "no")") ==
        "config: 'estimators[0].clip' must be a number above 0, got \"no\"");
  CHECK(PesError(R"("weights": 1)") ==
        "config: 'estimators[0].weights' must be a list of numbers in [0, 1], got 1");
  CHECK(PesError(R"("weights": [0, "a"])") ==
        "config: 'estimators[0].weights[1]' must be a number in [0, 1], got \"a\"");
  CHECK(PesError(R"("reserve": "Quadratic")") ==
        "config: 'estimators[0].reserve' must be an object with a \"type\", got \"Quadratic\"; "
        "valid types of task: Quadratic, ImageMLP, Mixture");
  CHECK(ReadError<RunOptions>(Config::Parse(R"({"tasks": {"type": "Quadratic"}})", "f")) ==
        "config: 'tasks' must be a list of objects with a \"type\", got {\"type\":\"Quadratic\"}");
}

TEST_CASE("a number out of range is an Error with its range") {
  CHECK(PesError(R"("std": -1)") == "config: 'estimators[0].std' must be a number above 0, got -1");
  CHECK(PesError(R"("std": 0)") == "config: 'estimators[0].std' must be a number above 0, got 0");
  CHECK(PesError(R"("std": 5e-324)") == "no Error");
  CHECK(PesError(R"("num_tasks": 0)") ==
        "config: 'estimators[0].num_tasks' must be an integer of at least 1, got 0");
  CHECK(PesError(R"("clip": 0)") == "config: 'estimators[0].clip' must be a number above 0, got 0");
  CHECK(PesError(R"("weights": [0, 1.5])") ==
        "config: 'estimators[0].weights[1]' must be a number in [0, 1], got 1.5");
  CHECK(ReadError<MlpOptions>(Config::Parse(R"({"hidden": [8, 0]})", "f")) ==
        "config: 'hidden[1]' must be an integer of at least 1, got 0");
}

TEST_CASE("every kind of range has its words and its bounds") {
  struct RangeCase {
    Range range;
    std::string words;
    double outside;
    double inside;
  };
  const std::vector<RangeCase> cases = {
      {{.max = 2}, "a number of at most 2", 2.5, 2},
      {{.max = 2, .open_max = true}, "a number below 2", 2, 1.5},
      {{.min = 0, .max = 1, .open_max = true}, "a number in [0, 1)", 1, 0},
      {{.min = 0, .max = 1, .open_min = true}, "a number in (0, 1]", 0, 1},
      {{.min = -0.5}, "a number of at least -0.5", -1, -0.5},
  };
  for (const RangeCase& c : cases) {
    double value = c.inside;
    const VisitFields fields = [&](FieldVisitor& v) { v.Field("x", &value, c.range, ""); };
    ReadFields(Config::FromJson({{"x", c.inside}}), fields);
    CHECK(value == c.inside);
    const nlohmann::ordered_json outside = {{"x", c.outside}};
    CHECK_THROWS_WITH_AS(
        ReadFields(Config::FromJson(outside), fields),
        ("config: 'x' must be " + c.words + ", got " + outside["x"].dump()).c_str(), Error);
  }
}

TEST_CASE("integers are exact to 64 bits and never made from fractions") {
  const auto seed = [](const std::string& number) {
    return ReadOptions<RunOptions>(Config::Parse("{\"seed\": " + number + "}", "f")).seed;
  };
  CHECK(seed("9007199254740993") == 9007199254740993);
  CHECK(seed("9223372036854775807") == INT64_MAX);
  CHECK(seed("-9223372036854775808") == INT64_MIN);
  CHECK_THROWS_WITH_AS(seed("9223372036854775808"),
                       "config: 'seed' must be an integer below 2^63, got 9223372036854775808",
                       Error);
  CHECK_THROWS_WITH_AS(seed("3.0"), "config: 'seed' must be an integer, got 3.0", Error);
  CHECK_THROWS_WITH_AS(seed("1e3"), "config: 'seed' must be an integer, got 1000.0", Error);
  CHECK_THROWS_WITH_AS(seed("true"), "config: 'seed' must be an integer, got true", Error);
}

TEST_CASE("text that is none of the choices is an Error that lists them") {
  CHECK(PesError(R"("loss_type": "agv")") ==
        "config: 'estimators[0].loss_type' must be one of avg, min, last, got \"agv\"; did you "
        "mean 'avg'?");
  CHECK(PesError(R"("loss_type": 3)") ==
        "config: 'estimators[0].loss_type' must be one of avg, min, last, got 3");
}

TEST_CASE("a key without a valid default must be given") {
  const auto error = [](const std::string& text) {
    return ReadError<RequiredOptions>(Config::Parse(text, "f"));
  };
  CHECK(error(R"({"rate": 1, "mode": "b"})") ==
        "config: 'steps' is missing; it must be an integer of at least 1");
  CHECK(error(R"({"steps": 1, "mode": "a"})") ==
        "config: 'rate' is missing; it must be a number above 0");
  CHECK(error(R"({"steps": 1, "rate": 1})") == "config: 'mode' is missing; it must be one of a, b");
  CHECK(error(R"({"steps": 1, "rate": 1, "mode": "b"})") == "no Error");
}

TEST_CASE("a typed key that is missing or names no type is an Error that lists the types") {
  CHECK(
      ReadError<PesOptions>(Config::FromJson(nlohmann::ordered_json::object(), "estimators[0]")) ==
      "config: 'estimators[0].task' is missing; valid types of task: Quadratic, ImageMLP, "
      "Mixture");
  CHECK(PesError(R"("reserve": {"type": "Quadratc"})") ==
        "config: 'estimators[0].reserve.type' is 'Quadratc'; valid types of task: Quadratic, "
        "ImageMLP, Mixture; did you mean 'Quadratic'?");
  CHECK(PesError(R"("reserve": {"type": "Transformer"})") ==
        "config: 'estimators[0].reserve.type' is 'Transformer'; valid types of task: Quadratic, "
        "ImageMLP, Mixture");
  CHECK(PesError(R"("reserve": {"dim": 1})") ==
        "config: 'estimators[0].reserve.type' is missing; valid types of task: Quadratic, "
        "ImageMLP, Mixture");
  CHECK(PesError(R"("reserve": {"type": 7})") ==
        "config: 'estimators[0].reserve.type' must be text, got 7; valid types of task: Quadratic, "
        "ImageMLP, Mixture");
}

TEST_CASE("errors in nested typed objects have their full path") {
  CHECK(PesError(R"("reserve": {"type": "Quadratic", "dims": 1})") ==
        "config: unknown key 'estimators[0].reserve.dims'; valid keys: dim, scale; did you mean "
        "'dim'?");
  CHECK(PesError(R"("reserve": {"type": "Mixture", "tasks": [{"type": "ImageMLP"},
                     {"type": "Quadratic", "scale": -2}]})") ==
        "config: 'estimators[0].reserve.tasks[1].scale' must be a number above 0, got -2");
}

TEST_CASE("a list of typed objects is read in order and may be empty") {
  const Config config =
      Config::Parse(R"({"tasks": [{"type": "ImageMLP"}, {"type": "Quadratic"}]})", "f");
  const RunOptions options = ReadOptions<RunOptions>(config);
  REQUIRE(options.tasks.size() == 2);
  CHECK(options.tasks[0].Type() == "ImageMLP");
  CHECK(options.tasks[1].path() == "tasks[1]");
  CHECK(ReadOptions<RunOptions>(Config::Parse("{}", "f")).tasks.empty());
  CHECK(ReadError<RunOptions>(Config::Parse(R"({"tasks": [3]})", "f")) ==
        "config: 'tasks[0]' must be an object with a \"type\", got 3; valid types of task: "
        "Quadratic, ImageMLP, Mixture");
}

TEST_CASE("writing shows every value in order, nested defaults included") {
  PesOptions options;
  options.task = Config::FromJson({{"type", "Mixture"}, {"tasks", {{{"type", "ImageMLP"}}}}});
  CHECK(WriteOptions("TruncatedPES", options).Dump(-1) ==
        R"({"type":"TruncatedPES","num_tasks":4,"std":0.01,"clip":null,"sign":false,)"
        R"("loss_type":"avg","note":"","weights":[1.0,0.5],)"
        R"("task":{"type":"Mixture","tasks":[{"type":"ImageMLP","hidden":[32]}]},)"
        R"("reserve":{"type":"Quadratic","dim":3,"scale":1.0}})");
  CHECK(WriteOptions("", QuadraticOptions()).Dump(-1) == R"({"dim":10,"scale":1.0})");
  CHECK_FALSE(WriteOptions("", PesOptions()).json().contains("task"));
}

TEST_CASE("what was written reads back the same") {
  PesOptions options;
  options.num_tasks = 9007199254740993;
  options.std = 0.1 + 0.2;
  options.clip = 1e-300;
  options.note = "a \"b\" \xc3\xa9";
  options.weights = {};
  options.task = Config::FromJson({{"type", "ImageMLP"}, {"hidden", {8, 16}}});
  const Config written = WriteOptions("TruncatedPES", options);
  const PesOptions read = ReadOptions<PesOptions>(Config::Parse(written.Dump(), "f"));
  CHECK(read.num_tasks == options.num_tasks);
  CHECK(read.std == options.std);
  CHECK(read.clip == options.clip);
  CHECK(read.note == options.note);
  CHECK(read.weights.empty());
  CHECK(WriteOptions("TruncatedPES", read).Dump() == written.Dump());
}

TEST_CASE("writing a nested object that is not valid is an Error") {
  PesOptions options;
  options.task = Config::FromJson({{"type", "Quadratic"}, {"dims", 1}});
  CHECK_THROWS_WITH_AS(WriteOptions("", options),
                       "config: unknown key 'task.dims'; valid keys: dim, scale; did you mean "
                       "'dim'?",
                       Error);
  QuadraticOptions infinite;
  infinite.scale = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH_AS(WriteOptions("", infinite),
                       "config: 'scale' is inf, which a config cannot hold", Error);
}

TEST_CASE("a description is a list with an item per key") {
  CHECK(DescribeFields([](FieldVisitor& v) { PesOptions().Visit(v); }) ==
        "- `num_tasks`: integer at least 1; default `4`. Pairs | of replicas.\n"
        "- `std`: number above 0; default `0.01`. Standard deviation.\n"
        "- `clip`: null or number above 0; default `null`. Largest loss.\n"
        "- `sign`: true or false; default `false`. Sign only.\n"
        "- `loss_type`: `avg`, `min`, `last`; default `\"avg\"`. The loss.\n"
        "- `note`: text; default `\"\"`. Any text.\n"
        "- `weights`: list of numbers in [0, 1]; default `[1.0,0.5]`. Weights.\n"
        "- `task`: object, task: `Quadratic`, `ImageMLP`, `Mixture`; required. The task.\n"
        "- `reserve`: object, task: `Quadratic`, `ImageMLP`, `Mixture`; default "
        "`{\"type\":\"Quadratic\",\"dim\":3}`. Another task.\n");
  CHECK(DescribeFields([](FieldVisitor& v) { RequiredOptions().Visit(v); }) ==
        "- `steps`: integer at least 1; required. Steps.\n"
        "- `rate`: number above 0; required. Rate.\n"
        "- `mode`: `a`, `b`; required. Mode.\n");
}

TEST_CASE("With replaces a value that a path of keys names") {
  const Config config = Config::Parse(
      R"({"estimators": [{"std": 1, "hidden": [1, 2]}, {"std": 2}], "seed": 0})", "f");
  CHECK(config.With("estimators[1].std", "0.5").Dump(-1) ==
        R"({"estimators":[{"std":1,"hidden":[1,2]},{"std":0.5}],"seed":0})");
  CHECK(config.With("estimators.1.std", "0.5").Dump(-1) ==
        R"({"estimators":[{"std":1,"hidden":[1,2]},{"std":0.5}],"seed":0})");
  CHECK(config.With("estimators.0.hidden[1]", "null").Dump(-1) ==
        R"({"estimators":[{"std":1,"hidden":[1,null]},{"std":2}],"seed":0})");
  CHECK(config.With("estimators", "[]").Dump(-1) == R"({"estimators":[],"seed":0})");
  CHECK(config.With("seed", "9007199254740993").Dump(-1).ends_with(R"("seed":9007199254740993})"));
  CHECK(config.With("note", "fast").Dump(-1).ends_with(R"("seed":0,"note":"fast"})"));
  CHECK(config.With("note", "\"7\"").Dump(-1).ends_with(R"("note":"7"})"));
  CHECK(config.With("note", "").Dump(-1).ends_with(R"("note":""})"));
  CHECK(config.With("task", R"({"type": "Quadratic"})")
            .Dump(-1)
            .ends_with(R"("task":{"type":"Quadratic"}})"));
  CHECK(config.Dump(-1) == R"({"estimators":[{"std":1,"hidden":[1,2]},{"std":2}],"seed":0})");
}

TEST_CASE("With is an Error where the path leads nowhere") {
  const Config config = Config::Parse(R"({"estimators": [{"std": 1}], "seed": 0})", "f");
  CHECK(WithError(config, "estimator[0].std", "1") ==
        "config: 'estimator' does not exist; keys of the config: estimators, seed");
  CHECK(WithError(config, "estimators[0].task.dim", "1") ==
        "config: 'estimators[0].task' does not exist; keys of 'estimators[0]': std");
  CHECK(WithError(config, "estimators[1].std", "1") ==
        "config: 'estimators' has 1 elements, so there is no element '1'");
  CHECK(WithError(config, "estimators.std", "1") ==
        "config: 'estimators' has 1 elements, so there is no element 'std'");
  CHECK(WithError(config, "seed.x", "1") == "config: 'seed.x' does not exist: 'seed' is 0");
  for (const std::string path :
       {"", ".", "a.", ".a", "a..b", "a[", "a[x]", "a[0]b", "[0]", "a[]"}) {
    CHECK(WithError(config, path, "1") ==
          "config: '" + path + "' is not a path of keys such as estimators[0].std");
  }
  CHECK(WithError(config, "seed", R"({"a": 1, "a": 2})") ==
        R"(config: value '{"a": 1, "a": 2}': line 1: key 'a' appears twice)");
  CHECK(WithError(config, "seed", "\xff") == "config: the value for 'seed' is not UTF-8");
}

TEST_CASE("Differences has a line per value that differs") {
  const Config ours = Config::Parse(
      R"({"seed": 1, "a": [1, 2], "estimators": [{"std": 0.01, "n": 4}], "only": {"x": 1}})", "f");
  const Config theirs = Config::Parse(
      R"({"estimators": [{"n": 4.0, "std": 0.02}], "seed": 2, "a": [1], "more": null})", "f");
  CHECK(ours.Differences(theirs, {}, "here", "in the checkpoint") ==
        std::vector<std::string>{"seed: 1 here, 2 in the checkpoint",
                                 "a[1]: 2 here, absent in the checkpoint",
                                 "estimators[0].std: 0.01 here, 0.02 in the checkpoint",
                                 "only: {\"x\":1} here, absent in the checkpoint",
                                 "more: absent here, null in the checkpoint"});
  CHECK(ours.Differences(theirs, {"seed", "a", "only", "more", "estimators"}, "", "").empty());
  CHECK(ours.Differences(ours, {}, "here", "there").empty());
  CHECK(Config::Parse(R"({"a": {"b": 1}})", "f")
            .Differences(Config::Parse(R"({"a": [1]})", "f"), {}, "here", "there") ==
        std::vector<std::string>{"a: {\"b\":1} here, [1] there"});
}

TEST_CASE("a config that is not there is an Error when it is read") {
  CHECK(Config().empty());
  CHECK_THROWS_WITH_AS(Config().json(), "config: the config is missing", Error);
  CHECK_THROWS_WITH_AS(Config::FromJson(nlohmann::ordered_json(3), "a.b"),
                       "config: 'a.b' must be an object, got 3", Error);
  CHECK_THROWS_WITH_AS(Config::Parse("{}", "f").Type(), "config: 'type' is missing", Error);
  CHECK_THROWS_WITH_AS(Config::FromJson({{"type", 1}}, "a").Type(),
                       "config: 'a.type' must be text, got 1", Error);
}

TEST_CASE("a key that an options struct shows twice is an Error") {
  int64_t value = 0;
  CHECK_THROWS_WITH_AS(WriteFields("",
                                   [&](FieldVisitor& v) {
                                     v.Field("x", &value, {}, "");
                                     v.Field("x", &value, {}, "");
                                   }),
                       "config: the key 'x' is declared twice", Error);
}

}  // namespace lopt
