#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/parallel.h"
#include "lopt/base/problems.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/frozen.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/learner/worker.h"
#include "lopt/lopt/registry.h"
#include "lopt/python/src/arrays.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/python/src/long_call.h"
#include "lopt/python/src/pickle.h"
#include "lopt/tools/build_info.h"

namespace lopt::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace)

namespace {

// What a meta-training config says of some parts of one, the rest being at its defaults. `who`
// begins messages.
MetaTrainConfig ConfigOfParts(const char* who, const nb::dict& given) {
  MetaTrainConfig config;
  Problems problems(who);
  ReadFields(
      ConfigOfDict(given, who), [&](FieldVisitor& v) { config.Visit(v); }, &problems);
  problems.ThrowIfAny();
  return config;
}

// A class, so that Python passes the estimators of one worker around without knowing what they are.
struct EstimatorList {
  Estimators estimators;
  Weighting weighting;
};

nb::list ListOf(const std::vector<EstimatorReport>& reports) {
  nb::list list;
  for (const EstimatorReport& report : reports) {
    nb::dict metrics;
    for (const auto& [diagnostic, value] : report.metrics) {
      metrics[MetricName(diagnostic).c_str()] = value;
    }
    nb::dict dict;
    dict["mean_loss"] = report.mean_loss;
    dict["gradient_norm"] = report.gradient_norm;
    dict["counts"] = ToPython(report.counts);
    dict["metrics"] = metrics;
    list.append(dict);
  }
  return list;
}

nb::dict DictOf(const UpdateSummary& summary) {
  nb::dict dict;
  dict["outer_step"] = summary.outer_step;
  dict["mean_loss"] = summary.mean_loss;
  dict["gradient_norm"] = summary.gradient_norm;
  dict["learning_rate"] = summary.learning_rate;
  dict["skipped"] = summary.skipped;
  dict["counts"] = ToPython(summary.counts);
  dict["estimators"] = ListOf(summary.estimators);
  return dict;
}

// A view of a member of a bound object, which keeps the object alive.
template <class T, Eigen::VectorXf T::*member>
nb::object ViewOfMember(nb::handle_t<T> self) {
  return ViewOf(nb::cast<T&>(self).*member, self);
}

void BindStates(nb::module_& m) {
  nb::class_<WorkerWeights>(m, "WorkerWeights", "What the learner sends to workers.")
      .def(
          "__init__",
          [](WorkerWeights* weights, nb::handle theta, int64_t outer_step) {
            new (weights) WorkerWeights{.theta = FloatsOf(theta, "theta"),
                                        .outer = {.outer_step = outer_step}};
          },
          "theta"_a, "outer_step"_a,
          nb::sig("def __init__(self, theta: numpy.ndarray, outer_step: int) -> None"),
          "Of numbers float32 [D] that so many updates have made. Raises Error on another dtype "
          "or\n"
          "shape, or if the array is not contiguous.")
      .def_prop_ro("theta", ViewOfMember<WorkerWeights, &WorkerWeights::theta>,
                   nb::sig("def theta(self) -> numpy.ndarray[dtype=float32]"),
                   "float32 [D], a view.")
      .def_prop_ro(
          "outer_step", [](const WorkerWeights& w) { return w.outer.outer_step; },
          "Updates of theta so far.")
      .def(Pickled());

  nb::class_<WorkerState>(m, "WorkerState",
                          "Everything of one logical worker that lives between two updates.")
      .def_ro("windows", &WorkerState::windows, "Run so far.")
      .def_prop_ro(
          "estimators",
          [](const WorkerState& state) {
            nb::list list;
            for (const EstimatorState& estimator : state.estimators)
              list.append(ToPython(estimator));
            return list;
          },
          nb::sig("def estimators(self) -> list[dict[str, numpy.ndarray]]"),
          "Copies of the arrays of each estimator, by their names.")
      .def(Pickled());

  nb::class_<AggregatedGradient>(m, "AggregatedGradient",
                                 "What a worker hands to the learner for one update.")
      .def(
          "__init__",
          [](AggregatedGradient* self, nb::handle gradient, int64_t outer_step, double mean_loss) {
            new (self) AggregatedGradient{.outer_step = outer_step,
                                          .gradient = FloatsOf(gradient, "gradient"),
                                          .mean_loss = mean_loss};
          },
          "gradient"_a, "outer_step"_a, "mean_loss"_a,
          nb::sig(
              "def __init__(self, gradient: numpy.ndarray, outer_step: int, mean_loss: float) -> "
              "None"),
          "A gradient of one's own, float32 [D], computed under the weights of `outer_step`. "
          "Raises\n"
          "Error on another dtype or shape, or if the array is not contiguous.")
      .def_prop_ro("gradient", ViewOfMember<AggregatedGradient, &AggregatedGradient::gradient>,
                   nb::sig("def gradient(self) -> numpy.ndarray[dtype=float32]"),
                   "float32 [D], the estimators' weighted mean; a view, which may be written to.")
      .def_ro("outer_step", &AggregatedGradient::outer_step,
              "Of the weights it was computed under.")
      .def_ro("mean_loss", &AggregatedGradient::mean_loss,
              "The same mean, over the estimators that have one; NaN if none has.")
      .def_prop_ro(
          "counts", [](const AggregatedGradient& g) { return ToPython(g.counts); },
          nb::sig("def counts(self) -> dict[str, int]"),
          "Inner steps, those of them with a loss that was not finite, ended episodes.")
      .def_prop_ro(
          "estimators", [](const AggregatedGradient& g) { return ListOf(g.estimators); },
          nb::sig("def estimators(self) -> list[dict]"), "What each estimator gave.")
      .def(Pickled());

  nb::class_<LearnerState>(m, "LearnerState",
                           "Everything of the learner that lives between two updates.")
      .def_ro("outer_step", &LearnerState::outer_step, "Updates so far, skipped ones included.")
      .def_ro("skipped_updates", &LearnerState::skipped_updates,
              "Of these, without effect because the gradient was not finite.")
      .def_prop_ro("theta", ViewOfMember<LearnerState, &LearnerState::theta>,
                   nb::sig("def theta(self) -> numpy.ndarray[dtype=float32]"),
                   "float32 [D], a view.")
      .def_prop_ro(
          "theta_opt", [](const LearnerState& state) { return ToPython(state.theta_opt); },
          nb::sig("def theta_opt(self) -> dict[str, numpy.ndarray]"),
          "Copies of the arrays of the optimizer of theta.")
      .def(Pickled());
}

}  // namespace

