#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/arrays.h"
#include "base/error.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "tools/command_line.h"
#include "tools/commands.h"

namespace lopt {

namespace {

namespace fs = std::filesystem;

// Of the finite elements; the norm is Euclidean.
struct Summary {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum_of_squares = 0;
  int64_t not_finite = 0;
};

Summary Summarize(const Array& array) {
  Summary summary;
  VisitElements(array, [&](const auto elements) {
    for (const auto element : elements) {
      const auto value = static_cast<double>(element);
      if (!std::isfinite(value)) {
        ++summary.not_finite;
        continue;
      }
      summary.min = std::min(summary.min, value);
      summary.max = std::max(summary.max, value);
      summary.sum_of_squares += value * value;
    }
  });
  return summary;
}

void PrintFile(const std::string& path) {
  const ArrayFile file = ReadArrayFile(path);
  size_t width = 4;
  size_t shape_width = 5;
  for (const auto& [name, array] : file.arrays) {
    width = std::max(width, name.size());
    shape_width = std::max(shape_width, ToString(array.shape()).size());
  }
  fmt::print("{}: {} arrays\n", path, file.arrays.size());
  fmt::print("  {:<{}}  dtype  {:<{}}  {:>12}  {:>12}  {:>12}\n", "name", width, "shape",
             shape_width, "min", "max", "norm");
  for (const auto& [name, array] : file.arrays) {
    const Summary summary = Summarize(array);
    fmt::print("  {:<{}}  {:<5}  {:<{}}  ", name, width, ToString(array.dtype()),
               ToString(array.shape()), shape_width);
    if (summary.not_finite == array.size()) {
      fmt::print("{:>12}  {:>12}  {:>12}", "-", "-", "-");
    } else {
      fmt::print("{:>12.6g}  {:>12.6g}  {:>12.6g}", summary.min, summary.max,
                 std::sqrt(summary.sum_of_squares));
    }
    if (summary.not_finite > 0) fmt::print("  {} not finite", summary.not_finite);
    fmt::print("\n");
  }
  for (const auto& [key, text] : file.metadata) fmt::print("  {} = {}\n", key, text);
}

void PrintDirectory(const std::string& path) {
  std::vector<std::string> text_files;
  std::vector<std::string> array_files;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string extension = entry.path().extension();
    if (extension == ".json") text_files.push_back(entry.path());
    if (extension == ".safetensors") array_files.push_back(entry.path());
  }
  Require(!array_files.empty(), "{} holds no .safetensors file", path);
  std::sort(text_files.begin(), text_files.end());
  std::sort(array_files.begin(), array_files.end());
  for (const std::string& file : text_files) fmt::print("{}:\n{}\n", file, ReadTextFile(file));
  for (const std::string& file : array_files) PrintFile(file);
}

}  // namespace

int InspectCommand(const std::vector<std::string>& arguments) {
  const char* synopsis = "lopt inspect PATH...";
  const auto values =
      ParseCommandLine(arguments, {}, "path", -1, synopsis,
                       "PATH is a .safetensors file, or a directory with some in it.\n\n"
                       "Example:\n  lopt inspect runs/tutorial/theta.safetensors\n");
  if (!values) return kExitDone;
  if (!values->contains("path")) {
    throw UsageError(fmt::format("The file to inspect is missing; usage: {}", synopsis));
  }
  for (const std::string& path : (*values)["path"].as<std::vector<std::string>>()) {
    if (fs::is_directory(path)) {
      PrintDirectory(path);
    } else {
      PrintFile(path);
    }
  }
  return kExitDone;
}

}  // namespace lopt
