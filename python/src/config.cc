#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/nearest_name.h"
#include "lopt/evaluation/presets.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/tools/describe.h"

namespace lopt::python {

namespace nb = nanobind;
using nlohmann::ordered_json;

namespace {

// Those of a kind, by the word that Python has for it.
const Presets& PresetsOf(const std::string& kind) {
  if (kind == "meta_train") return MetaTrainPresets();
  if (kind == "evaluate") return EvaluationPresets();
  Fail("There are no presets of kind '{}'; the kinds are meta_train and evaluate", kind);
}

}  // namespace

void BindConfig(nb::module_& m) {
  m.def("path_of", &PathOf, nb::arg("path"), nb::arg("what"),
        nb::sig("def path_of(path: str | os.PathLike, what: str) -> str"),
        "A path as text. Raises Error, about `what`, where it can be none.");
  m.def(
      "did_you_mean",
      [](const std::string& name, const std::vector<std::string>& names) {
        return DidYouMean(name, names);
      },
      nb::arg("name"), nb::arg("names"),
      nb::sig("def did_you_mean(name: str, names: list[str]) -> str"),
      "The end of a message about a name that is none of these, or an empty text.");
  m.def(
      "presets",
      [](const std::string& kind) {
        nb::dict summaries;
        for (const Preset& preset : PresetsOf(kind).all()) {
          summaries[preset.name.c_str()] = preset.summary;
        }
        return summaries;
      },
      nb::arg("kind") = "meta_train",
      nb::sig("def presets(kind: str = 'meta_train') -> dict[str, str]"),
      "The built-in configs and a sentence about each: of meta-trainings (\"meta_train\") or of\n"
      "evaluations (\"evaluate\").");
  m.def(
      "load_config",
      [](nb::handle source, const std::string& kind) {
        return ToPython(ConfigOf(source, PresetsOf(kind), "config"));
      },
      nb::arg("source"), nb::arg("kind") = "meta_train",
      nb::sig(
          "def load_config(source: dict | str | os.PathLike, kind: str = 'meta_train') -> dict"),
      "A config as a dict to look at and to change: that of a preset or of a JSON file.");
  m.def(
      "load_run_config",
      [](const std::string& path) { return ToPython(InTodaysKeys(Config::Load(path))); },
      nb::arg("path"), nb::sig("def load_run_config(path: str) -> dict"),
      "The config file of a meta-training run, also of one of an earlier version, with the keys\n"
      "that they have now.");
  m.def(
      "resolve",
      [](nb::handle config) {
        const auto options =
            ReadOptions<MetaTrainConfig>(ConfigOf(config, MetaTrainPresets(), "config"));
        CheckConfig(options);
        return ToPython(WriteOptions("", Resolved(options)));
      },
      nb::arg("config"), nb::sig("def resolve(config: dict | str | os.PathLike) -> dict"),
      "A meta-training config with every key and its value. Raises Error where the config is "
      "wrong.");
  m.def(
      "describe",
      [](const std::string& type) {
        return type.empty() ? DescribeEverything() : DescribeTypeNamed(type);
      },
      nb::arg("type") = "",
      "Every type and key of a config, with defaults and meanings, as Markdown; or those of one\n"
      "type. Raises Error, with the types, if there is none of this name.");
}

}  // namespace lopt::python
