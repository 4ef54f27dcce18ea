#include "lopt/tools/hub.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/presets.h"
#include "lopt/base/record.h"
#include "lopt/base/safetensors.h"
#include "lopt/base/utf8.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/evaluation_directory.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/evaluation/summary.h"
#include "lopt/evaluation/tables.h"
#include "lopt/lopt/golden_steps.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/use/inner_optimizers.h"
#include "lopt/lopt/use/one_file.h"
#include "lopt/lopt/use/torch_script.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/shell.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr EmbeddedFile kLicenceFile[] = {
#include "lopt/tools/licence.inc"
};
constexpr const char* kLoptLicence = "apache-2.0";  // what LICENSE is, as hubs name it
constexpr const char* kLicenceExamples = "apache-2.0, mit or cc-by-4.0";
constexpr size_t kCardColumns = 100;

std::string Paragraph(const std::string& text) { return Wrapped("", text, kCardColumns); }

// --- Licence ----------------------------------------------------------------------------------

// The licence of the weights.
std::string LicenceOf(const std::string& given, bool comes_with_lopt) {
  if (comes_with_lopt) {
    if (!given.empty() && given != kLoptLicence) {
      throw UsageError(fmt::format("--licence: these weights come with lopt, under {}, got '{}'",
                                   kLoptLicence, given));
    }
    return kLoptLicence;
  }
  if (given.empty()) {
    throw UsageError(fmt::format(
        "--licence is missing: whether and how others may use your weights, such as {}. There is "
        "no default, since any would be claimed in your name",
        kLicenceExamples));
  }
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789.-+";
  constexpr std::string_view kNone[] = {"unknown", "none", "other", "null", "no"};
  if (given.find_first_not_of(kAllowed) != std::string::npos ||
      std::ranges::find(kNone, given) != std::end(kNone)) {
    throw UsageError(
        fmt::format("--licence must be the name of a licence as model hubs have it, in lower case, "
                    "such as {}, got '{}'; without one nobody else may use the weights",
                    kLicenceExamples, PlainText(given)));
  }
  return given;
}

// --- What it was trained on -------------------------------------------------------------------

// What the config of a run says of its inner trainings. It may come from elsewhere and have any
// form: what is not as expected is left out.
struct InnerTrainings {
  std::map<std::string, int64_t> tasks = {};  // estimators by the types of their tasks
  std::set<int64_t> batch_sizes = {};         // examples
  std::set<int64_t> lengths = {};             // steps, the bounds of the estimators
};

// "ImageMLP", or "ReparamWeights of ImageMLP".
std::string TaskName(const Json& task) {
  const auto type = task.find("type");
  if (type == task.end() || !type->is_string()) return "a task without a type";
  const auto inner = task.find("task");
  const bool wraps = inner != task.end() && inner->is_object();
  return type->get<std::string>() + (wraps ? " of " + TaskName(*inner) : "");
}

// Adds all whole numbers below one of the keys.
void AddNumbers(const Json& json, const std::set<std::string>& keys, std::set<int64_t>* numbers) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object() || (value.is_array() && !keys.contains(key))) {
      AddNumbers(value, keys, numbers);
    } else if (json.is_object() && keys.contains(key)) {
      for (const Json& one : value.is_array() ? value : Json::array({value})) {
        if (one.is_number_integer()) numbers->insert(one.get<int64_t>());
      }
    }
  }
}

InnerTrainings TrainingsOf(const Config& config) {
  InnerTrainings trainings;
  const auto estimators = config.json().find("estimators");
  if (estimators == config.json().end()) return trainings;
  for (const Json& estimator : *estimators) {
    if (!estimator.is_object()) continue;
    if (const auto task = estimator.find("task"); task != estimator.end() && task->is_object()) {
      ++trainings.tasks[TaskName(*task)];
      AddNumbers(*task, {"batch_size"}, &trainings.batch_sizes);
    }
    for (const char* key : {"lengths", "schedule"}) {  // the name before 0.2
      const auto lengths = estimator.find(key);
      if (lengths == estimator.end() || !lengths->is_object()) continue;
      AddNumbers(*lengths, {"total_length", "min_length", "max_length", "lengths"},
                 &trainings.lengths);
    }
  }
  return trainings;
}

// The text at a key of the config; empty where there is none.
std::string TextAt(const Config& config, const char* key) {
  const auto found = config.json().find(key);
  return found != config.json().end() && found->is_string() ? found->get<std::string>() : "";
}

std::string NotSaid(const std::string& text) { return text.empty() ? "not said" : text; }

