#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/key.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/lopt/use/c_source.h"
#include "lopt/lopt/use/tensor_updates.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// The compilers of this machine, by their commands; the test is skipped where there are none.
std::vector<std::string> Compilers() {
  std::vector<std::string> found;
  for (const std::string compiler : {"gcc", "clang"}) {
    if (RunProcess({"/bin/sh", "-c", "command -v " + compiler}).exit_code == 0) {
      found.push_back(compiler);
    }
  }
  if (found.empty()) SkipTest("there is no C compiler, gcc or clang");
  return found;
}

void Compile(const std::string& command) {
  const FinishedProcess compiled = RunProcess({"/bin/sh", "-c", command});
  CAPTURE(command);
  CHECK_EQ(compiled.errors, "");
  REQUIRE_EQ(compiled.exit_code, 0);
}

constexpr const char* kStrict =
    " -std=c99 -O2 -Wall -Wextra -pedantic -Wshadow -Wconversion -Werror -fPIC ";

struct CShape {
  int32_t axes;
  int32_t sizes[4];
};

// Of every rank, with ties of the largest axes, axes of one element and more rows than columns.
const std::vector<Shape> kShapes = {{3, 4},       {},           {5},       {7, 2},
                                    {1, 6},       {6, 6},       {1},       {8, 1},
                                    {3, 3, 2, 5}, {4, 3, 4, 1}, {3, 5, 3}, {2, 4, 3}};

// LOPT_STATE_n or LOPT_SCRATCH_n of a tensor.
std::string SizeMacro(const std::string& what, const Shape& shape) {
  if (shape.empty()) return "LOPT_" + what + "_1(1)";
  return fmt::format("LOPT_{}_{}({})", what, shape.size(), fmt::join(shape, ", "));
}

