// In place of cuda.cu where there is no CUDA compiler.
#include "lopt/base/cuda.h"
#include "lopt/base/error.h"

namespace lopt {

CudaDevices FindCudaDevices() { return {.count = 0, .reason = "lopt was built without CUDA"}; }

const Device& CudaDevice(int index) { Fail("device: no 'cuda:{}', built without CUDA", index); }

}  // namespace lopt
