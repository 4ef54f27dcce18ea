// Prints the best instruction set of this machine that kernels can be compiled for: "HWY_AVX2".
#include <hwy/highway.h>

#include <cstdint>
#include <cstdio>

int main() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  const int64_t best = targets & -targets;
  std::printf("HWY_%s", hwy::TargetName(best));
}
