#include "lopt/torch/registry.h"

namespace lopt {

namespace torch_tasks {
void AddAll(TaskTypes* types);  // written by CMake, torch/task_list.cc.in
}

TaskTypes& TorchTaskRegistry() {
  static TaskTypes types = [] {
    TaskTypes all("torch task");
    torch_tasks::AddAll(&all);
    return all;
  }();
  return types;
}

}  // namespace lopt
