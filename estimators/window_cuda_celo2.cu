#include "lopt/estimators/window_cuda.cuh"

namespace lopt {

template void LaunchRule<Celo2Device>(const Device&, const DeviceTask&, const Celo2Args&,
                                      const DeviceWindow&);

}  // namespace lopt
