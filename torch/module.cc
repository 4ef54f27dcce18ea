#include <torch/version.h>

#include "base/isa.h"
#include "tasks/torch_module.h"
#include "torch/registry.h"
#include "torch/torch_script_file.h"

namespace {

const lopt::TaskTypes& Tasks(std::string_view isa) {
  if (lopt::CurrentIsa() != isa) lopt::PinIsa(isa);
  return lopt::TorchTaskRegistry();
}

}  // namespace

extern "C" const lopt::TorchModule* lopt_torch_module() {
  static const lopt::TorchModule module{.build = lopt::TorchModuleBuild(),
                                        .torch_version = TORCH_VERSION,
                                        .tasks = Tasks,
                                        .write_torch_script = lopt::WriteTorchScriptFile};
  return &module;
}
