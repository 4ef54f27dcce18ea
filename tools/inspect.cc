#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/print.h"
#include "lopt/base/safetensors.h"
#include "lopt/base/strict_json.h"
#include "lopt/base/utf8.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/json_text.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

// Of the finite elements; the norm is Euclidean.
struct Figures {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum_of_squares = 0;
  int64_t not_finite = 0;
};

Figures FiguresOf(const Array& array) {
  Figures figures;
  VisitElements(array, [&](const auto elements) {
    for (const auto element : elements) {
      const auto value = static_cast<double>(element);
      if (!std::isfinite(value)) {
        ++figures.not_finite;
        continue;
      }
      figures.min = std::min(figures.min, value);
      figures.max = std::max(figures.max, value);
      figures.sum_of_squares += value * value;
    }
  });
  return figures;
}

using Json = nlohmann::ordered_json;

constexpr const char* kGolden = "golden/";

// A name that a stranger may have written, whole.
std::string ShownName(std::string_view name) { return PlainText(name, std::string::npos); }

bool IsThetaFile(const ArrayFile& file) {
  return file.metadata.contains("learned_optimizer") && file.metadata.contains("format");
}

// The value of a metadata entry: JSON where it is an object or a list.
Json MetadataValue(const std::string& text) {
  if (!text.starts_with('{') && !text.starts_with('[')) return text;
  try {
    return ParseStrictJson(text, "metadata", false);  // which limits how deep it is
  } catch (const Error&) {
    return text;
  }
}

// How the golden steps of a theta file come out here. `error` says why they cannot be repeated.
struct Check {
  std::vector<GoldenDeviation> readers;
  std::string error;
};

Check CheckOf(const std::string& path) {
  Check check;
  try {
    check.readers = CheckThetaFile(path);
  } catch (const Error& error) {
    check.error = error.what();
  }
  return check;
}

void PrintCheck(const std::string& path) {
  const Check check = CheckOf(path);
  if (!check.error.empty()) {
    PrintOut("  The golden steps cannot be repeated: {}\n", PlainLines(check.error));
    return;
  }
  if (check.readers.empty()) {
    PrintOut("  The file has no golden steps.\n");
    return;
  }
  PrintOut("  Golden steps, by reader, at the element that is farthest off beside its limit:\n");
  PrintOut("  {:<10}  {:>9}  {:>9}  {}\n", "reader", "deviation", "limit", "element");
  for (const GoldenDeviation& one : check.readers) {
    PrintOut("  {:<10}  {:>9.2g}  {:>9.2g}  {} at {}{}\n", one.reader, one.deviation, one.limit,
             PlainText(one.tensor), one.element, one.within ? "" : "  FAILED");
  }
}

Json ArrayJson(const Array& array) {
  const Figures figures = FiguresOf(array);
  Json json = {{"dtype", ToString(array.dtype())}, {"shape", array.shape()}};
  if (figures.not_finite < array.size()) {
    json["min"] = figures.min;
    json["max"] = figures.max;
    json["norm"] = std::sqrt(figures.sum_of_squares);
  }
  json["not_finite"] = figures.not_finite;
  return json;
}

// A number, or its name where JSON has none.
Json NumberJson(double value) {
  return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
}

Json FileJson(const std::string& path) {
  const ArrayFile file = ReadArrayFile(path);
  Json json = {{"path", Utf8Text(path)}, {"arrays", Json::object()}, {"metadata", Json::object()}};
  for (const auto& [name, array] : file.arrays) json["arrays"][name] = ArrayJson(array);
  for (const auto& [name, text] : file.metadata) json["metadata"][name] = MetadataValue(text);
  if (!IsThetaFile(file)) return json;
  const Check check = CheckOf(path);
  if (!check.error.empty()) json["check_error"] = Utf8Text(check.error);
  json["check"] = Json::array();
  for (const GoldenDeviation& one : check.readers) {
    json["check"].push_back({{"reader", one.reader},
                             {"tensor", one.tensor},
                             {"element", one.element},
                             {"wanted", NumberJson(one.wanted)},
                             {"got", NumberJson(one.got)},
                             {"deviation", NumberJson(one.deviation)},
                             {"limit", NumberJson(one.limit)},
                             {"within", one.within}});
  }
  return json;
}

