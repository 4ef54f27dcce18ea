#include "lopt/tools/export_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/train/trained_model.h"
#include "lopt/tasks/image/torch_model.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/command_line.h"

namespace lopt {
namespace {

constexpr const char* kUsage =
    "usage: lopt export --model RUN --format torchscript|state_dict --out FILE";

// The native task whose model a torch one has as well; else the task itself.
std::shared_ptr<const TaskFamily> NativeTask(const TrainedModel& model) {
  const Config& config = model.config.task;
  constexpr std::string_view kTorch = "Torch";
  const std::string type = config.Type();
  if (type != "TorchImageMLP" && type != "TorchImageConv") return model.task;
  return TaskRegistry().Make(config.With("type", type.substr(kTorch.size())),
                             TaskResources(model.config.data_dir));
}

}  // namespace

int ExportModel(const boost::program_options::variables_map& values) {
  for (const auto& [name, value] : values) {
    if (name != "model" && name != "format" && name != "out" && name != "plugin") {
      throw UsageError(fmt::format("{} is not for --model; {}",
                                   name == "theta" ? "THETA" : "--" + name, kUsage));
    }
  }
  const std::string format = TextOption(values, "format").value_or("");
  if (format != "torchscript" && format != "state_dict") {
    throw UsageError(
        fmt::format("--format of a --model must be torchscript or state_dict, got {}; {}",
                    format.empty() ? "none" : "'" + format + "'", kUsage));
  }
  const auto out = TextOption(values, "out");
  if (!out) throw UsageError(fmt::format("--out is missing; {}", kUsage));

  const TrainedModel model = ReadTrainedModel(*TextOption(values, "model"));
  std::error_code ignored;
  Require(!std::filesystem::equivalent(model.path, *out, ignored), "{}: --out is the model", *out);
  const TorchModel torch =
      MakeTorchModel(model.config.task.Type(), *NativeTask(model), model.params, model.model_state);
  const std::map<std::string, std::string> about = {
      {"input", torch.input}, {"task", model.config.task.Dump(-1)}, {"version", model.version}};
  if (format == "torchscript") {
    OpenTorchModule("lopt export --format torchscript")
        .write_torch_script(*out, {.name = "Model", .module = torch.module, .extra_files = about});
  } else {
    ArrayFile file{.arrays = StateDict(torch.module), .metadata = about};
    file.metadata["format"] = "pt";  // as safetensors.torch writes it
    WriteArrayFile(*out, file);
  }
  return kExitDone;
}

}  // namespace lopt
