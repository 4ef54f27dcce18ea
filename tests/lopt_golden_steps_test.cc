#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/lopt/golden_steps.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/on_every_isa.h"
#include "tests/optimizer_examples.h"
#include "tests/reference/optimizers.h"

namespace lopt {
namespace {

GoldenSteps Measure(const std::string& optimizer, const Eigen::VectorXf& theta) {
  return MeasureGoldenSteps(Config::Parse(optimizer, "test"), AsSpan(theta));
}

// Tensors of the examples whose change by 1 % golden steps need not show.
const std::vector<std::string>& TensorsThatDoNotMatter() {
  static const std::vector<std::string> tensors = {
      // It scales means of squares whose features are normalised, so that only their changes from
      // step to step show it, and its decay is .999.
      "AdafacMLPLOpt/rms_decays", "MatricesAndVectors/matrices/rms_decays",
      // They have no effect.
      "Celo/rnn_params/linear/w", "Celo/rnn_params/linear/b", "Celo/rnn_params/rnn_to_controls/w",
      "Celo/rnn_params/rnn_to_controls/b", "CeloAdam/rnn_params/linear/w",
      "CeloAdam/rnn_params/linear/b",
      // In bfloat16 a change of 1 % may be one of rounding.
      "MLPLOpt-bf16/mlp/linear_1/b",
      // Features of params: tensors that begin at 0 have none, and in those of the others the
      // change is lost in rounding.
      "Celo/ff_mod_stack/w0__2", "Celo-alone/ff_mod_stack/w0__2",
      // Its scheduler is not used.
      "Celo-alone/lstm_init_state/hidden", "Celo-alone/lstm_init_state/cell",
      "Celo-alone/rnn_params/linear/w", "Celo-alone/rnn_params/linear/b",
      "Celo-alone/rnn_params/linear_1/w", "Celo-alone/rnn_params/linear_1/b",
      "Celo-alone/rnn_params/linear_2/w", "Celo-alone/rnn_params/linear_2/b",
      "Celo-alone/rnn_params/rnn/linear/w", "Celo-alone/rnn_params/rnn/linear/b",
      "Celo-alone/rnn_params/rnn_to_controls/w", "Celo-alone/rnn_params/rnn_to_controls/b",
      "Celo-alone/rnn_params/step_size/w", "Celo-alone/rnn_params/step_size/b",
      // LearnedScheduler keeps directions alone.
      "UnknownLength/optimizer/log_lr", "LearnedScheduler-recommended/optimizer/log_lr",
      "LearnedScheduler-Adam/optimizer/log_lr",
      "LearnedScheduler-MatricesAndVectors/optimizer/matrices/log_lr",
      // Far below the gradients, but for those of one tensor.
      "LearnedScheduler-Adam/optimizer/log_epsilon"};
  return tensors;
}

const char* const kSgd = R"({"type": "LearnableSGD"})";

Eigen::VectorXf LogLr(double rate) {
  return Eigen::VectorXf::Constant(1, static_cast<float>(std::log(rate)));
}

GoldenDeviation Repeat(const GoldenSteps& golden, const char* optimizer,
                       const Eigen::VectorXf& theta) {
  return RepeatGoldenSteps(golden, *OptimizerRegistry().Make(Config::Parse(optimizer, "test")),
                           AsSpan(theta));
}

TEST_CASE("The golden result of SGD is the params less the rate times the sum of gradients") {
  const GoldenSteps golden = Measure(kSgd, LogLr(.25));
  const double rate = std::exp(double{LogLr(.25)[0]});
  const auto updates = std::ssize(golden.steps);
  for (size_t tensor = 0; tensor < golden.layout.entries().size(); ++tensor) {
    const LayoutEntry& entry = golden.layout.entries()[tensor];
    CAPTURE(entry.name);
    for (int64_t i = 0; i < entry.size; ++i) {
      double wanted = golden.params[entry.offset + i];
      for (int64_t update = 0; update < updates; ++update) {
        wanted -= rate * golden.gradients[entry.offset * updates + update * entry.size + i];
      }
      CHECK(std::abs(golden.result[entry.offset + i] - wanted) <= golden.limits[tensor]);
    }
  }
}

TEST_CASE("A limit is 8 times what a move by one unit in the last place does, at least") {
  // Each of the 10 updates moves the params by up to one unit, which SGD keeps; 32 draws of them
  // walk 1 to 10 units from the result, and their own rounding takes them a little farther.
  const GoldenSteps golden = Measure(kSgd, LogLr(.003));
  for (size_t tensor = 0; tensor < golden.layout.entries().size(); ++tensor) {
    const LayoutEntry& entry = golden.layout.entries()[tensor];
    CAPTURE(entry.name);
    float greatest = 0;
    for (int64_t i = 0; i < entry.size; ++i) {
      greatest = std::max(greatest, std::abs(golden.result[entry.offset + i]));
    }
    const float unit = std::nextafter(greatest, 1e9F) - greatest;
    CHECK(golden.limits[tensor] >= 8 * 3 * unit / 2);
    CHECK(golden.limits[tensor] <= 8 * 13 * unit);
  }
}

TEST_CASE("Limits are sharp, and golden steps move every tensor that has gradients") {
  for (const auto& [name, config] : OptimizerExamples()) {
    CAPTURE(name);
    const auto optimizer = OptimizerRegistry().Make(Config::Parse(config, "test"));
    const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
    const GoldenSteps golden = Measure(config, theta);
    CHECK(CoarseLimits(golden) == "");
    for (const LayoutEntry& entry : golden.layout.entries()) {
      CAPTURE(entry.name);
      const double moved = Farthest(std::span(golden.result).subspan(entry.offset, entry.size),
                                    std::span(golden.params).subspan(entry.offset, entry.size));
      CHECK(std::isfinite(moved));
      // Celo's are small.
      const size_t tensor = &entry - golden.layout.entries().data();
      if (entry.name != "resting/w") CHECK(moved > std::min(1e-6, 100.0 * golden.limits[tensor]));
    }
  }
}

// With how many readers a changed theta passes the check.
int ReadersThatPass(const GoldenSteps& golden, const Config& config,
                    const Eigen::VectorXf& changed) {
  int passed = 0;
  for (const GoldenDeviation& one : RepeatGoldenStepsEverywhere(golden, config, AsSpan(changed))) {
    if (one.within) ++passed;
  }
  return passed;
}

TEST_CASE("A tensor of theta that matters and was changed by 1 % is found by every reader") {
  std::vector<std::string> not_found;
  int found = 0;
  for (const auto& [name, text] : OptimizerExamples()) {
    const Config config = Config::Parse(text, "test");
    const auto optimizer = OptimizerRegistry().Make(config);
    Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(2));
    std::vector<float> noise(theta.size());
    Normal(KeyFromSeed(3), noise);
    for (int64_t i = 0; i < theta.size(); ++i) theta[i] += .1F * noise[i];
    const GoldenSteps golden = MeasureGoldenSteps(config, AsSpan(theta));
    for (const LayoutEntry& entry : optimizer->theta_layout().entries()) {
      Eigen::VectorXf changed = theta;
      for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) changed[i] *= 1.01F;
      const int passed = ReadersThatPass(golden, config, changed);
      CHECK((passed == 0 || passed == std::ssize(SupportedIsas())));
      if (passed == 0) {
        ++found;
      } else if (const std::string full = fmt::format("{}/{}", name, entry.name);
                 std::ranges::find(TensorsThatDoNotMatter(), full) ==
                 TensorsThatDoNotMatter().end()) {
        not_found.push_back(full);
      }
    }
  }
  CHECK(fmt::format("{}", fmt::join(not_found, ", ")) == "");
  CHECK(found >= 60);
}

