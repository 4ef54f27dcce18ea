#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "lopt/base/error.h"
#include "lopt/estimators/full_es.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/registry.h"
#include "lopt/estimators/truncated_es.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/registry.h"
#include "tests/error_of.h"
#include "toy_problem.h"

namespace lopt {
namespace {

std::shared_ptr<ToyProblem> Toy() {
  return std::make_shared<ToyProblem>(ToyProblem::Dynamics{
      .theta_size = 1,
      .start = {1},
      .length = 0,
      .advance = [](std::span<const double>, std::span<double>, int64_t) { return 0.0; }});
}

std::shared_ptr<const TruncationSchedule> TenSteps() {
  return std::make_shared<ConstantTruncationSchedule>(
      ConstantTruncationSchedule::Options{.total_length = 10});
}

std::string FullEsError(const FullES::Options& options) {
  return ErrorOf([&] { FullES(Toy(), TenSteps(), options); });
}

std::string PesError(const TruncatedOptions& options) {
  return ErrorOf([&] { TruncatedPES(Toy(), options); });
}

std::string ProblemError(const LoptProblemOptions& options) {
  return ErrorOf([&] {
    LoptProblem(TaskRegistry().Make(Config::Parse(R"({"type": "FixedDimQuadraticFamily"})", "test"),
                                    TaskResources("")),
                OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableSGD"})", "test")),
                TenSteps(), options);
  });
}

TEST_CASE("Options of estimators that cannot be are refused in C++ as in a config") {
  CHECK(FullEsError({}) == "no error");
  CHECK(FullEsError({.num_tasks = 0}) == "FullES: num_tasks must be in [1, 100000], got 0");
  CHECK(FullEsError({.std = 0}) == "FullES: std must be above 0, got 0");
  CHECK(FullEsError({.loss_type = static_cast<FullES::LossType>(7)}) ==
        "FullES: loss_type must be one of avg, min, last, last_recompute, got number 7");
  CHECK(FullEsError({.recompute_samples = 0}) ==
        "FullES: recompute_samples must be in [1, 100000], got 0");
  CHECK(FullEsError({.clip_loss_diff = -1.0}) == "FullES: clip_loss_diff must be above 0, got -1");
  CHECK(
      FullEsError({.clip_loss_diff = 0.5, .sign_delta_loss_scalar = 2}) ==
      "FullES: clip_loss_diff is 0.5 and sign_delta_loss_scalar 2, but a sign has nothing to clip; "
      "wanted one of them");
  CHECK(FullEsError({.clip_loss_diff = 0.5}) == "no error");
  CHECK(FullEsError({.sign_delta_loss_scalar = 2}) == "no error");
  CHECK(PesError({}) == "no error");
  CHECK(PesError({.trunc_length = 0}) ==
        "TruncatedPES: trunc_length must be in [1, 10000000], got 0");
  CHECK(PesError({.std = std::nan("")}) == "TruncatedPES: std must be finite, got nan");
  CHECK(ErrorOf([] { TruncatedES(Toy(), {{.trunc_length = 0}}); }) ==
        "TruncatedES: trunc_length must be in [1, 10000000], got 0");
  CHECK(PesError({.sign_delta_loss_scalar = 0}) ==
        "TruncatedPES: sign_delta_loss_scalar must be above 0, got 0");
  CHECK(PesError({.burn_in = -1}) == "TruncatedPES: burn_in must be in [0, 10000000], got -1");
  CHECK(ErrorOf([] { TruncatedNRES(Toy(), {.num_tasks = 0}); }) ==
        "TruncatedNRES: num_tasks must be in [1, 100000], got 0");
  CHECK(PesError({.directions = static_cast<Directions>(2)}) ==
        "TruncatedPES: directions must be one of independent, orthogonal, got number 2");
  CHECK(ErrorOf([] { TruncatedNRES(Toy(), {.directions = Directions::kOrthogonal}); }) ==
        "TruncatedNRES: its perturbations outlive windows and begin when episodes do, so they "
        "cannot be orthogonal; wanted directions 'independent'");
  CHECK(ErrorOf([] {
          GPESK(Toy(), {{.directions = Directions::kOrthogonal}, 3});
        }).starts_with("GPESK: its perturbations outlive windows"));
  CHECK(ErrorOf([] { GPESK(Toy(), {}); }) == "GPESK: K must be in [1, 10000000], got 0");
  CHECK(ErrorOf([] {
          TruncatedES(Toy(), {{}, static_cast<TruncatedES::Carried>(2)});
        }) == "TruncatedES: carried must be one of positive, mean, got number 2");
}