// An exported file as a shared library, with what its macros say. `compiler` may have options.
class Library {
 public:
  Library(const std::string& source, const std::string& compiler) {
    std::vector<std::string> state;
    for (const Shape& shape : kShapes) {
      state.push_back(SizeMacro("STATE", shape));
    }
    WriteTextFile(directory_ / "rule.c", source);
    std::string sizes = fmt::format(
        "#include \"rule.c\"\nsize_t state_size(void);\nsize_t scratch_size(void);\n"
        "size_t state_size(void) {{ static float x[{}]; return sizeof x / sizeof *x; }}\n"
        "size_t scratch_size(void) {{ size_t n = 0;\n",
        fmt::join(state, " + "));
    for (const Shape& shape : kShapes) {
      sizes += fmt::format("  {{ static float x[{}]; n = LOPT_MAX(n, sizeof x / sizeof *x); }}\n",
                           SizeMacro("SCRATCH", shape));
    }
    WriteTextFile(directory_ / "sizes.c", sizes + "  return n; }\n");
    Compile(compiler + kStrict + "-shared -o '" + (directory_ / "rule.so") + "' '" +
            (directory_ / "sizes.c") + "' -lm");
    handle_ = dlopen((directory_ / "rule.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle_ != nullptr);
    init_ = Find<int(const CShape*, int32_t, float*)>("lopt_init");
    step_ =
        Find<int(const CShape*, int32_t, int64_t, int64_t, float*, const float*, float*, float*)>(
            "lopt_step");
    state_size_ = Find<size_t()>("state_size")();
    scratch_size_ = Find<size_t()>("scratch_size")();
    for (const Shape& shape : kShapes) {
      CShape c = {static_cast<int32_t>(shape.size()), {}};
      std::ranges::copy(shape, c.sizes);
      shapes_.push_back(c);
    }
  }
  ~Library() { dlclose(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  size_t state_size() const { return state_size_; }
  size_t scratch_size() const { return scratch_size_; }
  std::vector<CShape>& shapes() { return shapes_; }
  int Init(float* state) const {
    return init_(shapes_.data(), static_cast<int32_t>(shapes_.size()), state);
  }
  int Step(int64_t step, int64_t num_steps, float* params, const float* gradient, float* state,
           float* scratch) const {
    return step_(shapes_.data(), static_cast<int32_t>(shapes_.size()), step, num_steps, params,
                 gradient, state, scratch);
  }

 private:
  template <class Function>
  Function* Find(const char* name) {
    void* found = dlsym(handle_, name);
    REQUIRE(found != nullptr);
    return reinterpret_cast<Function*>(found);
  }

  TempDirectory directory_;
  void* handle_ = nullptr;
  int (*init_)(const CShape*, int32_t, float*) = nullptr;
  int (*step_)(const CShape*, int32_t, int64_t, int64_t, float*, const float*, float*,
               float*) = nullptr;
  size_t state_size_ = 0;
  size_t scratch_size_ = 0;
  std::vector<CShape> shapes_;
};

Layout TestedLayout() {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const Shape& shape : kShapes) {
    tensors.emplace_back("p" + std::to_string(tensors.size()), shape);
  }
  return Layout(std::move(tensors));
}

ThetaFile Drawn(const std::string& config) {
  ThetaFile file;
  file.learned_optimizer = Config::Parse(config, "test");
  const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
  file.theta = optimizer->InitTheta(KeyFromSeed(3));
  // Biases, offsets and hyperparameters are not what they begin with.
  std::vector<float> noise(static_cast<size_t>(file.theta.size()));
  Normal(KeyFromSeed(4), noise);
  for (size_t i = 0; i < noise.size(); ++i) file.theta[static_cast<int64_t>(i)] += 0.1f * noise[i];
  return file;
}

ThetaFile Trained(const std::string& name) {
  return ReadThetaFile(SourcePath("trained/" + name + ".safetensors"));
}

constexpr int64_t kSteps = 100;
constexpr float kUntouched = 123.0f;

// The largest |p - native p| / (1 + |native p|) in 100 steps. A tensor begins at 0; some have no
// gradient for a while, one that shrinks, or elements with gradients of many sizes. Params are
// drawn to 1: near 0 the rules see them as on a logarithmic scale, where rounding errors are large.
double LargestDifference(const ThetaFile& file, const Library& library,
                         const StepOptions& options = {}) {
  const Layout layout = TestedLayout();
  TensorRules rules(file.learned_optimizer, file.theta);
  std::vector<float> wanted(static_cast<size_t>(layout.size()));
  Normal(KeyFromSeed(1), wanted);
  const LayoutEntry& zeros = layout.Find("p4");
  std::fill_n(&wanted[static_cast<size_t>(zeros.offset)], zeros.size, 0.0f);
  std::vector<float> got = wanted;
  got.push_back(kUntouched);
  std::vector<std::vector<float>> native_states;
  for (const LayoutEntry& entry : layout.entries()) {
    const UpdateRule& rule = rules.For(entry.shape);
    native_states.emplace_back(static_cast<size_t>(rule.state_layout().size()));
    rule.InitState({}, std::span(wanted).subspan(entry.offset, entry.size), native_states.back());
  }
  std::vector<float> state(library.state_size() + 1, kUntouched);
  std::vector<float> scratch(library.scratch_size() + 1, kUntouched);
  Workspace workspace;
  CHECK_EQ(library.Init(state.data()), 0);
  double largest = 0;
  std::vector<float> gradient(wanted.size());
  for (int64_t step = 0; step < kSteps; ++step) {
    Normal(FoldIn(KeyFromSeed(2), static_cast<uint64_t>(step)), gradient);
    for (const LayoutEntry& entry : layout.entries()) {
      const bool still = entry.name == "p3" && step % 20 < 5;
      const double scale = still ? 0 : entry.name == "p5" ? std::pow(0.9, step) : 1;
      for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
        const double size = entry.name == "p2" ? std::pow(10, entry.offset - i) : 1;
        gradient[i] = static_cast<float>(scale * size * (wanted[i] - 1 + 0.5 * gradient[i]));
      }
    }
    for (size_t n = 0; n < layout.entries().size(); ++n) {
      const LayoutEntry& entry = layout.entries()[n];
      RunUpdate({.rule = &rules.For(entry.shape),
                 .info = {.step = step, .num_steps = kSteps},
                 .options = options,
                 .gradient = std::span(gradient).subspan(entry.offset, entry.size),
                 .params = std::span(wanted).subspan(entry.offset, entry.size),
                 .state = native_states[n]},
                workspace);
    }
    CHECK_EQ(library.Step(step, kSteps, got.data(), gradient.data(), state.data(), scratch.data()),
             0);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double off = std::abs(double{got[i]} - wanted[i]) / (1 + std::abs(wanted[i]));
      largest = Farther(largest, off);
    }
  }
  // No byte more than the macros say, and all of the state.
  CHECK_EQ(got.back(), kUntouched);
  CHECK_EQ(state.back(), kUntouched);
  CHECK_EQ(scratch.back(), kUntouched);
  CHECK_NE(state[state.size() - 2], kUntouched);
  return largest;
}

struct Example {
  std::string name;
  std::function<ThetaFile()> theta;
};

const std::vector<Example> kExamples = {
    {"MLPLOpt", [] { return Drawn(R"({"type": "MLPLOpt", "step_mult": 0.05, "exp_mult": 0.1})"); }},
    {"MLPLOpt with all options",
     [] {
       return Drawn(R"({"type": "MLPLOpt", "hidden_size": 5, "hidden_layers": 3, "step_mult": 0.1,
                        "exp_mult": -0.2, "progress_features": true, "schedule": "warmup-cosine",
                        "relative_step": true, "relative_to_parameter": true,
                        "normalizer_epsilon": 1e-24})");
     }},
    {"MLPLOpt of one hidden layer in pieces",
     [] {
       return Drawn(R"({"type": "MLPLOpt", "hidden_size": 1, "hidden_layers": 1, "step_mult": 0.1,
                        "schedule": {"type": "Piecewise", "boundaries": [10, 60],
                                     "scales": [0.1, 1, 0.3]}})");
     }},
    {"AdafacMLPLOpt", [] { return Drawn(R"({"type": "AdafacMLPLOpt", "step_mult": 0.05})"); }},
    {"AdafacMLPLOpt of other sizes",
     [] {
       return Drawn(R"({"type": "AdafacMLPLOpt", "hidden_size": 7, "hidden_layers": 1,
                        "step_mult": 0.05, "initial_momentum_decays": [0.5, 0.95],
                        "initial_rms_decays": [0.9, 0.99],
                        "initial_adafactor_decays": [0.8, 0.98]})");
     }},
    {"LearnableSGDM", [] { return Drawn(R"({"type": "LearnableSGDM", "schedule": "linear"})"); }},
    {"OrthogonalSteps of AdafacMLPLOpt",
     [] {
       return Drawn(R"({"type": "OrthogonalSteps",
                        "optimizer": {"type": "AdafacMLPLOpt", "step_mult": 0.05}})");
     }},
    {"LearnedScheduler of MLPLOpt",
     [] {
       return Drawn(R"({"type": "LearnedScheduler", "hidden_size": 3,
                        "schedule": {"type": "Warmup", "warmup_steps": 20},
                        "optimizer": {"type": "MLPLOpt", "step_mult": 1}})");
     }},
    {"recommended", [] { return Trained("recommended"); }},
    {"fast", [] { return Trained("fast"); }},
    {"mlp", [] { return Trained("mlp"); }},
    {"tutorial", [] { return Trained("tutorial"); }},
};

