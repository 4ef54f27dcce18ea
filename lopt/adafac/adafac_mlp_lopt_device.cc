#include "lopt/lopt/adafac/adafac_mlp_lopt_device.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/device_rules.h"
#include "lopt/lopt/mlp/mlp_lopt_step_device.h"

namespace lopt {

std::optional<AdafacArgs> AdafacArgsOf(const LearnedOptimizer& optimizer, const Layout& params,
                                       int group, DeviceConstants* constants) {
  const auto* adafac = dynamic_cast<const AdafacMLPLOpt*>(&optimizer);
  if (adafac == nullptr) return std::nullopt;
  const AdafacMLPLOptOptions& options = adafac->options();
  const AdafacFeatures at(options);
  const Layout state = optimizer.StateLayout(params);
  std::vector<AdafacDeviceTensor> tensors;
  int64_t groups = 0;
  int64_t tables = 0;
  int64_t most_sums = 0;
  for (const AdafacTensor& tensor : AdafacTensors(params, state)) {
    AdafacDeviceTensor& to = tensors.emplace_back();
    to = {.offset = tensor.offset,
          .size = tensor.size,
          .momenta = tensor.momenta,
          .rms = tensor.rms,
          .v = tensor.v,
          .v_col = tensor.v_col,
          .is_factored = tensor.factored.has_value(),
          .factored = {},
          .tables = tables,
          .first_group = groups};
    groups += ElementGroups(tensor.size, group);
    if (!tensor.factored || tensor.size == 0) continue;
    to.factored = tensor.factored->OnDevice();
    tables += FactoredTables::Floats(to.factored, at.f);
    most_sums = std::max(most_sums, to.factored.MostSums(at.f));
  }
  std::vector<float> decays;
  for (const auto* initial : {&options.initial_momentum_decays, &options.initial_rms_decays,
                              &options.initial_adafactor_decays}) {
    std::ranges::copy(AdafacDecayParameters(*initial), std::back_inserter(decays));
  }
  return AdafacArgs{.network = {.inputs = at.count,
                                .steady = MlpLoptNumbers::kTimes,
                                .hidden = static_cast<int>(options.hidden_size),
                                .layers = static_cast<int>(options.hidden_layers),
                                .outputs = 2},
                    .at = at,
                    .decay_parameters = constants->Keep(decays),
                    .exp_mult = static_cast<float>(options.exp_mult),
                    .step_mult = static_cast<float>(options.step_mult),
                    .tensors = static_cast<int>(tensors.size()),
                    .tensor = constants->Keep(tensors),
                    .groups = groups,
                    .state_size = state.size(),
                    .table_floats = tables,
                    .most_sums = most_sums};
}

}  // namespace lopt
