#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>
#include <filesystem>

#include "lopt/base/error.h"
#include "lopt/base/option_words.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/python/src/log.h"
#include "lopt/python/src/long_call.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/hang_up.h"
#include "lopt/tools/own_command.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.doc() = "The compiled part of lopt. Use the package lopt, which names what is public.";
  nb::exception<lopt::Error>(m, "Error", PyExc_ValueError).attr("__doc__") =
      "Bad input. The text says who found it, what was wanted, what was got and the valid choices.";
  // The library's errors may quote files, and these any bytes.
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        const auto raise = [](const std::exception& error) {
          PyErr_SetObject(nb::module_::import_("lopt._core").attr("Error").ptr(),
                          lopt::python::TextObject(error.what()).ptr());
        };
        try {
          std::rethrow_exception(thrown);
        } catch (const lopt::Error& error) {
          raise(error);
        } catch (const std::filesystem::filesystem_error& error) {
          raise(error);
        }
      },
      nullptr);
  // Families of tasks hold Python objects in C++, where Python's garbage collector does not see
  // them: an experiment of a script's own task that lives until the end is not a fault to report.
  nb::set_leak_warnings(false);
  lopt::SetCaller(lopt::Caller::kPython);
  m.attr("__version__") = lopt::GetBuildInfo().version;
  m.def(
      "run_program",
      [log = spdlog::default_logger()](const nb::list& given,
                                       std::vector<std::string> own_command) {
        std::vector<std::string> words;
        for (const nb::handle word : given) words.push_back(lopt::python::WordOf(word));
        spdlog::set_default_logger(log);
        lopt::SetOwnCommand(std::move(own_command));
        lopt::SetCaller(lopt::Caller::kCommandLine);
        const nb::gil_scoped_release released;
        lopt::NoteHangUp();
        const int code = lopt::RunProgram(words);
        std::fflush(stdout);
        return code;
      },
      nb::arg("words"), nb::arg("own_command"),
      "Runs the program `lopt` with these words of a command line and returns its exit code.\n"
      "`own_command` are the words that run it again, for commands that start processes.");
  lopt::python::LogToPython();
  m.def("end_all", &lopt::python::LongCall::EndAll,
        "Ends the runs of other threads, before Python ends.");
  nb::module_::import_("atexit").attr("register")(m.attr("end_all"));
  lopt::python::BindConfig(m);
  lopt::python::BindKeys(m);
  lopt::python::BindTheta(m);
  lopt::python::BindMetaTraining(m);
  lopt::python::BindLoop(m);
  lopt::python::BindEvaluation(m);
  lopt::python::BindFit(m);
  lopt::python::BindOptimizer(m);
  lopt::python::BindTasks(m);
  lopt::python::BindTypes(m);
  lopt::python::BindSingleMachine(m);
}
