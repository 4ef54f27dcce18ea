#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/elastic/carrier.h"
#include "lopt/learner/elastic/elastic_transport.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/carrier.h"
#include "lopt/python/src/convert.h"
#include "lopt/python/src/long_call.h"
#include "lopt/tools/build_info.h"

namespace lopt::python {

namespace nb = nanobind;

namespace {

// The learner of workers elsewhere, which a carrier connects; they say this token. Told to stop
// while none is there, it returns as one that was interrupted.
MetaTrainResult RunLearner(MetaTrainConfig config, MetaTrainerOptions options,
                           std::shared_ptr<Carrier> workers, const std::string& token) {
  auto connections = ListenCarried(std::move(workers));
  config.gather_checkpoints = true;
  CheckConfig(config);
  ElasticTransport transport(config, options, {.token = token, .stop = options.stop},
                             std::move(connections));
  options.learner_only = true;
  options.transport = &transport;
  options.on_experiment = [&](const Experiment& made) { transport.Know(made); };
  try {
    return RunMetaTraining(config, options);
  } catch (const StoppedAlone& stopped) {
    spdlog::warn("{}", stopped.what());
    MetaTrainResult result;
    result.interrupted = true;
    return result;
  }
}

// Members of lopt.MetaTraining.
nb::dict MetaTrain(nb::handle config, const std::string& out, nb::handle threads, bool resume,
                   std::optional<int64_t> from, bool overwrite, bool allow_isa_change,
                   nb::handle on_metrics, std::shared_ptr<Carrier> workers,
                   const std::string& token) {
  MetaTrainerOptions options;
  options.out_dir = out;
  options.threads = ThreadsOf(threads);
  options.resume = resume;
  options.from = from;
  options.overwrite = overwrite;
  options.allow_isa_change = allow_isa_change;
  options.version = VersionAndCommit(GetBuildInfo());
  const auto read = ReadOptions<MetaTrainConfig>(ConfigOf(config, MetaTrainPresets(), "config"));

  LongCall call("meta_train");
  options.stop = call.stop();
  options.on_metrics = [&](int64_t step, const Metrics& metrics) {
    call.Back([&] {
      nb::dict dict;
      for (const auto& [name, value] : metrics) dict[name.c_str()] = value;
      on_metrics(step, dict);
    });
  };
  MetaTrainResult result;
  call.Run([&] {
    if (!read.isa.empty()) {
      CheckConfig(read);  // its errors come before the instruction set is another
      call.PinIsa(read.isa);
    }
    result = workers ? RunLearner(read, options, std::move(workers), token)
                     : RunMetaTraining(read, options);
  });

  nb::dict totals;
  for (size_t e = 0; e < result.totals.size(); ++e) {
    totals[result.estimator_names[e].c_str()] = ToPython(result.totals[e]);
  }
  nb::dict members;
  members["theta"] = ToPython(std::move(result.theta));
  members["updates"] = result.updates;
  members["seconds"] = result.seconds;
  members["skipped_updates"] = result.learner.skipped_updates;
  members["totals"] = totals;
  return members;
}

}  // namespace

void BindMetaTraining(nb::module_& m) {
  BindCarrier(m);
  m.def("meta_train", MetaTrain, nb::arg("config"), nb::arg("out"), nb::arg("threads").none(),
        nb::arg("resume"), nb::arg("from_step").none(), nb::arg("overwrite"),
        nb::arg("allow_isa_change"), nb::arg("on_metrics"), nb::arg("workers").none() = nb::none(),
        nb::arg("token") = "",
        nb::sig("def meta_train(config: dict | str | os.PathLike, out: str, threads: int | None, "
                "resume: bool, from_step: int | None, overwrite: bool, allow_isa_change: bool, "
                "on_metrics: collections.abc.Callable[[int, dict[str, float]], object], "
                "workers: Carrier | None = None, token: str = '') -> dict"),
        "What lopt.meta_train runs; with `workers`, whose connections it is, as the learner of\n"
        "workers that say the token. Returns the members of lopt.MetaTraining.");
}

}  // namespace lopt::python
