#include "lopt/lopt/celo2/celo2_device.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/lopt/celo2/celo2_rule.h"
#include "lopt/lopt/device_rules.h"

namespace lopt {

std::optional<Celo2Args> Celo2ArgsOf(const LearnedOptimizer& optimizer, const Layout& params,
                                     int /*group*/, DeviceConstants* constants) {
  const auto* celo2 = dynamic_cast<const Celo2Base*>(&optimizer);
  if (celo2 == nullptr) return std::nullopt;
  const Layout state = optimizer.StateLayout(params);
  Celo2Args args{.options = StepOptionsOf(celo2->options()),
                 .orthogonal = celo2->orthogonal(),
                 .network = {.inputs = Celo2Base::kFeatures,
                             .steady = 0,
                             .hidden = Celo2Base::kHidden,
                             .layers = 2,
                             .outputs = Celo2Base::kOutputs},
                 .tensors = 0,
                 .tensor = nullptr,
                 .state_size = state.size(),
                 .table_floats = 0,
                 .most_sums = 0,
                 .iteration_floats = 0};
  std::vector<Celo2DeviceTensor> tensors;
  for (const Celo2Place& place : Celo2Places(celo2->options(), params, state)) {
    if (place.size == 0) continue;
    Celo2DeviceTensor& to = tensors.emplace_back();
    to = {.offset = place.offset,
          .size = place.size,
          .state = place.state_offset,
          .learned = place.learned.has_value(),
          .is_factored = place.learned && place.learned->factored,
          .matrices = 1,
          .rows = 1,
          .columns = 1,
          .factored = {}};
    if (!place.learned) continue;
    const Celo2Tensor& tensor = *place.learned;
    Require(place.size <= std::numeric_limits<int>::max(),
            "device: Celo2 steps tensors of up to {} elements, not {}",
            std::numeric_limits<int>::max(), place.size);
    to.matrices = static_cast<int>(tensor.matrices);
    to.rows = static_cast<int>(tensor.rows);
    to.columns = static_cast<int>(tensor.columns);
    if (!tensor.factored) continue;
    to.factored = tensor.factored->OnDevice();
    args.table_floats =
        std::max(args.table_floats, FactoredTables::Floats(to.factored, Celo2Base::kMomenta));
    args.most_sums = std::max(args.most_sums, to.factored.MostSums(Celo2Base::kMomenta));
    if (!args.orthogonal) continue;
    args.iteration_floats =
        std::max(args.iteration_floats, NewtonSchulzDevice(to.rows, to.columns).ScratchFloats());
  }
  args.tensors = static_cast<int>(tensors.size());
  args.tensor = constants->Keep(tensors);
  return args;
}

}  // namespace lopt
