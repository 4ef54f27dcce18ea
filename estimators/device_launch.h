#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/arrays.h"
#include "lopt/base/device.h"
#include "lopt/estimators/device_program.h"
#include "lopt/estimators/inner_problem.h"
#include "lopt/estimators/window_device.h"

namespace lopt {

// An array of floats of a state, [replicas, size of the layout]. Throws Error that names it if the
// state has none such.
template <class State>
auto& FloatsIn(State& state, const char* name, int64_t replicas, const Layout& layout) {
  return state.At(name, DType::kFloat32, {replicas, layout.size()});
}

// The same of a state that is moved to a device: the array is in this memory from now on.
inline Array& ArrayOn(const Memory& memory, UnrollState* state, const char* name, int64_t replicas,
                      const Layout& layout) {
  Array& array = FloatsIn(*state, name, replicas, layout);
  if (&array.buffer().memory() != &memory) array = array.To(memory);
  return array;
}

// The floats of a buffer, for code of its memory's device.
inline float* FloatsOf(Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }
inline const float* FloatsOf(const Buffer& buffer) {
  return reinterpret_cast<const float*>(buffer.data());
}

// What a kernel is given for a window, kept on the device until this ends.
class DeviceLaunch {
 public:
  // `config` is the replicas' [B, C], of a task that reads it there.
  DeviceLaunch(const DeviceProgram& program, const ThetaRows& theta, std::span<const float> config);

  DeviceWindow& window() { return window_; }
  DeviceConstants& inputs() { return inputs_; }

  // Runs the kernel: the raw losses [B, steps].
  Array Run(int64_t steps);

 private:
  void SetTheta(const ThetaRows& theta);

  const DeviceProgram& program_;
  const Memory& memory_;
  DeviceConstants inputs_;
  Buffer gradient_;
  DeviceWindow window_;
};

}  // namespace lopt