std::string ShownTasks(const InnerTrainings& trainings) {
  std::vector<std::string> shown;
  for (const auto& [name, count] : trainings.tasks) {
    shown.push_back(MarkdownName(name) + (count == 1 ? "" : fmt::format(" ({})", count)));
  }
  return NotSaid(fmt::format("{}", fmt::join(shown, ", ")));
}

// "8" or "8 to 16"; where one of them is unknown, the same of what the config names.
std::string ShownSpan(int64_t least, int64_t most, const std::set<int64_t>& of_config,
                      const std::string& unit) {
  if ((least == 0 || most == 0) && !of_config.empty()) {
    least = *of_config.begin();
    most = *of_config.rbegin();
  }
  if (least == 0 || most == 0) return NotSaid("");
  return (least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most)) + unit;
}

std::string ShownSizes(const TrainedRange& range) {
  if (range.most_params == 0) return NotSaid("");
  return fmt::format("{}, in tensors of up to {}",
                     ShownSpan(range.fewest_params, range.most_params, {}, " parameters"),
                     range.largest_tensor);
}

// "- **Type**: ..." in lines.
std::string Fact(const std::string& name, const std::string& value) {
  return Wrapped("- ", fmt::format("**{}**: {}", name, value), kCardColumns);
}

// `chosen_on`: ThetaFile's.
std::string ShownChoice(const std::string& chosen_on) {
  if (chosen_on.empty()) return "no, they are the last weights of the run";
  // No run chooses by this split; a fit multiplies and replaces some of a run's weights as well.
  const char* choice = chosen_on == "inner_valid"
                           ? "by `lopt fit`, which may have changed them after the run"
                           : "among those of the run";
  return fmt::format("{}, by the loss on the split {}", choice, MarkdownName(chosen_on));
}

std::string Training(const ThetaFile& file) {
  const InnerTrainings trainings = TrainingsOf(file.config);
  const TrainedRange& range = file.trained_range;
  std::string text = "## What it was trained on\n\n";
  text += Fact("Longest training", file.trained_horizon > 0
                                       ? fmt::format("{} steps. In longer ones it may lose what "
                                                     "it has gained",
                                                     file.trained_horizon)
                                       : "not known");
  text += Fact("Tasks of its estimators", ShownTasks(trainings));
  text += Fact("Sizes of its models", ShownSizes(range));
  text += Fact("Batch sizes",
               ShownSpan(range.smallest_batch, range.largest_batch, trainings.batch_sizes, ""));
  text += Fact("Lengths", ShownSpan(range.shortest_training, range.longest_training,
                                    trainings.lengths, " steps"));
  text += Fact("Data", TextAt(file.config, "data_dir").empty()
                           ? "no data directory was given; images were drawn"
                           : "of a data directory, where tasks read files");
  if (!TextAt(file.config, "init_theta").empty()) {
    text += Fact("Began with", "the weights of another theta file");
  }
  text += Fact("Updates of the weights (`meta_steps`)", fmt::format("{}", file.meta_steps));
  text += Fact("Seed", fmt::format("{}", file.seed));
  text += Fact("Chosen", ShownChoice(file.chosen_on));
  return text + "\n" +
         Paragraph("`lopt inspect --config theta.safetensors` shows the whole config of the run.") +
         "\n";
}

// --- What it is -------------------------------------------------------------------------------

std::string GoldenFact(const std::string& path) {
  const auto golden = TakeGoldenSteps(ReadArrayFile(path), path);
  if (!golden) return "none: readers cannot check themselves";
  std::vector<std::string> within;
  std::vector<std::string> off;
  for (const GoldenDeviation& reader : CheckThetaFile(path)) {
    (reader.within ? within : off).push_back(reader.reader);
  }
  return fmt::format(
      "{} with {} tensors. Every reader checks itself with them; when this card was written, they "
      "came out within their limits on {}{}",
      golden->steps.size(), golden->layout.entries().size(), fmt::join(within, ", "),
      off.empty() ? "" : fmt::format(", but not on {}", fmt::join(off, ", ")));
}

std::string Nature(const std::string& path, const ThetaFile& file) {
  std::string text = "## What it is\n\n";
  text += Fact("Type", MarkdownName(file.learned_optimizer.Type()));
  text += Fact("Weights", fmt::format("{} numbers, float32", file.theta.size()));
  text +=
      Fact("Written by", file.version.empty() ? "not said" : "lopt " + MarkdownName(file.version));
  text += Fact("Golden steps", GoldenFact(path));
  return text + fmt::format("\nAll options:\n\n```json\n{}\n```\n\n",
                            ResolvedOptimizer(file.learned_optimizer).Dump());
}

// --- How to load it ---------------------------------------------------------------------------