TEST_CASE("A file of golden steps gives them back, and damage is named") {
  ArrayFile file;
  const GoldenSteps golden = Measure(kSgd, LogLr(.1));
  PutGoldenSteps(golden, &file);
  const GoldenSteps again = *TakeGoldenSteps(file, "x");
  CHECK(again.layout == golden.layout);
  CHECK(again.steps == golden.steps);
  CHECK(again.num_steps == golden.num_steps);
  CHECK(again.params == golden.params);
  CHECK(again.gradients == golden.gradients);
  CHECK(again.result == golden.result);
  CHECK(again.limits == golden.limits);
  CHECK(again.losses.empty());
  CHECK_FALSE(file.metadata.contains("golden_coarse"));
  CHECK_FALSE(TakeGoldenSteps(ArrayFile(), "x").has_value());

  const auto error = [&](const auto& change) {
    ArrayFile changed = file;
    change(&changed);
    return ErrorOf([&] { TakeGoldenSteps(changed, "x"); });
  };
  CHECK(error([](ArrayFile* f) { f->arrays.Take("golden/limit/large"); })
            .starts_with("x: the golden steps are damaged: no array is named "
                         "'golden/limit/large/w'; there are: "));
  CHECK(error([](ArrayFile* f) { f->arrays.At("golden/limit/large/w").As<float>()[0] = -1; }) ==
        "x: the golden steps are damaged: a limit must be a number of at least 0, got -1");
  CHECK(error([](ArrayFile* f) {
          f->arrays.At("golden/limit/large/w").As<float>()[0] =
              std::numeric_limits<float>::quiet_NaN();
        }) == "x: the golden steps are damaged: a limit must be a number of at least 0, got nan");
  const std::string numbers =
      "x: the golden steps are damaged: golden/steps and golden/num_steps must be whole numbers, "
      "the "
      "steps below num_steps, got ";
  CHECK(error([](ArrayFile* f) { f->arrays.At("golden/steps").As<float>()[1] = -1; }) ==
        numbers + "-1 and 10000");
  CHECK(error([](ArrayFile* f) { f->arrays.At("golden/steps").As<float>()[1] = .5F; }) ==
        numbers + "0.5 and 10000");
  CHECK(error([](ArrayFile* f) { f->arrays.At("golden/num_steps").As<float>()[0] = 9000; }) ==
        numbers + "9000 and 9000");
  CHECK(error([](ArrayFile* f) { f->arrays.At("golden/num_steps").As<float>()[0] = NAN; }) ==
        numbers + "0 and nan");
  CHECK(error([](ArrayFile* f) {
          f->arrays.Take("golden/num_steps");
        }).starts_with("x: the golden steps are damaged: no array is named 'golden/num_steps'"));
  CHECK(
      error([](ArrayFile* f) { f->arrays.Set("golden/steps", Array(DType::kFloat32, {2})); })
          .starts_with("x: the golden steps are damaged: array 'golden/gradients/kernel/w' must be "
                       "F32 of shape [2, 2, 3, 4, 2], got F32 of shape [10, 2, 3, 4, 2]"));
  CHECK(error([](ArrayFile* f) { f->arrays.Set("golden/steps", Array(DType::kInt32, {10})); }) ==
        "x: the golden steps are damaged: golden/steps must be F32 of shape [updates]");
}

