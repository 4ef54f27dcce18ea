#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "base/config.h"
#include "base/presets.h"

namespace lopt::python {

// A config from what a user hands over: a dict (of dicts, lists, texts, numbers, True and False),
// the name of one of `presets`, or the path of a JSON file (text or os.PathLike). Throws Error that
// names the key for any other value in a dict, and with the presets for a text that is neither.
// `what` names the config in messages.
Config ConfigOf(nanobind::handle from, const Presets& presets, const std::string& what);
// A config that is part of another, or of a call: a dict.
Config ConfigOfDict(nanobind::handle dict, const std::string& what);
nanobind::object ToPython(const Config& config);

}  // namespace lopt::python