TEST_CASE("Exported C compiles without warnings and makes the native steps") {
  for (const std::string& compiler : Compilers()) {
    for (const Example& example : kExamples) {
      CAPTURE(compiler);
      CAPTURE(example.name);
      const ThetaFile file = example.theta();
      const double difference =
          LargestDifference(file, Library(MakeCSource(file, "x.safetensors"), compiler));
      CHECK(difference <= 1e-5);
    }
  }
}

TEST_CASE("LOPT_LR and LOPT_WEIGHT_DECAY of exported C are the options of tensor updates") {
  const std::vector<std::string> compilers = Compilers();
  if (compilers.empty()) return;
  const ThetaFile file = Trained("recommended");
  const std::string source = MakeCSource(file, "x.safetensors");
  const Library slow(source, compilers.front() + " -DLOPT_LR=0.1f+0.2f");
  CHECK(LargestDifference(file, slow, {.lr = 0.3}) <= 1e-5);
  CHECK(LargestDifference(file, slow, {.lr = 0.29}) > 1e-5);
  const Library both(source, compilers.front() + " -DLOPT_LR=0.3 -DLOPT_WEIGHT_DECAY=0.02f+0.03f");
  CHECK(LargestDifference(file, both, {.lr = 0.3, .weight_decay = 0.05}) <= 1e-5);
  CHECK(LargestDifference(file, both, {.lr = 0.3, .weight_decay = 0.04}) > 1e-5);
}

