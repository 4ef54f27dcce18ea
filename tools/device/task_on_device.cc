#include "lopt/tools/device/task_on_device.h"

#include "lopt/base/error.h"
#include "lopt/tasks/registry.h"

namespace lopt {

TaskOnDevice MakeTaskOnDevice(const std::string& config, const Device& device) {
  const Config parsed = Config::Parse(config, "a task on a device");
  const auto make = [&] { return TaskRegistry().Make(parsed, TaskResources("")); };
  if (!parsed.Type().starts_with("Torch")) return {.task = make()};
  try {
    TaskOnDevice made = {.task = make()};
    made.task->EvaluatesOn(device);
    return made;
  } catch (const Error& error) {
    return {.left_out = error.what()};
  }
}

}  // namespace lopt
