#include "lopt/tools/gpu_list.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "lopt/tools/commands.h"

namespace lopt {

std::vector<int> GpusOf(const std::string& list) {
  std::vector<int> gpus;
  for (const char *at = list.data(), *end = at + list.size(); at != end;) {
    int gpu = -1;
    const auto [next, error] = std::from_chars(at, end, gpu);
    const bool last = next == end;
    if (error != std::errc() || gpu < 0 || (!last && (*next != ',' || next + 1 == end))) {
      throw UsageError(fmt::format("--devices wants numbers of GPUs, such as 0,2, not '{}'", list));
    }
    gpus.push_back(gpu);
    at = last ? end : next + 1;
  }
  return gpus;
}

}  // namespace lopt
