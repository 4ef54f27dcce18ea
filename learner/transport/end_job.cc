#include "lopt/learner/transport/end_job.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "lopt/base/environment.h"

namespace lopt {

void EndJob(Transport* transport, const char* message, int exit_code) {
  if (transport->rank() == 0) {
    Environment::Current().Say(message);
  } else {
    for (int i = 0; i < 100; ++i) {
      transport->Poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    Environment::Current().Say(fmt::format("rank {}: {}", transport->rank(), message));
  }
  transport->Abort(exit_code);
}

void NoteFailure(const std::function<void(const char*)>& on_failure, Transport* transport,
                 const char* message) {
  if (on_failure) {
    on_failure(message);
  } else if (transport->RanksAreProcesses()) {
    EndJob(transport, message, kExitFailed);
  }
}

}  // namespace lopt
