#include "lopt/tools/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/print.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/train/trained_model.h"
#include "lopt/tasks/image/torch_model.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/command_line.h"

namespace lopt {
namespace {

constexpr const char* kUsage =
    "usage: lopt export --model RUN --format torchscript|state_dict|safetensors --out FILE";

using About = std::map<std::string, std::string>;

void WriteModule(const std::string& path, const TorchModel& model, const About& about) {
  OpenTorchModule("lopt export --format torchscript")
      .write_torch_script(path, {.name = "Model", .module = model.module, .extra_files = about});
}

void WriteStateDict(const std::string& path, const TorchModel& model, const About& /*about*/) {
  OpenTorchModule("lopt export --format state_dict")
      .write_state_dict(path, StateDict(model.module));
}

void WriteSafetensors(const std::string& path, const TorchModel& model, const About& about) {
  ArrayFile file{.arrays = StateDict(model.module), .metadata = about};
  file.metadata["format"] = "pt";  // as safetensors.torch writes it
  WriteArrayFile(path, file);
}

struct ModelFormat {
  std::string_view name;
  void (*write)(const std::string& path, const TorchModel& model, const About& about);
};

constexpr ModelFormat kModelFormats[] = {{"torchscript", WriteModule},
                                         {"state_dict", WriteStateDict},
                                         {"safetensors", WriteSafetensors}};

const ModelFormat& FindModelFormat(const std::string& name) {
  const auto* const found = std::ranges::find(kModelFormats, name, &ModelFormat::name);
  if (found != std::end(kModelFormats)) return *found;
  throw UsageError(
      fmt::format("--format of a --model must be torchscript, state_dict or safetensors, got {}; "
                  "{}",
                  name.empty() ? "none" : "'" + name + "'", kUsage));
}

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
  constexpr std::string_view kOptions[] = {"model", "format", "out", "data-dir", "plugin"};
  for (const auto& [name, value] : values) {
    if (std::ranges::find(kOptions, name) == std::end(kOptions)) {
      throw UsageError(fmt::format("{} is not for --model; {}",
                                   name == "theta" ? "THETA" : "--" + name, kUsage));
    }
  }
  const ModelFormat& format = FindModelFormat(TextOption(values, "format").value_or(""));
  const auto out = TextOption(values, "out");
  if (!out) throw UsageError(fmt::format("--out is missing; {}", kUsage));

  const TrainedModel model =
      ReadTrainedModel(*TextOption(values, "model"), TextOption(values, "data-dir"));
  std::error_code ignored;
  Require(!std::filesystem::equivalent(model.path, *out, ignored), "{}: --out is the model", *out);
  const TorchModel torch =
      MakeTorchModel(model.config.task.Type(), *NativeTask(model), model.params, model.model_state);
  RequireFile(*out, "cannot write");  // a rename would replace a device
  format.write(
      *out, torch,
      {{"input", torch.input}, {"task", model.config.task.Dump(-1)}, {"version", model.version}});
  PrintOut("Written: {}\nIts input: {}\n", *out, torch.input);
  return kExitDone;
}

}  // namespace lopt
