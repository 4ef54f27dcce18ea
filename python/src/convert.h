#pragma once

#include <nanobind/nanobind.h>

#include <Eigen/Core>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/presets.h"
#include "lopt/estimators/gradient_estimator.h"
#include "lopt/lopt/theta_file.h"

namespace lopt::python {

// What crosses between Python and C++. All are called with the GIL held and throw Error on what
// they cannot take; `what` names the value in messages.

// "ndarray", or "the class ndarray" of a class itself, for messages.
std::string TypeName(nanobind::handle value);

// A config from what a user hands over: a dict (of dicts, lists, texts, numbers, True, False and
// None), the name of one of `presets`, or the path of a JSON file (text or os.PathLike). Error that
// names the key for any other value in a dict, and with the presets for a text that is neither.
Config ConfigOf(nanobind::handle from, const Presets& presets, const std::string& what);
// A config that is part of another, or of a call: a dict, or an object that says what one says.
Config ConfigOfDict(nanobind::handle dict, const std::string& what);
nanobind::object ToPython(const Config& config);

// A str of these bytes, with escapes (\xff) in place of those that are not UTF-8.
nanobind::object TextObject(std::string_view text);

// A word of a command line, as the bytes that the system gave to Python for it.
std::string WordOf(nanobind::handle word);

// A text, which is UTF-8.
std::string TextOf(nanobind::handle text, const std::string& what);

// A path: text or os.PathLike.
std::string PathOf(nanobind::handle path, const std::string& what);

// The numbers of a NumPy array, which must be float32 [n] and contiguous.
Eigen::VectorXf FloatsOf(nanobind::handle array, const std::string& what);
// The rows of one that must be float32 [n, m] and contiguous.
std::vector<Eigen::VectorXf> FloatRowsOf(nanobind::handle array, const std::string& what);
// An array [n] that owns the numbers; nothing is copied.
nanobind::object ToPython(Eigen::VectorXf values);
// A view of numbers that `owner` keeps alive.
nanobind::object ViewOf(const Eigen::VectorXf& values, nanobind::handle owner);
// A dict of copies.
nanobind::object ToPython(const NamedArrays& arrays);

// A dict as Theta.trained_range, or None.
nanobind::object ToPython(const TrainedRange& range);

// The members of a lopt.Theta, and the keyword arguments that make one.
ThetaFile ThetaFileOf(nanobind::handle theta);
// The same of one that is to train something: throws Error that begins with `who` if its numbers
// are not as many as the learned optimizer has, or not finite.
ThetaFile UsableThetaFileOf(nanobind::handle theta, const std::string& who);
nanobind::dict ToPython(ThetaFile theta);

nanobind::dict ToPython(const StepCounts& counts);

// `threads`, or a thread for each core that the process may use where it is None.
int ThreadsOf(nanobind::handle threads);

}  // namespace lopt::python
