#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/base/record.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/bench/estimator_bench.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// x^2 from x = 1, whatever the key; nothing that the torch module knows.
class UnitQuadratic : public TaskFamily {
 public:
  struct Options {
    void Visit(FieldVisitor&) {}
  };
  UnitQuadratic() : TaskFamily({.params = Layout({{"x", {1}}})}) {}

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    params[0] = 1;
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    for (int64_t row = 0; row < e.rows; ++row) {
      e.losses[row] = e.params[row] * e.params[row];
      if (!e.gradients.empty()) e.gradients[row] = 2 * e.params[row];
    }
  }
};

MetaTrainConfig Configured(const std::string& task, const std::string& estimators) {
  return ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "LearnableSGD", "learning_rate": 0.05}, "seed": 1,
          "estimators": [)" +
          estimators + "]}",
      task));
}

std::string Keys(const std::string& task, int64_t tasks) {
  return R"(, "num_tasks": )" + std::to_string(tasks) + R"(, "task": {"type": ")" + task + R"("},
      "lengths": {"type": "ConstantTruncationSchedule", "total_length": 10}})";
}

std::string Windowed(const std::string& type, const std::string& task, int64_t tasks) {
  return R"({"type": ")" + type + R"(", "trunc_length": 5, "std": 0.1)" + Keys(task, tasks);
}

EstimatorBench Run(const MetaTrainConfig& config, int64_t runs) {
  Eigen::VectorXf theta(1);
  theta(0) = std::log(0.05F);
  return BenchEstimators(config, theta, {.runs = runs, .windows = {}});
}

void CheckInInterval(const Measured& measured, double wanted) {
  CAPTURE(measured.value);
  CAPTURE(measured.low);
  CAPTURE(measured.high);
  CAPTURE(wanted);
  // Four standard errors.
  CHECK(std::abs(measured.value - wanted) <
        4 / 1.96 * std::max(measured.high - measured.value, measured.value - measured.low));
}

TEST_CASE("PES varies less than NRES over an episode and more in its second window") {
  TaskRegistry().Add<UnitQuadratic::Options>(
      "UnitQuadratic", "x^2 from 1.", [](const UnitQuadratic::Options&, const TaskResources&) {
        return std::make_shared<UnitQuadratic>();
      });
  EstimatorBench bench;
  ThreadPool(2).Run([&] {
    bench = Run(Configured("test", Windowed("TruncatedPES", "UnitQuadratic", 1) + ", " +
                                       Windowed("TruncatedNRES", "UnitQuadratic", 1)),
                40000);
  });
  REQUIRE(bench.estimators.size() == 6);  // windows 0, 1 and all, of each
  const EstimatorQuality* pes = bench.estimators.data();
  const EstimatorQuality* nres = pes + 3;
  CHECK(pes[1].window == 1);
  CHECK_FALSE(nres[2].window.has_value());
  CheckInInterval(pes[0].variance, .116217);
  CheckInInterval(nres[0].variance, .116217);
  CheckInInterval(pes[1].variance, .272681);
  CheckInInterval(nres[1].variance, .238627);
  CheckInInterval(pes[2].variance, .160492);
  CheckInInterval(nres[2].variance, .171975);
  CHECK(pes[2].variance.high < nres[2].variance.low);
  CHECK(nres[1].variance.high < pes[1].variance.low);
  CHECK(pes[0].inner_steps == 10);
  CHECK(pes[2].inner_steps == 20);
  // Without derivatives the whole is compared with FullES, which has the same smoothed gradient.
  CHECK(pes[0].reference == "none");
  CHECK(pes[2].reference == "FullES");
  CHECK(pes[2].bias.low == 0);
  CheckInInterval(pes[2].gradient_norm, .294511);
  // The logarithm of the loss after t steps is 2 t ln(1 - g) with g = 2 e^theta, so the gradient of
  // the mean of 10 is -9 g / (1 - g); std^2 / 2 times its second derivative smooths it.
  ThreadPool(2).Run([&] {
    bench = Run(Configured("test", R"({"type": "FullES", "std": 0.1, "meta_loss_log": 1e-6)" +
                                       Keys("UnitQuadratic", 1)),
                4000);
  });
  REQUIRE(bench.estimators.size() == 1);
  CHECK(bench.estimators[0].reference == "FullES");
  CHECK(bench.estimators[0].bias.low == 0);
  CheckInInterval(bench.estimators[0].gradient_norm, 1.0068);
  // That after the last step, and so its gradient, is 20 / 9 of the mean's.
  ThreadPool(2).Run([&] {
    bench = Run(Configured("test", R"({"type": "FullES", "std": 0.1, "meta_loss_log": 1e-6,
                                       "loss_type": "last_recompute", "recompute_samples": 1)" +
                                       Keys("UnitQuadratic", 1)),
                4000);
  });
  CHECK(bench.estimators[0].reference == "FullES");
  CHECK(bench.estimators[0].bias.low == 0);
  CheckInInterval(bench.estimators[0].gradient_norm, 2.2373);
  // Windows that are not one episode have no reference of whole episodes.
  ThreadPool(2).Run([&] {
    bench = Run(Configured("test", R"({"type": "TruncatedPES", "trunc_length": 4, "std": 0.1)" +
                                       Keys("UnitQuadratic", 1)),
                100);
  });
  CHECK(bench.estimators.back().reference == "none");
  ThreadPool(2).Run([&] {
    bench = Run(Configured("test", R"({"type": "TruncatedPES", "trunc_length": 5, "std": 0.1,
                                       "burn_in": 10)" +
                                       Keys("UnitQuadratic", 1)),
                3);
  });
  CHECK(bench.estimators.back().reference == "none");
  CHECK(bench.estimators.back().inexact ==
        "after a burn_in of 10 inner steps tasks are no longer where an exact gradient begins");
}

