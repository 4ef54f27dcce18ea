#include "lopt/estimators/window_cuda.cuh"

namespace lopt {

template void LaunchRule<MlpLoptDevice<16>>(const Device&, const DeviceTask&, const MlpLoptArgs&,
                                            const DeviceWindow&);
template void LaunchRule<MlpLoptDevice<32>>(const Device&, const DeviceTask&, const MlpLoptArgs&,
                                            const DeviceWindow&);
template void LaunchRule<MlpLoptDevice<64>>(const Device&, const DeviceTask&, const MlpLoptArgs&,
                                            const DeviceWindow&);

}  // namespace lopt
