// How long episodes are, and how windows cut them.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"

// Five lengths that a schedule draws, at outer step 0 and at 10,000.
void ShowLengths(const std::string& name, const lopt::TruncationSchedule& schedule) {
  for (const int64_t outer_step : {0, 10000}) {
    fmt::print("{}, outer step {}:", name, outer_step);
    for (const lopt::Key& key : lopt::SplitKey(lopt::KeyFromSeed(0), 5)) {
      fmt::print(" {}", schedule.Length(key, {.outer_step = outer_step}));
    }
    fmt::print("\n");
  }
}

int main() {
  ShowLengths("constant", lopt::ConstantTruncationSchedule({.total_length = 30}));
  ShowLengths("log-uniform",
              lopt::LogUniformLengthSchedule({.min_length = 100, .max_length = 10000}));
  ShowLengths("scheduled", lopt::ScheduledTruncationSchedule(
                               {.outer_steps = {0, 10000}, .lengths = {10, 1000}, .std = 2}));

  // Four replicas of one task under one theta, with episodes of 30 steps. The offset makes the
  // first episode of each shorter by a number of its own, so that they do not run in step.
  const auto optimizer = lopt::OptimizerRegistry().Make(
      lopt::Config::Parse(R"({"type": "LearnableAdam", "learning_rate": 0.1})", "optimizer"));
  const auto task = lopt::TaskRegistry().Make(
      lopt::Config::Parse(R"({"type": "FixedDimQuadraticFamily", "dim": 5})", "task"),
      lopt::TaskResources(""));
  const auto schedule = std::make_shared<lopt::ConstantTruncationSchedule>(
      lopt::ConstantTruncationSchedule::Options{.total_length = 30});
  const lopt::LoptProblem problem(task, optimizer, schedule,
                                  {.random_initial_iteration_offset = 30});

  const Eigen::VectorXf theta = optimizer->InitTheta(lopt::KeyFromSeed(0));
  const lopt::ThetaRows rows = {.theta = lopt::AsSpan(theta), .rows = 4};
  const std::vector<lopt::Key> keys = lopt::SplitKey(lopt::KeyFromSeed(1), 4);
  lopt::UnrollState state = problem.Start(rows, {}, keys);

  // Windows of 20 steps: an episode that ends inside one restarts at once, with a new task.
  int64_t ended = 0;
  for (int window = 0; window < 6; ++window) {
    lopt::UnrollTrace trace;
    problem.Run({.theta = rows,
                 .outer = {.outer_step = window},
                 .keys = keys,
                 .steps = 20,
                 .state = &state,
                 .trace = &trace});
    fmt::print("window {}: inner steps at its start", window);
    for (int b = 0; b < 4; ++b) fmt::print(" {:2}", trace.iteration(0, b));
    fmt::print(", {} episodes ended\n", trace.is_last.count());
    ended += trace.is_last.count();
  }
  // 120 steps are four episodes of 30, and one more where the first was cut short.
  return ended >= 4 * 4 && ended <= 4 * 5 ? 0 : 1;
}