TEST_CASE("Intervals of the bench hold what is known of normal numbers") {
  // 400 columns with mean (3, 4) / 5 and covariance 4 I.
  Eigen::MatrixXd runs(2, 400);
  std::vector<float> normal(800);
  Normal(KeyFromSeed(2), normal);
  for (int64_t i = 0; i < 800; ++i) runs(i % 2, i / 2) = (i % 2 == 0 ? 0.6 : 0.8) + 2 * normal[i];
  CheckInInterval(NormOfMean(runs), 1);
  CheckInInterval(TraceOfCovariance(runs), 8);
  const Eigen::MatrixXd centered = runs.colwise() - Eigen::VectorXd(runs.rowwise().mean());
  CHECK(NormOfMean(centered).value < 0.1);
  CHECK(NormOfMean(centered).low == 0);
  // The mean of 400 such columns is sqrt(8 / 400) long.
  CHECK(NormOfMean(centered).high > 0.1);
  CHECK(NormOfMean(centered).high < 0.2);
  // The products of different columns are 0, 1 and 1; with themselves they would be 1, 1 and 2.
  CHECK(NormOfMean(Eigen::MatrixXd{{1, 0, 1}, {0, 1, 1}}).value ==
        doctest::Approx(std::sqrt(2.0 / 3)));
  const Eigen::MatrixXd exact = Eigen::Vector2d(0.6, 0.8).replicate(1, 400);
  CHECK(MeanCosine(exact, exact).value == doctest::Approx(1));
  CHECK(MeanCosine(-exact, exact).low == doctest::Approx(-1));
}

// In so many runs.
void FindBias(int64_t runs) {
  if (!FindModule(kTorchModule)) {
    SkipTest("there is no torch module");
    return;
  }
  const std::string task = "QuadraticTask";
  EstimatorBench bench;
  ThreadPool(2).Run([&] {
    bench =
        Run(Configured("test",
                       Windowed("TruncatedES", task, 8) + ", " + Windowed("TruncatedPES", task, 8) +
                           R"(, {"type": "FullGrad")" + Keys(task, 4) +
                           R"(, {"type": "TruncatedGrad", "trunc_length": 5)" + Keys(task, 4)),
            runs);
  });
  REQUIRE(bench.estimators.size() == 10);
  const EstimatorQuality& es = bench.estimators[2];
  CHECK(es.reference == "FullGrad");
  CheckInInterval(es.bias, 1 - .16278 / .29580);
  CHECK(es.bias.low > 0.2);
  CHECK(bench.estimators[0].bias.high < 0.2);  // the first window leaves nothing out
  CHECK(bench.estimators[1].bias.low > 0.5);   // 1 - .0843 / .3499
  CHECK(bench.estimators[5].bias.low == 0);    // PES
  const EstimatorQuality& full = bench.estimators[6];
  CHECK(full.type == "FullGrad");
  CHECK_FALSE(full.inexact.has_value());
  CHECK(full.bias.high == 0);
  CHECK(full.cosine.value == doctest::Approx(1));
  CHECK(full.inner_steps == 40);
  CheckInInterval(bench.estimators[9].bias, 1 - .162992041 / .29580010222);
  CHECK(full.VariancePer1000Steps().value == doctest::Approx(full.variance.value * 0.04));
}

TEST_CASE("Bias is found where there is some, and the exact gradient has neither bias nor noise") {
  FindBias(40);
}

TEST_CASE("An exact gradient that is not finite is no reference, and the bench can be written") {
  if (!FindModule(kTorchModule)) {
    SkipTest("there is no torch module");
    return;
  }
  // Params behind pixels that are always 0 have steps of 0 / (sqrt(0) + epsilon), which have no
  // derivative.
  const std::string problem = R"(, "num_tasks": 1, "std": 0.01,
      "task": {"type": "ImageMLP", "image_size": 8, "hidden": [2], "batch_size": 2},
      "lengths": {"type": "ConstantTruncationSchedule", "total_length": 4}})";
  const auto config = ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "LearnableAdam", "epsilon_root": 0}, "estimators": [
          {"type": "FullES")" +
          problem + R"(, {"type": "TruncatedPES", "trunc_length": 2)" + problem + "]}",
      "test"));
  const Eigen::VectorXf theta =
      OptimizerRegistry().Make(config.learned_optimizer)->InitTheta(Key{});
  EstimatorBench bench;
  ThreadPool(1).Run([&] { bench = BenchEstimators(config, theta, {.runs = 3, .windows = {}}); });
  REQUIRE(bench.estimators.size() == 4);  // FullES; windows 0, 1 and all of PES
  for (const EstimatorQuality& row : bench.estimators) {
    CHECK(row.reference == (row.window ? "none" : "FullES"));
    CHECK(row.inexact ==
          "the gradient of FullGrad is not finite: it may grow without bound over so many steps");
  }
  CHECK(ParseRecord<EstimatorBench>(RecordText(bench, 2), "test").estimators.size() == 4);
}