TEST_CASE("Optimizers that need losses have golden steps with some, and the losses count") {
  const char* optimizer = R"({"type": "CeloAdam", "lstm_size": 8})";
  const auto made = OptimizerRegistry().Make(Config::Parse(optimizer, "test"));
  Eigen::VectorXf theta = made->InitTheta(KeyFromSeed(1));
  std::vector<float> noise(theta.size());
  Normal(KeyFromSeed(2), noise);
  for (int64_t i = 0; i < theta.size(); ++i) theta[i] += .3F * noise[i];
  ArrayFile file;
  const GoldenSteps golden = Measure(optimizer, theta);
  PutGoldenSteps(golden, &file);
  CHECK(golden.losses.size() == golden.steps.size());
  CHECK(TakeGoldenSteps(file, "x")->losses == golden.losses);
  CHECK(Repeat(golden, optimizer, theta).within);
  // The seventh and the last are beyond belief, and would be if they were half as large again or a
  // twentieth: both count as the greatest that is not.
  std::vector<size_t> without_effect;
  for (size_t i = 0; i < golden.losses.size(); ++i) {
    const auto found = [&](float factor) {
      GoldenSteps other = golden;
      other.losses[i] *= factor;
      return !Repeat(other, optimizer, theta).within;
    };
    if (!found(1.5F) && !found(.05F)) without_effect.push_back(i);
  }
  CHECK(without_effect == std::vector<size_t>{6, 9});
  file.arrays.Set("golden/losses", Array(DType::kFloat32, {2}));
  CHECK(ErrorOf([&] { TakeGoldenSteps(file, "x"); })
            .starts_with("x: the golden steps are damaged: array 'golden/losses' must be F32 of "
                         "shape [10], got F32 of shape [2]"));
}

TEST_CASE("The farthest element is named, and NaN agrees with NaN alone") {
  GoldenSteps golden = Measure(kSgd, LogLr(.1));
  const LayoutEntry& plain = golden.layout.Find("plain/w");
  const float right = golden.result[plain.offset + 5];
  golden.result[plain.offset + 5] = right + .5F;
  golden.result[plain.offset + 7] += .25F;
  const GoldenDeviation off = Repeat(golden, kSgd, LogLr(.1));
  CHECK(off.reader == CurrentIsa());
  CHECK_FALSE(off.within);
  CHECK(off.Describe() ==
        fmt::format("the optimizer does not do what it did when the file was written: "
                    "golden/result/plain/w at 5: {} wanted, got {} on {}, which is 0.5 off; "
                    "accepted are {:.3g}",
                    right + .5F, right, CurrentIsa(), off.limit));
  golden.result[plain.offset + 5] = std::numeric_limits<float>::quiet_NaN();
  golden.result[plain.offset + 7] -= .25F;
  CHECK_FALSE(Repeat(golden, kSgd, LogLr(.1)).within);
  const Eigen::VectorXf nan = Eigen::VectorXf::Constant(1, std::numeric_limits<float>::quiet_NaN());
  CHECK(Repeat(Measure(kSgd, nan), kSgd, nan).within);
  CHECK_FALSE(Repeat(Measure(kSgd, nan), kSgd, LogLr(.1)).within);
  // An infinite limit, where rounding decides whether a number is finite, finds nothing.
  for (float& limit : golden.limits) limit = std::numeric_limits<float>::infinity();
  CHECK(Repeat(golden, kSgd, LogLr(.1)).within);
  CHECK(CoarseLimits(golden).starts_with("kernel/w inf, large/w inf"));
}