// Whether the type, or one of those that it is made of, comes with a plug-in.
bool IsOfPlugin(const Config& optimizer) {
  return !OptimizerRegistry().table().Find(optimizer).plugin.empty() ||
         std::ranges::any_of(InnerOptimizers(optimizer),
                             [](const auto& inner) { return IsOfPlugin(inner.second); });
}

std::string InTorch(const LearnedOptimizer& optimizer) {
  const std::string& need = optimizer.needs_num_steps();
  const std::string loading = fmt::format(
      "In PyTorch, with `lopt_optimizer.py` of this directory and nothing else:\n\n"
      "```python\n"
      "from lopt_optimizer import LearnedOptimizer\n"
      "optimizer = LearnedOptimizer.from_file(\"theta.safetensors\", model.parameters(){})\n"
      "optimizer.step({})  # in the training loop, after loss.backward()\n"
      "```\n\n",
      need.empty() ? "" : ", num_steps=1000", optimizer.needs_loss() ? "loss=loss" : "");
  std::string notes;
  if (!need.empty()) {
    notes += Paragraph(
        fmt::format("`num_steps` is the number of steps of your training, which {} needs.", need));
  }
  if (optimizer.needs_loss()) notes += Paragraph("Each step is told the loss of its batch.");
  if (optimizer.config().Type() == "UnknownLength") {
    notes += Paragraph(
        "The training may stop at any time. Before the model is judged, saved or used, "
        "`optimizer.eval()` makes it the average of its last steps; `optimizer.train()` puts it "
        "back before the next step.");
  }
  return loading + notes + (notes.empty() ? "" : "\n");
}

std::string Loading(const Config& config, const std::string& objection) {
  std::string text = "## How to load it\n\n";
  if (objection.empty()) {
    text += InTorch(*OptimizerRegistry().Make(config));
  } else {
    text += Paragraph(fmt::format("It has no PyTorch form: {}. In Python, with the package lopt:",
                                  MarkdownName(objection)));
    text +=
        "\n```python\nimport lopt\ntheta = lopt.Theta.read(\"theta.safetensors\")\n"
        "print(theta.tensors)\n```\n\n";
  }
  const bool of_plugin = IsOfPlugin(config);
  const char* plugin = of_plugin ? " --plugin FILE" : "";
  text += fmt::format(
      "With the program:\n\n```sh\nlopt inspect theta.safetensors{0}\n"
      "lopt eval --theta theta.safetensors{0}\n"
      "lopt export theta.safetensors --format npz --out theta.npz{0}\n```\n\n",
      plugin);
  if (of_plugin) text += Paragraph("Its type comes with a plug-in, FILE.") + "\n";
  return text;
}

// --- Evaluation -------------------------------------------------------------------------------

struct JudgedHere {
  std::string name = {};  // of the optimizer in the evaluation
  std::string version = {};
  std::string isa = {};
  Summary summary = {};
};

bool IsSameTheta(const ThetaFile& a, const ThetaFile& b) {
  return a.theta.size() == b.theta.size() && a.theta == b.theta &&
         ResolvedOptimizer(a.learned_optimizer)
             .Differences(ResolvedOptimizer(b.learned_optimizer), {}, "", "")
             .empty();
}

// The name under which the weights were judged as they are, neither tuned nor multiplied.
std::string NameIn(const EvaluationManifest& manifest, const std::string& directory,
                   const ThetaFile& file) {
  std::vector<std::string> others;
  for (const OptimizerInfo& info : manifest.optimizers) {
    if (!info.copy || info.tuned.value_or(false) || info.start_seed || info.step_multiplier) {
      continue;
    }
    if (IsSameTheta(file, ReadThetaFile(directory + "/" + *info.copy))) return info.name;
    others.push_back(fmt::format("{} ({})", info.name, info.theta.value_or("")));
  }
  Fail("{}: the evaluation has not judged these weights; it has judged {}", directory,
       others.empty() ? "no learned optimizer" : fmt::format("{}", fmt::join(others, ", ")));
}

JudgedHere ReadJudged(const std::string& directory, const ThetaFile& file) {
  auto manifest = ReadRecordFile<EvaluationManifest>(directory + "/manifest.json");
  Require(manifest.status == "finished",
          "{}: the evaluation is {}, wanted one that is finished (lopt eval --resume --out {})",
          directory, manifest.status, ShellQuoted(directory));
  const std::string name = NameIn(manifest, directory, file);
  const Results results = ReadResults(directory + "/results.jsonl");
  Require(results.damage.empty(), "{}", results.damage);
  // Paths of this machine are nobody else's business.
  for (OptimizerInfo& info : manifest.optimizers) {
    if (info.theta) info.theta = fs::path(*info.theta).filename();
  }
  return {.name = name,
          .version = manifest.version,
          .isa = manifest.isa,
          .summary = Summarize(results.runs, manifest.optimizers)};
}

