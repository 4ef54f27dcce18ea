#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/worker.h"
#include "lopt/python/src/keys.h"
#include "lopt/python/src/single_machine.h"

namespace lopt::python {

// What a pickle holds of an object, and the object of it. Throws Error where it is damaged.
nanobind::object Save(Key key);
nanobind::object Save(const Keys& keys);
nanobind::object Save(const WorkerWeights& weights);
nanobind::object Save(const WorkerState& state);
nanobind::object Save(const AggregatedGradient& gradient);
nanobind::object Save(const LearnerState& state);
nanobind::object Save(const SingleMachineState& state);
void Load(nanobind::handle saved, Key* key);
void Load(nanobind::handle saved, Keys* keys);
void Load(nanobind::handle saved, WorkerWeights* weights);
void Load(nanobind::handle saved, WorkerState* state);
void Load(nanobind::handle saved, AggregatedGradient* gradient);
void Load(nanobind::handle saved, LearnerState* state);
void Load(nanobind::handle saved, SingleMachineState* state);

// class_.def(Pickled()): its objects go into pickles, and are copied.
struct Pickled : nanobind::def_visitor<Pickled> {
  template <class Class>
  void execute(Class& type) {
    using T = typename Class::Type;
    type.def("__getstate__", [](const T& self) { return Save(self); })
        .def("__setstate__", [](T& self, nanobind::handle saved) {
          T loaded;
          Load(saved, &loaded);
          new (&self) T(std::move(loaded));
        });
  }
};

}  // namespace lopt::python
