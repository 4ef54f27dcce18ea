#include <utility>

#include "base/isa.h"
#include "tasks/image_mlp.h"
#include "tasks/torch_module.h"
#include "torch/torch_image_mlp.h"
#include "torch/torch_script_file.h"

namespace {

std::shared_ptr<const lopt::TaskFamily> MakeImageMlp(const lopt::ImageMlpOptions& options,
                                                     std::shared_ptr<const lopt::ImageData> data,
                                                     std::string_view isa) {
  if (lopt::CurrentIsa() != isa) lopt::PinIsa(isa);
  return lopt::MakeTorchImageMlp(options, std::move(data));
}

}  // namespace

extern "C" const lopt::TorchModule* lopt_torch_module() {
  static const lopt::TorchModule module{.build = lopt::TorchModuleBuild(),
                                        .torch_version = lopt::TorchVersion(),
                                        .make_image_mlp = MakeImageMlp,
                                        .write_torch_script = lopt::WriteTorchScriptFile};
  return &module;
}