// JSON that does not drive a terminal: with escapes, which mean the same to programs, where it is
// no plain text.
std::string PlainJson(const Json& json, std::string text) {
  return HasPlainLines(text) ? std::move(text) : json.dump(2, ' ', /*ensure_ascii=*/true);
}

// The config of the run that made a file, as meta-train takes it.
void PrintConfig(const std::string& path) {
  const ArrayFile file = ReadArrayFile(path);
  const auto config = file.metadata.find("config");
  Require(config != file.metadata.end(), "{}: the file does not hold the config of a run", path);
  const Config today = InTodaysKeys(Config::Parse(config->second, path));
  PrintOut("{}\n", PlainJson(today.json(), WrappedJson(today.json(), 0, 0)));
}

// The type that an object of a config names; "?" where it names none, or one that no type can have.
std::string TypeIn(const Json& object) {
  const auto type = object.is_object() ? object.find("type") : object.end();
  if (type == object.end() || !type->is_string()) return "?";
  const auto name = type->get<std::string>();
  constexpr size_t kLongest = 40;
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return name.size() <= kLongest && std::ranges::all_of(name, is_letter) ? name : "?";
}

// The config of a meta-training in a few lines: what its estimators train. Empty where it has none,
// as that of one model's training.
std::string ShortConfig(const Json& config) {
  const auto estimators = config.is_object() ? config.find("estimators") : config.end();
  if (estimators == config.end() || !estimators->is_array() || estimators->empty()) return "";
  std::map<std::string, int> counts;
  for (const Json& estimator : *estimators) {
    const bool has_task = estimator.is_object() && estimator.contains("task");
    ++counts[fmt::format("{} of {}", TypeIn(estimator),
                         TypeIn(has_task ? estimator["task"] : Json()))];
  }
  constexpr size_t kMostLines = 12;
  std::string text;
  size_t shown = 0;
  for (const auto& [what, count] : counts) {
    if (++shown > kMostLines) {
      text += fmt::format("\n    and {} others", counts.size() - kMostLines);
      break;
    }
    text += fmt::format("\n    {}{}", what, count > 1 ? fmt::format(", {} of them", count) : "");
  }
  return text + "\n    (lopt inspect --config FILE shows all of it)";
}

void PrintFile(const std::string& path) {
  const ArrayFile file = ReadArrayFile(path);
  const bool theta = IsThetaFile(file);
  size_t width = 4;
  size_t shape_width = 5;
  size_t golden = 0;
  std::set<std::string> types;
  for (const auto& [name, array] : file.arrays) {
    if (theta && name.starts_with(kGolden)) {
      ++golden;
      continue;
    }
    width = std::max(width, TextWidth(ShownName(name)));
    shape_width = std::max(shape_width, ToString(array.shape()).size());
    types.emplace(ToString(array.dtype()));
  }
  // A column of types where they differ: the names of a theta need the room of 80 columns.
  const bool type_column = types.size() > 1;
  const auto type = [&](std::string_view text) {
    return type_column ? fmt::format("{:<5}  ", text) : "";
  };
  PrintOut("{}: {} arrays{}\n", ShownName(path), file.arrays.size(),
           types.size() == 1 ? " of " + *types.begin() : "");
  PrintOut("  {:<{}}  {}{:<{}} {:>10} {:>10} {:>10}\n", "name", width, type("dtype"), "shape",
           shape_width, "min", "max", "norm");
  for (const auto& [name, array] : file.arrays) {
    if (theta && name.starts_with(kGolden)) continue;
    const Figures figures = FiguresOf(array);
    const std::string shown = ShownName(name);
    PrintOut("  {}{}  {}{:<{}}", shown, std::string(width - TextWidth(shown), ' '),
             type(ToString(array.dtype())), ToString(array.shape()), shape_width);
    if (figures.not_finite == array.size()) {
      PrintOut(" {:>10} {:>10} {:>10}", "-", "-", "-");
    } else {
      PrintOut(" {:>10.4g} {:>10.4g} {:>10.4g}", figures.min, figures.max,
               std::sqrt(figures.sum_of_squares));
    }
    if (figures.not_finite > 0) PrintOut("  {} not finite", figures.not_finite);
    PrintOut("\n");
  }
  if (golden > 0)
    PrintOut("  {}...: {} arrays, with which readers check themselves\n", kGolden, golden);
  for (const auto& [key, text] : file.metadata) {
    const Json value = MetadataValue(text);
    const std::string config = theta && key == "config" ? ShortConfig(value) : "";
    if (!config.empty()) {
      PrintOut("  {}:{}\n", key, config);
      continue;
    }
    PrintOut("  {} = {}\n", ShownName(key),
             PlainLines(value.is_string() ? text : WrappedJson(value, 2, key.size() + 5)));
  }
  if (theta) PrintCheck(path);
}