TEST_CASE("Exported C rests where the native rule does: squares of all gradients are no floats") {
  const std::vector<std::string> compilers = Compilers();
  if (compilers.empty()) return;
  const ThetaFile file = Drawn(R"({"type": "MLPLOpt", "step_mult": 0.1, "relative_step": true,
                                   "normalizer_epsilon": 1e-24})");
  const Library library(MakeCSource(file, "x.safetensors"), compilers.front());
  const Layout layout = TestedLayout();
  const auto rule = OptimizerRegistry()
                        .Make(file.learned_optimizer)
                        ->Bind(layout, {file.theta.data(), static_cast<size_t>(file.theta.size())});
  const auto size = static_cast<size_t>(layout.size());
  std::vector<float> native_state(static_cast<size_t>(rule->state_layout().size()));
  std::vector<float> state(library.state_size());
  std::vector<float> scratch(library.scratch_size());
  Workspace workspace;
  // The sums of the squares of 5e-20 over the larger tensors would be normal floats.
  for (const float gradient : {5e-20F, 1e-15F}) {
    CAPTURE(gradient);
    const bool rests = gradient < 1e-19F;
    const std::vector<float> start(size, 1e-3F);
    const std::vector<float> gradients(size, gradient);
    std::vector<float> wanted = start;
    std::vector<float> got = start;
    rule->InitState({}, wanted, native_state);
    CHECK_EQ(library.Init(state.data()), 0);
    for (int64_t step = 0; step < 3; ++step) {
      rule->Update({.step = step, .num_steps = 3}, gradients, wanted, native_state, workspace);
      CHECK_EQ(library.Step(step, 3, got.data(), gradients.data(), state.data(), scratch.data()),
               0);
    }
    CHECK_EQ(wanted == start, rests);
    CHECK_EQ(got == start, rests);
  }
}

// A text of the file and what a mistake would make of it.
struct Mutant {
  std::string example;
  std::string text;
  std::string mistake;
};

TEST_CASE("A wrong number in exported C is found") {
  const std::vector<std::string> compilers = Compilers();
  if (compilers.empty()) return;
  for (const Mutant& mutant : std::vector<Mutant>{
           {"MLPLOpt", "0.999f, 0.9999f}", "0.998f, 0.9999f}"},
           {"MLPLOpt", "30000.0f, 100000.0f", "30000.0f, 10000.0f"},
           {"MLPLOpt with all options", "(double)num_steps) / 10", "(double)num_steps) / 11"},
           {"MLPLOpt with all options", ", 1e-3);", ", 1e-2);"},
           {"AdafacMLPLOpt", "rsqrt(row + 1e-6f)", "rsqrt(row + 1e-9f)"},
           {"AdafacMLPLOpt", "sizes[a] >= sizes[second]", "sizes[a] > sizes[second]"},
           {"recommended", "-4.775f", "-4.77f"},
           {"recommended", "{0.9, 0.99, 0.9, 0.999, 0.9}", "{0.9, 0.99, 0.9, 0.998, 0.9}"},
           {"recommended", "- 5.5)", "- 5.4)"},
       }) {
    const auto example = std::ranges::find(kExamples, mutant.example, &Example::name);
    REQUIRE(example != kExamples.end());
    const ThetaFile file = example->theta();
    std::string source = MakeCSource(file, "x.safetensors");
    CAPTURE(mutant.text);
    const size_t at = source.find(mutant.text);
    REQUIRE(at != std::string::npos);
    source.replace(at, mutant.text.size(), mutant.mistake);
    CHECK(LargestDifference(file, Library(source, compilers.front())) > 1e-5);
  }
}

