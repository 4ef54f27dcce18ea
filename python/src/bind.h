#pragma once

#include <nanobind/nanobind.h>

namespace lopt::python {

// Each adds what its file holds to the extension lopt._core (module.cc). C++'s lopt::Error comes
// out as lopt.Error with the same text, and a Python exception that a callback or a task raises as
// itself: C++ sees it as a nanobind::python_error.
void BindConfig(nanobind::module_& m);
void BindKeys(nanobind::module_& m);
void BindTheta(nanobind::module_& m);
void BindMetaTraining(nanobind::module_& m);
void BindLoop(nanobind::module_& m);
void BindEvaluation(nanobind::module_& m);
void BindFit(nanobind::module_& m);
void BindOptimizer(nanobind::module_& m);
void BindTasks(nanobind::module_& m);
void BindTypes(nanobind::module_& m);
void BindSingleMachine(nanobind::module_& m);

}  // namespace lopt::python