// Of a directory that is inspected: the .json and .safetensors files in it.
struct Found {
  std::vector<std::string> text_files;
  std::vector<std::string> array_files;
};

Found FilesIn(const std::string& path) {
  Found found;
  for (const std::string& name : ListDirectory(path)) {
    const std::string file = fs::path(path) / name;
    if (name.ends_with(".json")) found.text_files.push_back(file);
    if (name.ends_with(".safetensors")) found.array_files.push_back(file);
  }
  Require(!found.array_files.empty(), "{} holds no .safetensors file", path);
  return found;
}

void PrintDirectory(const std::string& path) {
  const Found found = FilesIn(path);
  for (const std::string& file : found.text_files) {
    PrintOut("{}:\n{}\n", ShownName(file), PlainLines(ReadTextFile(file)));
  }
  for (const std::string& file : found.array_files) PrintFile(file);
}

}  // namespace

int InspectCommand(const std::vector<std::string>& arguments) {
  const char* synopsis = "lopt inspect PATH... [--json | --config]";
  po::options_description options("Options");
  options.add_options()("json", "Everything as a list in JSON, for programs.")(
      "config", "The config of the run that made the file, as lopt meta-train takes it.");
  const auto values = ParseCommandLine(
      arguments, options, "path", -1, synopsis,
      "PATH is a .safetensors file, a directory with some in it, or recommended or another theta\n"
      "that comes with lopt. Of a theta file it also says how far each reader that this machine\n"
      "has is off in the file's golden steps.\n\n"
      "Examples:\n  lopt inspect runs/tutorial/theta.safetensors\n"
      "  lopt inspect --config runs/tutorial/theta.safetensors >again.json\n");
  if (!values) return kExitDone;
  if (!values->contains("path")) {
    throw UsageError(fmt::format("The file to inspect is missing; usage: {}", synopsis));
  }
  auto paths = (*values)["path"].as<std::vector<std::string>>();
  const bool config = values->contains("config");
  if (config && (values->contains("json") || paths.size() > 1)) {
    throw UsageError("inspect: --config is of one file, and without --json");
  }
  for (std::string& path : paths) path = ThetaPath(path);
  Json json = Json::array();
  for (const std::string& path : paths) {
    const bool directory = IsDirectory(path);
    if (config) {
      Require(!directory, "inspect: --config is of a file; {} is a directory", path);
      PrintConfig(path);
    } else if (values->contains("json")) {
      const std::vector<std::string> files =
          directory ? FilesIn(path).array_files : std::vector<std::string>{path};
      for (const std::string& file : files) json.push_back(FileJson(file));
    } else if (directory) {
      PrintDirectory(path);
    } else {
      PrintFile(path);
    }
  }
  if (values->contains("json")) PrintOut("{}\n", PlainJson(json, json.dump(2)));
  return kExitDone;
}

}  // namespace lopt
