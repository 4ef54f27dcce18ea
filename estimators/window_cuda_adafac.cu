#include "lopt/estimators/window_cuda.cuh"

namespace lopt {

template void LaunchRule<AdafacMlpLoptDevice<4>>(const Device&, const DeviceTask&,
                                                 const AdafacArgs&, const DeviceWindow&);
template void LaunchRule<AdafacMlpLoptDevice<32>>(const Device&, const DeviceTask&,
                                                  const AdafacArgs&, const DeviceWindow&);
template void LaunchRule<AdafacMlpLoptDevice<64>>(const Device&, const DeviceTask&,
                                                  const AdafacArgs&, const DeviceWindow&);

}  // namespace lopt
