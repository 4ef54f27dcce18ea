#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdio>

#include "base/error.h"
#include "python/src/bind.h"
#include "tools/build_info.h"
#include "tools/commands.h"
#include "tools/hang_up.h"
#include "tools/own_command.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.doc() = "The compiled part of lopt. Use the package lopt, which names what is public.";
  nb::exception<lopt::Error>(m, "Error", PyExc_ValueError).attr("__doc__") =
      "Bad input. The text says who found it, what was wanted, what was got and the valid choices.";
  m.attr("__version__") = lopt::GetBuildInfo().version;
  m.def(
      "run_program",
      [](const std::vector<std::string>& words, std::vector<std::string> own_command) {
        lopt::SetOwnCommand(std::move(own_command));
        const nb::gil_scoped_release released;
        lopt::NoteHangUp();
        const int code = lopt::RunProgram(words);
        std::fflush(stdout);
        return code;
      },
      nb::arg("words"), nb::arg("own_command"),
      "Runs the program `lopt` with these words of a command line and returns its exit code.\n"
      "`own_command` are the words that run it again, for commands that start processes.");
  lopt::python::BindConfig(m);
  lopt::python::BindKeys(m);
  lopt::python::BindTheta(m);
  lopt::python::BindMetaTraining(m);
  lopt::python::BindLoop(m);
  lopt::python::BindEvaluation(m);
  lopt::python::BindOptimizer(m);
  lopt::python::BindTasks(m);
}