TEST_CASE("A directory that cannot be made ends the bench of estimators before it computes") {
  const TempDirectory directory;
  WriteTextFile(directory / "config.json", R"({"learned_optimizer": {"type": "LearnableSGD"}})");
  WriteTextFile(directory / "file", "");
  const auto errors_of = [&](const std::string& out) {
    return RunProcess({BuildPath("lopt"), "bench", "--estimators", directory / "config.json",
                       "--out", directory / out})
        .errors;
  };
  CHECK(errors_of("new") == "lopt: estimator bench: the config has no estimators\n");
  CHECK(errors_of("file/new").starts_with("lopt: cannot create the directory "));
}

TEST_CASE("What stands in the way of an exact gradient is in the bench's table and its JSON") {
  const TempDirectory directory;
  const std::string module = directory / "liblopt_torch_module.so";
  WriteTextFile(
      module, "not a library, and long enough to hold the header of one: " + std::string(100, '.'));
  setenv("LOPT_MODULE_DIR", directory.path().c_str(), 1);
  for (const std::string type : {"TruncatedPES", "FullES"}) {
    CAPTURE(type);
    WriteTextFile(directory / "config.json",
                  R"({"learned_optimizer": {"type": "LearnableSGD"}, "estimators": [{"type": ")" +
                      type + "\"" + Keys("QuadraticTask", 2) + "]}");
    const std::vector<std::string> words = {BuildPath("lopt"),         "bench",  "--estimators",
                                            directory / "config.json", "--runs", "3"};
    const FinishedProcess table = RunProcess(words);
    INFO(table.errors);
    REQUIRE(table.exit_code == 0);
    const std::string why = "estimator '" +
                            std::string(type == "FullES" ? "FullGrad" : "TruncatedGrad") +
                            "' needs the torch module " + module +
                            ", which cannot be loaded: " + module + ": invalid ELF header";
    CHECK(table.output.ends_with("\n0_QuadraticTask: no exact gradient: " + why + "\n"));
    std::vector<std::string> json = words;
    json.emplace_back("--json");
    const auto bench = ParseRecord<EstimatorBench>(RunProcess(json).output, "standard output");
    CHECK(bench.estimators.back().reference == "FullES");
    CHECK(bench.estimators.back().inexact == why);
  }
  unsetenv("LOPT_MODULE_DIR");
}

TEST_CASE("Bias is found in more runs" * doctest::test_suite("nightly")) { FindBias(80); }

TEST_CASE("The bench of estimators prints a table or JSON and writes what a report draws") {
  const TempDirectory directory;
  WriteTextFile(directory / "config.json",
                R"({"learned_optimizer": {"type": "LearnableSGD"}, "estimators": [
                    {"type": "TruncatedPES", "num_tasks": 2, "trunc_length": 5,
                     "task": {"type": "QuadraticTask"},
                     "lengths": {"type": "ConstantTruncationSchedule", "total_length": 10}}]})");
  const std::string program = BuildPath("lopt");
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {program,  "bench", "--estimators", directory / "config.json",
                                      "--runs", "5",     "--threads",    "2"};
    words.insert(words.end(), more.begin(), more.end());
    return RunProcess(words);
  };
  const FinishedProcess json = run({"--json", "--out", directory / "bench"});
  INFO(json.errors);
  REQUIRE(json.exit_code == 0);
  const auto bench = ParseRecord<EstimatorBench>(json.output, "standard output");
  CHECK(json.output.starts_with("{"));
  CHECK(bench.theta == "as initialised");
  CHECK(bench.estimators.size() == 3);
  CHECK(bench.estimators[0].seconds > 0);
  const FinishedProcess table = run({});
  CHECK(table.exit_code == 0);
  CHECK(table.output.find("0_QuadraticTask") != std::string::npos);
  const FinishedProcess few = run({"--runs", "2"});
  CHECK(few.exit_code == 2);
  const FinishedProcess report = RunProcess({program, "report", directory / "bench"});
  INFO(report.errors);
  REQUIRE(report.exit_code == 0);
  const std::string page = ReadTextFile(directory / "bench/report.html");
  CHECK(page.find("Variance at equal compute: QuadraticTask") != std::string::npos);
  CHECK(page.find("<svg") != std::string::npos);
  CHECK(RunProcess({program, "bench", "--out", "x"})
            .errors.find("bench: --out goes with "
                         "--estimators") != std::string::npos);
}

}  // namespace
}  // namespace lopt
