#include "lopt/python/src/log.h"

#include <nanobind/nanobind.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace lopt::python {

namespace nb = nanobind;

namespace {

// Levels of Python's module logging.
int LevelOf(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return 50;
    case spdlog::level::err:
      return 40;
    case spdlog::level::warn:
      return 30;
    case spdlog::level::info:
      return 20;
    default:
      return 10;
  }
}

// Python's logging has locks of its own.
class PythonSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const nb::gil_scoped_acquire acquired;
    try {
      const nb::object text = nb::steal(PyUnicode_DecodeUTF8(
          message.payload.data(), static_cast<Py_ssize_t>(message.payload.size()), "replace"));
      nb::module_::import_("logging").attr("getLogger")("lopt").attr("log")(LevelOf(message.level),
                                                                            "%s", text);
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();  // for the code that called lopt
      } else {
        error.discard_as_unraisable("lopt, logging");
      }
    }
  }
  void flush_() override {}
};

}  // namespace

void LogToPython() {
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("lopt", std::make_shared<PythonSink>()));
}

}  // namespace lopt::python