TEST_CASE("Files of before there were limits open on every instruction set, and stay sharp") {
  for (const char* name : {"theta_1_fast", "theta_1_mlp"}) {
    const std::string path = GoldenPath(std::string(name) + ".safetensors");
    OnEveryIsa([&] { CHECK(ReadThetaFile(path).theta.size() > 0); });
    for (const GoldenDeviation& one : CheckThetaFile(path)) {
      CAPTURE(one.reader);
      CHECK(one.within);
    }
    const ThetaFile file = ReadThetaFile(path);
    const ArrayFile arrays = ReadArrayFile(path);
    const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
    for (const LayoutEntry& entry : optimizer->theta_layout().entries()) {
      if (entry.name == "optimizer/log_lr") continue;  // directions alone are kept
      CAPTURE(entry.name);
      Eigen::VectorXf changed = file.theta;
      for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) changed[i] *= 1.01F;
      CHECK_FALSE(
          RepeatGoldenSteps(*TakeGoldenSteps(arrays, path), *optimizer, AsSpan(changed)).within);
    }
  }
}

// Of so many thetas of each optimizer: drawn and moved, as training does; of several, the first as
// drawn.
void EveryReaderOpens(int thetas) {
  const char* const number = std::getenv("LOPT_TEST_THETAS");
  if (number != nullptr) thetas = std::atoi(number);
  const char* const kept = std::getenv("LOPT_TEST_THETA_DIR");
  struct Worst {
    double share = 0;
    int readings = 0;
    int refused = 0;
  };
  std::map<std::string, std::map<std::string, Worst>> table;
  auto examples = OptimizerExamples();
  // Its initial steps are too small for the tests of how sharp limits are.
  examples.emplace_back("Sinv6", R"({"type": "Sinv6"})");
  for (const auto& [name, text] : examples) {
    const Config config = Config::Parse(text, "test");
    const auto optimizer = OptimizerRegistry().Make(config);
    const auto reference = MakeReferenceOptimizer(config);
    for (int i = 0; i < thetas; ++i) {
      Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(static_cast<uint64_t>(i)));
      std::vector<float> noise(theta.size());
      Normal(KeyFromSeed(1000 + static_cast<uint64_t>(i)), noise);
      const float scale = .1F * static_cast<float>(thetas == 1 ? 2 : i % 4);
      for (int64_t k = 0; k < theta.size(); ++k) theta[k] += scale * noise[k];
      OnEveryIsa([&] {
        const GoldenSteps golden = MeasureGoldenSteps(config, AsSpan(theta));
        std::vector<GoldenDeviation> readers =
            RepeatGoldenStepsEverywhere(golden, config, AsSpan(theta));
        readers.push_back(RepeatGoldenSteps(golden, *reference, AsSpan(theta)));
        readers.back().reader = "reference";
        for (const GoldenDeviation& one : readers) {
          CAPTURE(name);
          CAPTURE(i);
          CAPTURE(one.reader);
          CHECK_MESSAGE(one.within, one.Describe());
          Worst& worst = table[name][one.reader];
          ++worst.readings;
          if (!one.within) ++worst.refused;
          if (one.deviation > 0) worst.share = Farther(worst.share, one.deviation / one.limit);
        }
        if (kept != nullptr) {
          WriteThetaFile(fmt::format("{}/{}-{}-{}.safetensors", kept, name, i, CurrentIsa()),
                         {.learned_optimizer = config, .theta = theta});
        }
      });
    }
  }
  if (number == nullptr) return;
  for (const auto& [name, readers] : table) {
    for (const auto& [reader, worst] : readers) {
      fmt::print("| {} | {} | {} | {} | {:.2f} |\n", name, reader, worst.readings, worst.refused,
                 worst.share);
    }
  }
}

// All of it: LOPT_TEST_THETAS=64 (tests/prove_theta_files).
TEST_CASE("Every reader opens what each instruction set writes, and so would the reference") {
  EveryReaderOpens(1);
}

TEST_CASE("Every reader opens several thetas that each instruction set writes" *
          doctest::test_suite("nightly")) {
  EveryReaderOpens(4);
}

}  // namespace
}  // namespace lopt