std::string Judged(const std::optional<JudgedHere>& judged) {
  const std::string heading = "## Evaluation\n\n";
  if (!judged) {
    return heading + Paragraph("No evaluation was given: nothing is claimed of how good it is.") +
           "\n";
  }
  return heading +
         Paragraph(fmt::format(
             "`lopt eval` of lopt {} ({}) judged these weights, there called {}, with nothing "
             "tuned, and baselines that were tuned for each task. [evaluation.md](evaluation.md) "
             "has all figures.",
             MarkdownName(judged->version), judged->isa, MarkdownName(judged->name))) +
         "\n" + TableAgainstBest(judged->summary, judged->name) + "\n";
}

// --- The directory ----------------------------------------------------------------------------

// What the optimizer is called: the name of its run, or of the file.
std::string Title(const std::string& path, const ThetaFile& file) {
  const std::string name = TextAt(file.config, "name");
  return MarkdownName(name.empty() ? Utf8Text(fs::path(path).stem().string()) : name);
}

std::string Head(const std::string& licence, bool has_torch) {
  return fmt::format(
      "---\nlicense: \"{}\"\nlibrary_name: lopt\ntags:\n- learned-optimizer\n- meta-learning\n"
      "- optimizer\n{}---\n\n",
      licence, has_torch ? "- pytorch\n" : "");
}

std::string LicenceSection(const std::string& licence, bool comes_with_lopt, bool has_torch) {
  std::string text = comes_with_lopt
                         ? "The weights come with lopt and are under its licence, `LICENSE-lopt`"
                         : fmt::format("The weights are under `{}`", licence);
  if (has_torch) text += "; `lopt_optimizer.py` is a part of lopt, under `LICENSE-lopt`";
  return "## Licence\n\n" + Paragraph(text + ".");
}

using NamedFiles = std::vector<std::pair<std::string, std::vector<std::byte>>>;

std::vector<std::byte> BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Those that were written are removed where one cannot be.
void WriteFiles(const std::string& directory, const NamedFiles& files) {
  const bool is_new = !Exists(directory);
  Require(is_new || (IsDirectory(directory) && ListDirectory(directory).empty()),
          "{} is {}; --out must be a directory that is new or empty", directory,
          IsDirectory(directory) ? "not empty" : "a file");
  MakeOutputDirectory(directory);
  try {
    for (const auto& [name, bytes] : files) WriteFile(fs::path(directory) / name, bytes);
  } catch (const Error&) {
    std::error_code ignored;
    for (const auto& [name, bytes] : files) fs::remove(fs::path(directory) / name, ignored);
    if (is_new) fs::remove(directory, ignored);
    throw;
  }
}

}  // namespace

void WriteHubDirectory(const std::string& theta_path, const ThetaFile& theta_file,
                       const HubOptions& options, const std::string& directory) {
  std::vector<std::byte> content = ReadFile(theta_path);
  const bool comes_with_lopt = ComesWithLopt(content);
  const std::string licence = LicenceOf(options.licence, comes_with_lopt);
  Require(!theta_file.config.empty(),
          "{}: the file does not hold the config of the run that trained it, so a model card could "
          "not say what the weights were trained on",
          theta_path);
  std::optional<JudgedHere> judged;
  if (!options.evaluation.empty()) judged = ReadJudged(options.evaluation, theta_file);
  // The one-file optimizer reads both.
  const Config& whole = theta_file.learned_optimizer;
  const std::string objection =
      ObjectionToTorch(whole.Type() == "UnknownLength" ? InnerOptimizers(whole)[0].second : whole);
  const bool has_torch = objection.empty();
  const std::string card =
      Head(licence, has_torch) + fmt::format("# {}\n\n", Title(theta_path, theta_file)) +
      Paragraph(
          "An optimizer that lopt has meta-trained: its update rule was learned. It takes "
          "the place of Adam in the training of a neural network.") +
      "\n" + Loading(theta_file.learned_optimizer, objection) + Nature(theta_path, theta_file) +
      Training(theta_file) + Judged(judged) + LicenceSection(licence, comes_with_lopt, has_torch);
  NamedFiles files;
  files.emplace_back("theta.safetensors", std::move(content));
  if (has_torch) files.emplace_back("lopt_optimizer.py", BytesOf(OneFileOptimizer()));
  if (has_torch || comes_with_lopt) {
    files.emplace_back("LICENSE-lopt", BytesOf(kLicenceFile[0].text));
  }
  if (judged) files.emplace_back("evaluation.md", BytesOf(MarkdownTable(judged->summary)));
  files.emplace_back("README.md", BytesOf(card));
  WriteFiles(directory, files);
}

}  // namespace lopt
