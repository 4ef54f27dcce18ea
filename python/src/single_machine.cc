#include "lopt/python/src/single_machine.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/metrics.h"
#include "lopt/base/parallel.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/updates.h"
#include "lopt/learner/run/update_metrics.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/python/src/long_call.h"
#include "lopt/python/src/pickle.h"
#include "lopt/tasks/registry.h"

namespace lopt::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace)

namespace {

// Runs `work` on so many threads, with interrupts. `who` calls it.
void RunOnThreads(const char* who, nb::handle threads, const std::function<void()>& work) {
  ThreadPool pool(ThreadsOf(threads));
  LongCall call(who);
  call.Run([&] { pool.Run(work); });
}

SingleMachineState InitSingleMachine(const Experiment& e, Key key,
                                     std::optional<Eigen::VectorXf> theta) {
  SingleMachineState state;
  const auto workers = static_cast<size_t>(e.config.workers);
  state.run.learner = theta ? e.learner.Init(std::move(*theta)) : e.learner.Init(ThetaKey(key));
  state.run.totals.resize(e.estimators.size());
  state.run.ledger = Ledger(e.config.workers, std::ssize(e.estimators));
  state.workers.resize(workers);
  const WorkerWeights weights = e.learner.GetStateForWorker(state.run.learner);
  ParallelFor(e.config.workers, [&](int64_t w) {
    state.workers[static_cast<size_t>(w)] =
        InitWorkerState(weights, e.estimators, WorkerKey(key, w));
  });
  return state;
}

UpdateSummary UpdateSingleMachine(const Experiment& e, Key key, SingleMachineState* state) {
  std::vector<Key> keys;
  std::vector<WorkerGradient> gradients;
  for (int64_t w = 0; w < e.config.workers; ++w) keys.push_back(WorkerKey(key, w));
  for (const WorkerState& worker : state->workers) {
    gradients.push_back({.worker = std::ssize(gradients),
                         .first_window = worker.windows,
                         .windows = e.config.windows_per_update});
  }
  std::vector<AggregatedGradient> to_put =
      ComputeWorkers(e.learner.GetStateForWorker(state->run.learner), e.estimators,
                     e.config.windows_per_update, keys, state->workers, e.learner.weighting());
  for (size_t w = 0; w < to_put.size(); ++w) gradients[w].gradient = std::move(to_put[w]);
  return UpdateTheta(e.learner, std::move(gradients), {}, &state->run);
}

// Those that metrics.jsonl has of the update that led to a state.
Metrics MetricsOfUpdate(const Experiment& e, const UpdateSummary& summary, const RunState& run) {
  Metrics metrics = MetricsOf(summary, e.estimator_names, run.learner, run.totals);
  AddLedgerMetrics(run.ledger, e.estimator_names, e.config.worker_metrics, &metrics);
  return metrics;
}

// Whether the family of a task has one task only.
bool IsOneTask(const Config& task, const std::string& data_dir) {
  const TaskResources resources(data_dir);
  const bool one = TaskRegistry().Make(task, resources)->config_layout().size() == 0;
  Require(data_dir.empty() || resources.data_dir_used(),
          "data_dir is {}, but the task {} does not read from it", data_dir, task.Type());
  return one;
}

}  // namespace

void BindSingleMachine(nb::module_& m) {
  nb::class_<SingleMachineState>(
      m, "SingleMachineState",
      "Everything of a SingleMachineGradientLearner that lives between two updates.")
      .def_prop_ro(
          "learner",
          [](const SingleMachineState& state) -> const LearnerState& { return state.run.learner; },
          nb::rv_policy::reference_internal, "Theta and the state of its optimizer.")
      .def_ro("workers", &SingleMachineState::workers, "Copies of the states of the workers.")
      .def_prop_ro(
          "totals",
          [](const SingleMachineState& state) {
            nb::list totals;
            for (const StepCounts& counts : state.run.totals) totals.append(ToPython(counts));
            return totals;
          },
          nb::sig("def totals(self) -> list[dict[str, int]]"),
          "What each estimator has run since init, as AggregatedGradient.counts.")
      .def(Pickled());

  m.def(
      "single_machine_init",
      [](const Experiment& experiment, Key key, nb::handle theta, nb::handle threads) {
        std::optional<Eigen::VectorXf> given;
        if (!theta.is_none()) given = FloatsOf(theta, "theta");
        SingleMachineState state;
        RunOnThreads("SingleMachineGradientLearner.init", threads,
                     [&] { state = InitSingleMachine(experiment, key, std::move(given)); });
        return state;
      },
      "experiment"_a, "key"_a, "theta"_a.none(), "threads"_a.none(),
      nb::sig("def single_machine_init(experiment: Experiment, key: Key, theta: numpy.ndarray | "
              "None, threads: int | None) -> SingleMachineState"),
      "What SingleMachineGradientLearner.init returns.");
  m.def(
      "single_machine_update",
      [](const Experiment& experiment, const SingleMachineState& state, Key key,
         nb::handle threads) {
        SingleMachineState next;
        UpdateSummary summary;
        Metrics metrics;
        RunOnThreads("SingleMachineGradientLearner.update", threads, [&] {
          next = state;
          summary = UpdateSingleMachine(experiment, key, &next);
          metrics = MetricsOfUpdate(experiment, summary, next.run);
        });
        return nb::make_tuple(std::move(next), summary.mean_loss, metrics);
      },
      "experiment"_a, "state"_a, "key"_a, "threads"_a.none(),
      nb::sig("def single_machine_update(experiment: Experiment, state: SingleMachineState, key: "
              "Key, threads: int | None) -> tuple[SingleMachineState, float, dict[str, float]]"),
      "What SingleMachineGradientLearner.update returns with metrics.");
  m.def(
      "is_one_task",
      [](nb::handle task, const std::string& data_dir) {
        const Config config = ConfigOfDict(task, "task");
        const nb::gil_scoped_release released;
        return IsOneTask(config, data_dir);
      },
      "task"_a, "data_dir"_a, nb::sig("def is_one_task(task: dict, data_dir: str) -> bool"),
      "Whether the tasks of this config do not differ in any number.");
}

}  // namespace lopt::python
