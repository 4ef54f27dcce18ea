#include "lopt/lopt/mlp/mlp_lopt_device.h"

#include <vector>

#include "lopt/base/error.h"
#include "lopt/lopt/device_rules.h"
#include "lopt/lopt/mlp/mlp_lopt_step.h"

namespace lopt {

std::optional<MlpLoptArgs> MlpLoptArgsOf(const LearnedOptimizer& optimizer, const Layout& params,
                                         int group, DeviceConstants* constants) {
  const auto* mlp_lopt = dynamic_cast<const MLPLOpt*>(&optimizer);
  if (mlp_lopt == nullptr) return std::nullopt;
  const MLPLOptOptions& options = mlp_lopt->options();
  Require(options.precision == Precision::kFloat32,
          "device: MLPLOpt has device functions for precision fp32, not {}",
          NameOf("precision", options.precision, kPrecisions));
  const Layout state = optimizer.StateLayout(params);
  std::vector<DeviceTensor> tensors;
  int64_t groups = 0;
  for (size_t n = 0; n < params.entries().size(); ++n) {
    const LayoutEntry& entry = params.entries()[n];
    tensors.push_back({.offset = entry.offset,
                       .size = entry.size,
                       .state = state.entries()[n].offset,
                       .first_group = groups});
    groups += (entry.size + group - 1) / group;
  }
  return MlpLoptArgs{
      .options = StepOptionsOf(options),
      .network = {.inputs = MLPLOpt::kNormalized,
                  .steady = static_cast<int>(MLPLOpt::Features(options)) - MLPLOpt::kNormalized,
                  .hidden = static_cast<int>(options.hidden_size),
                  .layers = static_cast<int>(options.hidden_layers),
                  .outputs = 2},
      .tensors = static_cast<int>(tensors.size()),
      .tensor = constants->Keep(tensors),
      .groups = groups,
      .state_size = state.size()};
}

}  // namespace lopt