// Compiles every `every`-th of the examples.
void CompileElsewhere(size_t every) {
  const TempDirectory directory;
  const std::vector<std::string> compilers = Compilers();
  if (compilers.empty()) return;
  for (size_t i = 0; i < kExamples.size(); i += every) {
    const Example& example = kExamples[i];
    CAPTURE(example.name);
    WriteTextFile(directory / "rule.c", MakeCSource(example.theta(), "x.safetensors"));
    WriteTextFile(directory / "main.c",
                  "#define LOPT_DECLARE\n#include \"rule.c\"\n"
                  "static const lopt_shape shapes[] = {{2, {2, 3}}, {1, {3}}};\n"
                  "static float p[9], g[9], state[LOPT_STATE_2(2, 3) + LOPT_STATE_1(3)];\n"
                  "static float scratch[LOPT_MAX(LOPT_SCRATCH_2(2, 3), LOPT_SCRATCH_1(3))];\n"
                  "int main(void) {\n"
                  "  lopt_init(shapes, 2, state);\n"
                  "  return lopt_step(shapes, 2, 0, 10, p, g, state, scratch);\n"
                  "}\n");
    for (const std::string& compiler : compilers) {
      Compile("cd '" + directory.path() + "' && " + compiler + kStrict + "-c rule.c && " +
              compiler + kStrict + "main.c rule.o -lm -o main && ./main");
    }
    Compile("c++ -x c++ -std=c++11 -Wall -Wextra -pedantic -Werror -c '" + (directory / "rule.c") +
            "' -o '" + (directory / "rule.o") + "'");
  }
}

TEST_CASE("Exported C is compiled once and declared elsewhere, and is C++: every fourth example") {
  CompileElsewhere(4);
}

TEST_CASE("Exported C is compiled once and declared elsewhere, and is C++, too" *
          doctest::test_suite("nightly")) {
  CompileElsewhere(1);
}

TEST_CASE("Two exported optimizers in one source file do not compile; one of them twice does") {
  const TempDirectory directory;
  WriteTextFile(directory / "a.c", MakeCSource(Trained("mlp"), "a"));
  WriteTextFile(directory / "again.c", MakeCSource(Trained("mlp"), "again"));
  ThetaFile other = Trained("mlp");
  other.theta[0] += 1;
  WriteTextFile(directory / "b.c", MakeCSource(other, "b"));
  WriteTextFile(directory / "same.c", "#include \"a.c\"\n#include \"a.c\"\n#include \"again.c\"\n");
  WriteTextFile(directory / "two.c", "#include \"a.c\"\n#include \"b.c\"\n");
  for (const std::string& compiler : Compilers()) {
    const std::string compile = "cd '" + directory.path() + "' && " + compiler + kStrict + "-c ";
    Compile(compile + "same.c");
    const FinishedProcess two = RunProcess({"/bin/sh", "-c", compile + "two.c"});
    CHECK_NE(two.exit_code, 0);
    CHECK_NE(two.errors.find("two exported optimizers in one source file: include each in a file "
                             "of its own"),
             std::string::npos);
  }
}

