#include "lopt/torch/torch_script_file.h"

#include <torch/script.h>

#include <span>
#include <sstream>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/torch/script_module.h"

namespace lopt {

void WriteTorchScriptFile(const std::string& path, const TorchScriptFile& file) {
  std::ostringstream stream;
  try {
    torch::jit::Module module = MakeModule(file.name, file.module);
    module.eval();
    module.save(stream, {file.extra_files.begin(), file.extra_files.end()});
  } catch (const c10::Error& error) {
    Fail("TorchScript: {}: {}", path, error.what_without_backtrace());
  } catch (const torch::jit::ErrorReport& error) {
    Fail("TorchScript: {}: {}", path, error.what());
  }
  WriteFile(path, std::as_bytes(std::span(stream.view())));
}

}  // namespace lopt