TEST_CASE("Options of inner problems and schedules that cannot be are refused in C++") {
  CHECK(ProblemError({}) == "no error");
  CHECK(ProblemError({.meta_loss = static_cast<MetaLoss>(-1)}) ==
        "inner problem: meta_loss must be one of before_update, same_data, train, inner_valid, "
        "outer_valid, test, got number -1");
  CHECK(ProblemError({.non_finite = static_cast<NonFinite>(3)}) ==
        "inner problem: non_finite must be one of count, clip, abort, got number 3");
  CHECK(ProblemError({.random_initial_iteration_offset = int64_t{1} << 31}) ==
        "inner problem: random_initial_iteration_offset must be in [0, 2147483647], got "
        "2147483648");
  CHECK(ProblemError({.random_initial_iteration_multiple = 5}) ==
        "inner problem: random_initial_iteration_multiple is 5, but "
        "random_initial_iteration_offset is 0; no episode is made shorter");
  const auto of_registry = [](const std::string& text) {
    return ErrorOf([&] {
      EstimatorRegistry().Make(Config::Parse(text, "test"), std::make_shared<MLPLOpt>(),
                               TaskResources(""));
    });
  };
  CHECK(of_registry(R"({"type": "FullES", "task": {"type": "QuadraticTask"},
                        "lengths": {"type": "ConstantTruncationSchedule", "total_length": 20},
                        "random_initial_iteration_offset": 5})")
            .find("random_initial_iteration_offset is 5, but no first episode can be shorter") !=
        std::string::npos);
  CHECK(ErrorOf([] { ConstantTruncationSchedule({.total_length = 0}); }) ==
        "ConstantTruncationSchedule: total_length must be in [1, 10000000], got 0");
  CHECK(ErrorOf([] { LogUniformLengthSchedule({.min_length = 0, .max_length = 9}); }) ==
        "LogUniformLengthSchedule: min_length must be in [1, 10000000], got 0");
  CHECK(ErrorOf([] { ScheduledTruncationSchedule({.std = -1}); }) ==
        "ScheduledTruncationSchedule: std must be in [0, 10000000], got -1");
  CHECK(ErrorOf([] { ScheduledTruncationSchedule({.std = 1e19}); }) ==
        "ScheduledTruncationSchedule: std must be in [0, 10000000], got 1e+19");
}

TEST_CASE("The same options in a config are refused with their path") {
  const auto error = [](const std::string& more) {
    return ErrorOf([&] {
      EstimatorRegistry().Make(
          Config::Parse(R"({"type": "FullES", "task": {"type": "FixedDimQuadraticFamily"},
                            "lengths": {"type": "ConstantTruncationSchedule"}, )" +
                            more + "}",
                        "test"),
          OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableSGD"})", "test")),
          TaskResources(""));
    });
  };
  CHECK(error(R"("std": 0.1)") == "no error");
  CHECK(error(R"("loss_type": "mean")").find("loss_type") != std::string::npos);
  CHECK(error(R"("meta_loss": "outer_vald")").find("outer_valid") != std::string::npos);
  CHECK(error(R"("random_initial_iteration_offset": 2147483648)").find("2147483647") !=
        std::string::npos);
}

TEST_CASE("An optimizer that needs the length of the run is refused where episodes do not end") {
  const auto make = [](const std::string& type, const std::string& schedule) {
    return EstimatorRegistry().Make(
        Config::Parse(R"({"type": ")" + type + R"(", "task": {"type": "FixedDimQuadraticFamily"},
                          "lengths": {"type": ")" +
                          schedule + R"("}})",
                      "test"),
        OptimizerRegistry().Make(
            Config::Parse(R"({"type": "LearnableAdam", "schedule": "cosine"})", "test")),
        TaskResources(""));
  };
  const std::string never =
      "inner problem: LearnableAdam with schedule 'cosine' needs the length of episodes, which do "
      "not end (NeverEndingTruncationSchedule); choose another schedule";
  for (const std::string type : {"TruncatedPES", "TruncatedNRES", "TruncatedES"}) {
    CHECK(ErrorOf([&] { make(type, "NeverEndingTruncationSchedule"); }) == never);
    CHECK(ErrorOf([&] { make(type, "ConstantTruncationSchedule"); }) == "no error");
  }
  CHECK(ErrorOf([&] { make("FullES", "ConstantTruncationSchedule"); }) == "no error");

  const auto cosine = OptimizerRegistry().Make(
      Config::Parse(R"({"type": "LearnableAdam", "schedule": "cosine"})", "test"));
  const LoptProblem problem(
      TaskRegistry().Make(Config::Parse(R"({"type": "FixedDimQuadraticFamily"})", "test"),
                          TaskResources("")),
      cosine, std::make_shared<NeverEndingTruncationSchedule>(), {});
  const Eigen::VectorXf theta = cosine->InitTheta({});
  const Key key = KeyFromSeed(1);
  const ThetaRows rows{.theta = {theta.data(), static_cast<size_t>(theta.size())}, .rows = 1};
  CHECK(ErrorOf([&] { problem.Start(rows, {}, {&key, 1}); }) == never);
  CHECK(ErrorOf([&] { problem.Start(rows, {}, {&key, 1}, 10); }) == "no error");
}

}  // namespace
}  // namespace lopt
