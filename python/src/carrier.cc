#include "lopt/python/src/carrier.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/learner/elastic/carrier.h"
#include "lopt/learner/elastic/worker_process.h"
#include "lopt/python/src/long_call.h"
#include "lopt/tools/build_info.h"

namespace lopt::python {

namespace nb = nanobind;

namespace {

using nb::literals::operator""_a;

void HandIn(Carrier& carrier, int64_t connection, const nb::list& frames) {
  for (const nb::handle given : frames) {
    const auto frame = nb::cast<nb::bytes>(given);
    const auto* data = static_cast<const std::byte*>(frame.data());
    const nb::gil_scoped_release released;
    carrier.HandIn(connection, std::span(data, frame.size()));
  }
}

nb::list Take(Carrier& carrier) {
  std::vector<Carrier::Errand> errands;
  {
    const nb::gil_scoped_release released;
    errands = carrier.Take();
  }
  nb::list taken;
  for (const auto& [connection, frame] : errands) {
    taken.append(nb::make_tuple(
        connection, frame ? nb::object(nb::bytes(frame->data(), frame->size())) : nb::none()));
  }
  return taken;
}

void WorkForLearner(const std::shared_ptr<Carrier>& carrier, int threads, std::string token,
                    std::string version) {
  LongCall call("work_for_learner");
  const ElasticWorkerOptions options{.threads = threads,
                                     .version = std::move(version),
                                     .stop = call.stop(),
                                     .token = std::move(token),
                                     .patience_seconds = 0,
                                     .learner_is_watched = true};
  call.Run([&] { RunElasticWorker(options, [&] { return JoinCarried(carrier); }); });
}

}  // namespace

void BindCarrier(nb::module_& m) {
  m.attr("_program_version") = VersionAndCommit(GetBuildInfo());
  nb::class_<Carrier>(m, "Carrier",
                      "One side of connections between a learner and workers, whose frames Python\n"
                      "carries: it takes bytes here and hands them in on the other side.")
      .def(nb::init<std::string>(), "description"_a)
      .def("open", &Carrier::Open, "peer"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Opens a connection to `peer`, as the log calls it, and returns its number.")
      .def("hand_in", HandIn, "connection"_a, "frames"_a,
           nb::sig("def hand_in(self, connection: int, frames: list[bytes]) -> None"),
           "Frames have come of the connection. Nothing comes of them if it has gone.")
      .def("end", &Carrier::End, "connection"_a, "why"_a, nb::call_guard<nb::gil_scoped_release>(),
           "The connection has ended.")
      .def("fail", &Carrier::Fail, "why"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Whoever uses the connections gets an Error of this text.")
      .def("take", Take, nb::sig("def take(self) -> list[tuple[int, bytes | None]]"),
           "Waits for frames to be handed in on the other side, each with its connection; None in\n"
           "place of a frame: the connection is to be ended. An empty list: no more will come.")
      .def("close", &Carrier::Close, nb::call_guard<nb::gil_scoped_release>(),
           "No more will come: take returns.");
  m.def(
      "work_for_learner", WorkForLearner, "carrier"_a, "threads"_a, "token"_a, "version"_a,
      "Computes what a learner asks for until it ends the job. Whoever carries ends this process\n"
      "where the learner has gone. Raises Error if the learner refuses this process or fails, or\n"
      "the work fails.");
}

}  // namespace lopt::python