TEST_CASE("Exported C refuses what it cannot step, and changes nothing") {
  const std::vector<std::string> compilers = Compilers();
  if (compilers.empty()) return;
  Library library(MakeCSource(Trained("recommended"), "x"), compilers.front());
  const auto size = static_cast<size_t>(TestedLayout().size());
  std::vector<float> params(size, 1.0f);
  std::vector<float> gradient(size, 0.5f);
  std::vector<float> state(library.state_size());
  std::vector<float> scratch(library.scratch_size());
  const auto step = [&](int64_t t, int64_t num_steps) {
    return library.Step(t, num_steps, params.data(), gradient.data(), state.data(), scratch.data());
  };
  CHECK_EQ(step(-1, 10), 2);
  CHECK_EQ(step(10, 10), 2);
  CHECK_EQ(step(0, 0), 2);
  gradient.back() = std::numeric_limits<float>::infinity();
  CHECK_EQ(step(0, 10), 3);
  gradient.back() = 0.5f;
  library.shapes().back().sizes[1] = 0;
  CHECK_EQ(step(0, 10), 1);
  CHECK_EQ(library.Init(state.data()), 1);
  library.shapes().back() = {.axes = 5, .sizes = {1, 1, 1, 1}};
  CHECK_EQ(step(0, 10), 1);
  CHECK(params == std::vector<float>(size, 1.0f));
  CHECK(state == std::vector<float>(library.state_size()));
  library.shapes().back() = {.axes = 3, .sizes = {2, 4, 3}};
  CHECK_EQ(step(9, 10), 0);
  CHECK(params != std::vector<float>(size, 1.0f));

  const Library needs_none(MakeCSource(Trained("mlp"), "x"), compilers.front());
  std::vector<float> other_state(needs_none.state_size());
  std::vector<float> other_scratch(needs_none.scratch_size());
  CHECK_EQ(needs_none.Step(7, 0, params.data(), gradient.data(), other_state.data(),
                           other_scratch.data()),
           0);
}

TEST_CASE("What cannot be exported as C is an error that lists what can") {
  const auto error = [](const std::string& config) {
    return ErrorOf([&] { MakeCSource(Drawn(config), "x"); });
  };
  const std::string types =
      "types that can: AdafacMLPLOpt, LearnableSGDM, LearnedScheduler, MLPLOpt, OrthogonalSteps";
  CHECK_EQ(error(R"({"type": "Celo"})"), "C: a Celo cannot be exported; " + types);
  CHECK_EQ(error(R"({"type": "OrthogonalSteps", "optimizer": {"type": "LearnableAdam"}})"),
           "C: a LearnableAdam cannot be exported; " + types);
  CHECK_EQ(error(R"({"type": "LearnedScheduler", "optimizer": {"type": "MatricesAndVectors",
                     "matrices": {"type": "MLPLOpt"}, "vectors": {"type": "MLPLOpt"}}})"),
           "C: a MatricesAndVectors cannot be exported; " + types);
  CHECK_EQ(error(R"({"type": "MLPLOpt", "precision": "bf16"})"),
           "C: an MLPLOpt with precision bf16 cannot be exported; precisions that can: fp32");
  CHECK_EQ(error(R"({"type": "OrthogonalSteps", "optimizer":
                     {"type": "OrthogonalSteps", "optimizer": {"type": "MLPLOpt"}}})"),
           "C: OrthogonalSteps within OrthogonalSteps cannot be exported; wanted each type once");
}

TEST_CASE("lopt export writes C that names its theta file") {
  const TempDirectory directory;
  const std::string out = directory / "x.c";
  const auto run = [&](const std::string& theta) {
    return RunProcess({BuildPath("lopt"), "export", theta, "--format", "c", "--out", out});
  };
  const std::string theta = directory / "a *_b.safetensors";
  WriteThetaFile(theta, Trained("mlp"));
  const FinishedProcess finished = run(theta);
  CHECK_EQ(finished.errors, "");
  CHECK_EQ(finished.exit_code, 0);
  const std::string source = ReadTextFile(out);
  CHECK(source.starts_with("/* a __b.safetensors: a learned optimizer, rule and weights, in C99."));
  CHECK_NE(source.find("{\"type\":\"MLPLOpt\",\"hidden_size\":16,"), std::string::npos);
  CHECK_EQ(source.find('@'), std::string::npos);
  CHECK_EQ(source, MakeCSource(ReadThetaFile(theta), "a *_b.safetensors"));

  CHECK_EQ(run("celo2").exit_code, 1);
}

}  // namespace
}  // namespace lopt
