#include "lopt/learner/transport/job.h"

#include <exception>
#include <memory>

#include "lopt/base/environment.h"
#include "lopt/learner/transport/end_job.h"
#include "lopt/learner/transport/local_transport.h"
#include "lopt/learner/transport/mpi_launch.h"
#include "lopt/learner/transport/mpi_transport.h"
#include "lopt/learner/transport/take_messages.h"

namespace lopt {
namespace {

int RunAlone(const std::function<int(Transport*)>& work) {
  try {
    CheckLauncher(1, "");
    return work(MakeLocalTransports(1)[0].get());
  } catch (const std::exception& error) {
    Environment::Current().Say(error.what());
    return kExitFailed;
  }
}

}  // namespace

int RunJob(const std::function<int(Transport*)>& work) {
  if (!StartedByMpi()) return RunAlone(work);
  const std::unique_ptr<Transport> transport = MakeMpiTransport();
  try {
    CheckLauncher(transport->size(), MpiLibrary());
    const int exit_code = work(transport.get());
    SayFarewell(transport.get());
    return transport->Exit(exit_code);
  } catch (const std::exception& error) {
    EndJob(transport.get(), error.what(), kExitFailed);
  }
}

}  // namespace lopt
