#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "count_allocations.h"
#include "lopt/base/eigen.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

TEST_CASE(
    "The inner loop allocates nothing: a long window takes as many allocations as a short one") {
  const TaskResources resources("");
  for (const std::string task :
       {R"({"type": "FixedDimQuadraticFamily"})", R"({"type": "ImageMLP", "batch_size": 32})"}) {
    for (const std::string optimizer : {R"({"type": "MLPLOpt"})", R"({"type": "LearnableAdam"})"}) {
      for (const MetaLoss meta_loss : {MetaLoss::kBeforeUpdate, MetaLoss::kOuterValid}) {
        if (meta_loss == MetaLoss::kOuterValid && task.find("ImageMLP") == std::string::npos)
          continue;
        CAPTURE(task);
        CAPTURE(optimizer);
        const auto made = OptimizerRegistry().Make(Config::Parse(optimizer, "test"));
        const LoptProblem problem(TaskRegistry().Make(Config::Parse(task, "test"), resources), made,
                                  std::make_shared<ConstantTruncationSchedule>(
                                      ConstantTruncationSchedule::Options{.total_length = 7}),
                                  {.meta_loss = meta_loss});
        const Eigen::VectorXf theta = made->InitTheta(KeyFromSeed(1));
        const ThetaRows rows{.theta = AsSpan(theta), .rows = 2};
        const std::vector<Key> keys = SplitKey(KeyFromSeed(3), 2);
        UnrollState state = problem.Start(rows, {}, SplitKey(KeyFromSeed(2), 2));
        UnrollTrace trace;
        const auto allocations_of = [&](int64_t steps) {
          const int64_t before = allocations;
          problem.Run(
              {.theta = rows, .keys = keys, .steps = steps, .state = &state, .trace = &trace});
          return allocations - before;
        };
        allocations_of(40);
        CHECK(allocations_of(40) == allocations_of(3));
      }
    }
  }
}

}  // namespace
}  // namespace lopt