void BindLoop(nb::module_& m) {
  BindStates(m);

  nb::class_<GradientLearner>(m, "GradientLearner",
                              "Owns theta: averages the workers' gradients and applies theta_opt.\n"
                              "Immutable; its state is passed in. Experiment.learner is one.")
      .def(
          "__init__",
          [](GradientLearner* self, nb::handle learned_optimizer, nb::handle theta_opt,
             nb::handle meta_steps, nb::handle non_finite_gradient, nb::handle gradient_sum,
             nb::handle weighting, nb::handle frozen) {
            nb::dict given;
            given["learned_optimizer"] = learned_optimizer;
            given["theta_opt"] = theta_opt;
            given["non_finite_gradient"] = non_finite_gradient;
            given["gradient_sum"] = gradient_sum;
            given["weighting"] = weighting;
            given["frozen"] = frozen;
            const bool length_known = !meta_steps.is_none();
            if (length_known) given["meta_steps"] = meta_steps;
            MetaTrainConfig config = ConfigOfParts("GradientLearner", given);
            if (length_known) config = Resolved(config);
            new (self) GradientLearner(OptimizerRegistry().Make(config.learned_optimizer),
                                       config.theta_opt,
                                       {.non_finite_gradient = config.non_finite_gradient,
                                        .sum = config.gradient_sum,
                                        .weighting = config.weighting,
                                        .frozen = config.frozen});
          },
          "learned_optimizer"_a, "theta_opt"_a, nb::kw_only(), "meta_steps"_a.none() = nb::none(),
          "non_finite_gradient"_a = "skip", "gradient_sum"_a = "in_order", "weighting"_a = "fixed",
          "frozen"_a = nb::tuple(),
          nb::sig("def __init__(self, learned_optimizer: lopt.Component | dict, theta_opt: "
                  "lopt.Component | "
                  "dict, *, meta_steps: int | None = None, non_finite_gradient: str = 'skip', "
                  "gradient_sum: str = 'in_order', weighting: str = 'fixed', frozen: "
                  "collections.abc.Sequence[str] = ()) -> None"),
          "Of a learned optimizer and the optimizer of its theta. The options are the keys of a\n"
          "config; meta_steps is only for a schedule of theta_opt that depends on it. Raises "
          "Error\n"
          "if one of them is wrong.")
      .def("init", nb::overload_cast<Key>(&GradientLearner::Init, nb::const_), "key"_a,
           "The state before the first update, with a theta drawn with the key.")
      .def(
          "init_with",
          [](const GradientLearner& learner, nb::handle theta) {
            return learner.Init(FloatsOf(theta, "theta"));
          },
          "theta"_a, nb::sig("def init_with(self, theta: numpy.ndarray) -> LearnerState"),
          "The same with a theta, float32 [D]. Raises Error on another dtype or shape.")
      .def("get_state_for_worker", &GradientLearner::GetStateForWorker, "state"_a,
           "What workers need for their next update.")
      .def(
          "get_meta_params",
          [](const GradientLearner& learner, const LearnerState& state) {
            return ToPython(learner.EvalTheta(state));
          },
          "state"_a,
          nb::sig("def get_meta_params(self, state: LearnerState) -> numpy.ndarray[dtype=float32]"),
          "The theta to judge and to keep, float32 [D]: that of the state, or the average that\n"
          "theta_opt makes of it.")
      .def(
          "update",
          [](const GradientLearner& learner, const LearnerState& state,
             const std::vector<AggregatedGradient>& gradients) {
            UpdateSummary summary;
            LearnerState next = learner.Update(state, gradients, &summary);
            return nb::make_tuple(std::move(next), DictOf(summary));
          },
          "state"_a, "gradients"_a,
          nb::sig("def update(self, state: LearnerState, gradients: "
                  "collections.abc.Sequence[AggregatedGradient]) -> "
                  "tuple[LearnerState, dict]"),
          "One update with the mean of the gradients, in the order of the workers. Returns the "
          "next\n"
          "state and a summary. Raises Error if there is none, or if one has the wrong size or "
          "was\n"
          "computed at another outer step.");

  nb::class_<EstimatorList>(m, "Estimators",
                            "The estimators that a worker runs. Experiment.estimators makes them "
                            "too.")
      .def(
          "__init__",
          [](EstimatorList* self, nb::handle learned_optimizer, nb::handle estimators,
             nb::handle weighting, nb::handle data_dir, nb::handle device) {
            nb::dict given;
            given["learned_optimizer"] = learned_optimizer;
            given["estimators"] = estimators;
            given["weighting"] = weighting;
            given["data_dir"] = data_dir;
            given["device"] = device;
            const MetaTrainConfig config = ConfigOfParts("Estimators", given);
            const nb::gil_scoped_release released;
            new (self) EstimatorList{Experiment(config).estimators, config.weighting};
          },
          "learned_optimizer"_a, "estimators"_a, nb::kw_only(), "weighting"_a = "fixed",
          "data_dir"_a = "", "device"_a = "cpu",
          nb::sig("def __init__(self, learned_optimizer: lopt.Component | dict, estimators: "
                  "collections.abc.Sequence[lopt.Component | dict], *, weighting: str = 'fixed', "
                  "data_dir: str = '', device: str = 'cpu') -> None"),
          "Of a learned optimizer and weighting, which must be the learner's. The options are the\n"
          "keys of a config. Raises Error if one cannot be made, or its data read.")
      .def("__len__", [](const EstimatorList& list) { return list.estimators.size(); });

  nb::class_<Experiment>(m, "Experiment", "What a meta-training config describes, made. Immutable.")
      .def(
          "__init__",
          [](Experiment* experiment, nb::handle config) {
            const auto options =
                ReadOptions<MetaTrainConfig>(ConfigOf(config, MetaTrainPresets(), "config"));
            const nb::gil_scoped_release released;
            new (experiment) Experiment(options);
          },
          "config"_a, nb::sig("def __init__(self, config: dict | str | os.PathLike) -> None"),
          "Raises Error if something cannot be made, its data read, or the keys do not go "
          "together.")
      .def_prop_ro(
          "config", [](const Experiment& e) { return ToPython(e.resolved); },
          nb::sig("def config(self) -> dict"), "Every key with its value.")
      .def_prop_ro(
          "frozen",
          [](const Experiment& e) {
            std::vector<std::string> names;
            for (const LayoutEntry& entry :
                 FrozenTensors(e.optimizer->theta_layout(), e.config.frozen)) {
              names.push_back(entry.name);
            }
            return names;
          },
          "The names of the tensors of theta that the config's frozen keeps as they are.")
      .def_prop_ro(
          "learner", [](const Experiment& e) -> const GradientLearner& { return e.learner; },
          nb::rv_policy::reference_internal, "The learner of its optimizer and theta_opt.")
      .def_prop_ro(
          "estimator_names", [](const Experiment& e) { return e.estimator_names; },
          "\"<index>_<task>\".")
      .def_ro("run_key", &Experiment::run_key, "Of the config's seed.")
      .def_ro("data", &Experiment::data,
              "The data sets that the estimators' tasks have read, with their checksums; empty if\n"
              "there is none.")
      .def_prop_ro(
          "workers", [](const Experiment& e) { return e.workers.size(); },
          "The number of logical workers.")
      .def(
          "estimators",
          [](const Experiment& e, size_t worker) {
            Require(worker < e.workers.size(), "there is no worker {}; there are {}", worker,
                    e.workers.size());
            return EstimatorList{e.workers[worker].estimators, e.learner.weighting()};
          },
          "worker"_a = 0, "Those that a worker runs. Raises Error if there is no such worker.")
      .def(
          "theta",
          [](const Experiment& e, const LearnerState& state) {
            return ToPython(e.ThetaOf(state, VersionAndCommit(GetBuildInfo())));
          },
          "state"_a, nb::sig("def theta(self, state: LearnerState) -> dict"),
          "The arguments of the lopt.Theta of this state, `Theta(**experiment.theta(state))`.")
      .def(
          "trained_range",
          [](const Experiment& e, int64_t updates) {
            Require(updates >= 0, "trained_range: {} updates, wanted 0 or more", updates);
            return ToPython(e.RangeOfTraining(updates));
          },
          "updates"_a, nb::sig("def trained_range(self, updates: int) -> dict[str, int] | None"),
          "What so many updates train on, as Theta.trained_range has it; None if nothing of it is\n"
          "known.");

  m.def("theta_key", &ThetaKey, "run_key"_a, "The key that the initial theta is drawn with.");
  m.def("worker_key", &WorkerKey, "run_key"_a, "worker"_a, "The key of a logical worker.");
  m.def(
      "init_worker_state",
      [](const WorkerWeights& weights, const EstimatorList& list, Key worker_key) {
        const nb::gil_scoped_release released;
        return InitWorkerState(weights, list.estimators, worker_key);
      },
      "weights"_a, "estimators"_a, "worker_key"_a,
      "The state of a worker that has run no window. Raises Error if theta has another size than\n"
      "the estimators want.");
  m.def(
      "gradient_worker_compute",
      [](const WorkerWeights& weights, const EstimatorList& list, Key worker_key,
         WorkerState* state, int64_t windows, nb::handle threads) {
        RequireOutsideTasks("gradient_worker_compute");
        ThreadPool pool(ThreadsOf(threads));
        AggregatedGradient to_put;
        const nb::gil_scoped_release released;
        pool.Run([&] {
          to_put = GradientWorkerCompute(weights, list.estimators, windows, worker_key, state,
                                         list.weighting);
        });
        return to_put;
      },
      "weights"_a, "estimators"_a, "worker_key"_a, "state"_a, "windows"_a = 1,
      "threads"_a.none() = 1,
      nb::sig("def gradient_worker_compute(weights: WorkerWeights, estimators: Estimators, "
              "worker_key: Key, state: WorkerState, windows: int = 1, threads: int | None = 1) -> "
              "AggregatedGradient"),
      "Runs windows of every estimator under the same weights, and changes `state` to that after\n"
      "them. Returns what the learner wants, its `to_put`. The bits do not depend on `threads`\n"
      "(None: one for each core that the process may use).");
  m.def(
      "meta_losses",
      [](nb::handle thetas, const EstimatorList& list, Key worker_key, int64_t step,
         nb::handle threads) {
        RequireOutsideTasks("meta_losses");
        const std::vector<Eigen::VectorXf> rows = FloatRowsOf(thetas, "thetas");
        ThreadPool pool(ThreadsOf(threads));
        std::vector<double> losses;
        {
          const nb::gil_scoped_release released;
          pool.Run([&] { losses = MetaLosses(rows, list.estimators, worker_key, step); });
        }
        std::span<double> values;
        nb::object array = NewArray<double>({std::ssize(losses)}, &values);
        std::ranges::copy(losses, values.begin());
        return array;
      },
      "thetas"_a, "estimators"_a, "worker_key"_a, "step"_a = 0, "threads"_a.none() = nb::none(),
      nb::sig("def meta_losses(thetas: numpy.ndarray, estimators: Estimators, worker_key: Key, "
              "step: int = 0, threads: int | None = None) -> numpy.ndarray[dtype=float64]"),
      "The losses float64 [K] of thetas float32 [K, D], for an optimizer of theta from elsewhere "
      "that\n"
      "asks for losses, such as CMA-ES: the weighted mean over the estimators, each a FullES, of "
      "what\n"
      "its episodes count (its loss_type) under the theta itself. All thetas get the same tasks, "
      "initial\n"
      "parameters, batches and lengths of episodes, which the key and the step decide. A loss "
      "depends\n"
      "neither on the other thetas nor on `threads` (None: one for each core that the process may "
      "use). It\n"
      "is inf if a training diverges, unless non_finite puts something in its place. Raises Error "
      "on\n"
      "another dtype or shape, if the array is not contiguous, if there is no theta or one is not "
      "finite,\n"
      "or if an estimator is of another type.");
}

}  // namespace lopt::python
