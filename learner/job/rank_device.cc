#include "lopt/learner/job/rank_device.h"

#include <fmt/format.h>

#include <numeric>

#include "lopt/base/error.h"
#include "lopt/base/option_words.h"

namespace lopt {

const Device* DeviceOfRank(const std::string& name, const std::vector<int>& gpus,
                           int place_on_host) {
  if (name != "cuda") {
    Require(gpus.empty(), "GPUs are named ({}), but the device is '{}'; choose 'cuda'",
            OptionWords("devices"), name);
    return FindDevice(name);
  }
  std::vector<int> choices = gpus;
  if (choices.empty()) {
    choices.resize(static_cast<size_t>(FindCudaDevices().count));
    std::iota(choices.begin(), choices.end(), 0);
  }
  if (choices.empty()) return FindDevice(name);  // says why there is none
  const size_t place = static_cast<size_t>(place_on_host) % choices.size();
  return FindDevice(fmt::format("cuda:{}", choices[place]));
}

}  // namespace lopt
