#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "lopt/base/layout.h"
#include "lopt/lopt/use/tensor_updates.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/python/src/long_call.h"

namespace lopt::python {

namespace nb = nanobind;

namespace {

using Addresses = std::vector<uintptr_t>;
using FloatArray = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// What lopt.torch steps tensors with. Rules are known by their numbers.
class TensorOptimizer {
 public:
  TensorOptimizer(nb::handle learned_optimizer, const FloatArray& theta)
      : rules_(ConfigOfDict(learned_optimizer, "learned_optimizer"),
               Eigen::Map<const Eigen::VectorXf>(theta.data(),
                                                 static_cast<Eigen::Index>(theta.size()))) {}

  size_t Bind(const Shape& shape) {
    bound_.push_back(&rules_.For(shape));
    return bound_.size() - 1;
  }

  nb::list StateLayout(size_t rule) const {
    nb::list tensors;
    for (const LayoutEntry& entry : Rule(rule).state_layout().entries()) {
      // "momenta/b" is the momenta of the tensor b.
      tensors.append(nb::make_tuple(entry.name.substr(0, entry.name.rfind('/')),
                                    nb::tuple(nb::cast(entry.shape))));
    }
    return tensors;
  }

  std::vector<int64_t> NotFinite(const std::vector<size_t>& rules, const Addresses& gradients,
                                 int threads) {
    std::vector<std::span<const float>> arrays;
    for (size_t i = 0; i < rules.size(); ++i) arrays.push_back(Params(rules[i], gradients.at(i)));
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return updater_.NotFinite(arrays, threads);
  }

  nb::tuple Update(const std::vector<size_t>& rules, const Addresses& gradients,
                   const Addresses& params, const Addresses& states, int64_t step,
                   int64_t num_steps, double loss, double lr, double weight_decay,
                   bool skip_zero_gradients, int threads) {
    const StepInfo info = {.step = step, .num_steps = num_steps, .loss = static_cast<float>(loss)};
    const StepOptions options = {lr, weight_decay, skip_zero_gradients};
    std::vector<TensorUpdate> updates;
    updates.reserve(rules.size());
    for (size_t i = 0; i < rules.size(); ++i) {
      const UpdateRule& rule = Rule(rules[i]);
      updates.push_back({.rule = &rule,
                         .info = info,
                         .options = options,
                         .gradient = Params(rules[i], gradients.at(i)),
                         .params = Params(rules[i], params.at(i)),
                         .state = Floats(states.at(i), rule.state_layout().size())});
    }
    UpdateReport report;
    {
      const nb::gil_scoped_release released;
      const std::lock_guard lock(mutex_);
      report = updater_.Update(updates, threads);
    }
    return nb::make_tuple(nb::cast(report.left), nb::cast(report.decays));
  }

 private:
  const UpdateRule& Rule(size_t number) const { return *bound_.at(number); }
  static std::span<float> Floats(uintptr_t address, int64_t size) {
    // An address is what torch has of a tensor: NOLINTNEXTLINE(performance-no-int-to-ptr)
    return {reinterpret_cast<float*>(address), static_cast<size_t>(size)};
  }
  std::span<float> Params(size_t rule, uintptr_t address) const {
    return Floats(address, Rule(rule).params_layout().size());
  }

  TensorRules rules_;
  std::vector<const UpdateRule*> bound_;
  std::mutex mutex_;
  TensorUpdater updater_;
};

}  // namespace

void BindOptimizer(nb::module_& m) {
  m.def("isa", &CurrentIsa, "The instruction set that the kernels use.");
  m.def("pin_isa", &LongCall::PinIsaOfAll, nb::arg("isa"),
        "Makes the kernels of the process use another one. Raises Error while any run.");
  nb::class_<TensorOptimizer>(
      m, "TensorOptimizer",
      "A learned optimizer with its theta [D], for tensors that lie apart. Tensors are float32 "
      "without gaps and given by their addresses, which must be valid while a method runs.")
      .def(nb::init<nb::handle, const FloatArray&>(), nb::arg("learned_optimizer"),
           nb::arg("theta"),
           nb::sig("def __init__(self, learned_optimizer: dict, theta: numpy.ndarray) -> None"))
      .def("bind", &TensorOptimizer::Bind, nb::arg("shape"),
           "The number of the rule for a tensor of this shape.")
      .def("state_layout", &TensorOptimizer::StateLayout, nb::arg("rule"),
           nb::sig("def state_layout(self, rule: int) -> list[tuple[str, tuple[int, ...]]]"),
           "Names and shapes of the parts of a tensor's state, in the order of its numbers. It "
           "begins with zeros.")
      .def("not_finite", &TensorOptimizer::NotFinite, nb::arg("rules"), nb::arg("gradients"),
           nb::arg("threads"),
           "The numbers of the gradients that have an element that is not finite, in order.")
      .def("update", &TensorOptimizer::Update, nb::arg("rules"), nb::arg("gradients"),
           nb::arg("params"), nb::arg("states"), nb::arg("step"), nb::arg("num_steps"),
           nb::arg("loss"), nb::arg("lr"), nb::arg("weight_decay"), nb::arg("skip_zero_gradients"),
           nb::arg("threads"),
           nb::sig("def update(self, rules: collections.abc.Sequence[int], gradients: "
                   "collections.abc.Sequence[int], params: collections.abc.Sequence[int], states: "
                   "collections.abc.Sequence[int], step: int, num_steps: int, loss: "
                   "float, lr: float, "
                   "weight_decay: float, skip_zero_gradients: bool, threads: int) -> "
                   "tuple[list[int], list[float]]"),
           "One update of each of the params, in place. `num_steps` is 0 and `loss` anything if "
           "they are not known. The "
           "numbers of the params that were left as they are, since they would not be finite, and "
           "of "
           "each the part that weight decay took.");
}

}  // namespace lopt::python
