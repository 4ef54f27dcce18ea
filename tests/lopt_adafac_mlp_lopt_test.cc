#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/key.h"
#include "lopt/base/options.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/registry.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/reference/adafac_mlp_lopt_reference.h"

namespace lopt {
namespace {

constexpr const char* kTraces[] = {"adafac_mlp_steps.safetensors",
                                   "adafac_mlp_steps_large.safetensors"};

// A golden trace: [i] of every array is step i, counted from 0.
struct Trace {
  explicit Trace(const std::string& name) : path(GoldenPath(name)), file(ReadArrayFile(path)) {
    steps = std::stoll(file.metadata.at("steps"));
    options = ReadOptions<AdafacMLPLOptOptions>(Config::Parse(file.metadata.at("optimizer"), path));
    std::vector<std::pair<std::string, Shape>> tensors;
    for (const auto& [tensor, array] : file.arrays.Extract("param0/"))
      tensors.emplace_back(tensor, array.shape());
    params = Layout(tensors);
  }

  std::vector<float> Theta(const Layout& layout) const {
    std::vector<float> theta(static_cast<size_t>(layout.size()));
    RowFromArrays(layout, file.arrays, "theta/", theta);
    return theta;
  }

  // The part of an array that is about one of its first indices.
  std::span<const float> At(const std::string& name, int64_t index) const {
    const Array& array = file.arrays.At(name);
    const auto all = array.As<float>();
    const size_t size = all.size() / static_cast<size_t>(array.shape()[0]);
    return all.subspan(static_cast<size_t>(index) * size, size);
  }

  std::vector<float> Params(const std::string& name, int64_t step) const {
    std::vector<float> row(static_cast<size_t>(params.size()));
    for (const LayoutEntry& entry : params.entries()) {
      const auto from = At(name + "/" + entry.name, step);
      std::copy(from.begin(), from.end(), row.begin() + entry.offset);
    }
    return row;
  }
  // Before step `step`.
  std::vector<float> ParamsBefore(int64_t step) const {
    if (step > 0) return Params("param", step - 1);
    std::vector<float> row(static_cast<size_t>(params.size()));
    RowFromArrays(params, file.arrays, "param0/", row);
    return row;
  }

  // The array that a tensor of the state is called there.
  std::string NameOf(const std::string& state) const {
    const size_t slash = state.find('/');
    const std::string kind = state.substr(0, slash);
    return (kind == "momenta" ? "m" : kind == "v" ? "v_diag" : kind) + state.substr(slash);
  }
  // The state before step `step`: there the decays are the last axis, here the first.
  std::vector<float> StateBefore(const Layout& layout, int64_t step) const {
    std::vector<float> state(static_cast<size_t>(layout.size()));
    if (step == 0) return state;
    for (const LayoutEntry& entry : layout.entries()) {
      const auto from = At(NameOf(entry.name), step - 1);
      const int64_t decays = entry.shape[0];
      const int64_t size = entry.size / decays;
      REQUIRE(from.size() == static_cast<size_t>(entry.size));
      for (int64_t i = 0; i < entry.size; ++i)
        state[entry.offset + i] = from[i % size * decays + i / size];
    }
    return state;
  }

  std::string path;
  ArrayFile file;
  // The largest number of each tensor's array.
  std::vector<double> Largest(const std::string& name) const {
    std::vector<double> largest;
    for (const LayoutEntry& entry : params.entries()) {
      largest.push_back(0);
      for (const float x : file.arrays.At(name + "/" + entry.name).As<float>()) {
        largest.back() = std::max(largest.back(), std::abs(double{x}));
      }
    }
    return largest;
  }

  int64_t steps;
  AdafacMLPLOptOptions options;
  Layout params;
};

// The largest difference to `wanted` over all tensors of a layout, in units of each tensor's
// largest number; tensors of denormals are left out.
double WorstOfLargest(const Layout& layout, std::span<const float> got,
                      std::span<const float> wanted) {
  double worst = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    worst = Farther(worst, FarthestOfLargest(got.subspan(entry.offset, entry.size),
                                             wanted.subspan(entry.offset, entry.size)));
  }
  return worst;
}

TEST_CASE("AdafacMLPLOpt has 197 weights, named as in the field's files") {
  const Layout theta = AdafacMLPLOpt().theta_layout();
  CHECK(theta == Layout({{"nn/w0", {39, 4}},
                         {"nn/b0", {4}},
                         {"nn/w1", {4, 4}},
                         {"nn/b1", {4}},
                         {"nn/w2", {4, 2}},
                         {"nn/b2", {2}},
                         {"momentum_decays", {3}},
                         {"rms_decays", {1}},
                         {"adafactor_decays", {3}}}));
  CHECK(theta.size() == 197);
  const Eigen::VectorXf initial = AdafacMLPLOpt().InitTheta(KeyFromSeed(1));
  CHECK(initial.tail(7).cwiseAbs().maxCoeff() == 0);
  CHECK(initial.head(156).cwiseAbs().maxCoeff() <= 2 / std::sqrt(39.0F));
  CHECK(initial.head(156).cwiseAbs().maxCoeff() >= 1 / std::sqrt(39.0F));
}

TEST_CASE("AdafacMLPLOpt's state keeps momenta, squares and factored moments of every tensor") {
  const Layout params({{"w", {7, 5, 2}}, {"none", {0, 4}}, {"b", {16}}, {"s", {}}});
  CHECK(AdafacMLPLOpt().StateLayout(params) == Layout({{"momenta/w", {3, 7, 5, 2}},
                                                       {"rms/w", {1, 7, 5, 2}},
                                                       {"v_row/w", {3, 5, 2}},
                                                       {"v_col/w", {3, 7, 2}},
                                                       {"momenta/none", {3, 0, 4}},
                                                       {"rms/none", {1, 0, 4}},
                                                       {"v_row/none", {3, 0}},
                                                       {"v_col/none", {3, 4}},
                                                       {"momenta/b", {3, 16}},
                                                       {"rms/b", {1, 16}},
                                                       {"v/b", {3, 16}},
                                                       {"momenta/s", {3}},
                                                       {"rms/s", {1}},
                                                       {"v/s", {3}}}));
}

TEST_CASE("Lists of decays that do not fit together are an Error that says which fit") {
  const auto error = [](const AdafacMLPLOptOptions& options) {
    return ErrorOf([&] { AdafacMLPLOpt{options}; });
  };
  CHECK(error({.initial_rms_decays = {.9, .99}}) ==
        "AdafacMLPLOpt: initial_rms_decays must have 1 decay or as many as "
        "initial_momentum_decays, 3; it has 2");
  CHECK(error({.initial_adafactor_decays = {.9}}) ==
        "AdafacMLPLOpt: initial_adafactor_decays must have as many decays as "
        "initial_momentum_decays, 3; it has 1");
  CHECK(error({.initial_momentum_decays = {}, .initial_adafactor_decays = {}}) ==
        "AdafacMLPLOpt: initial_momentum_decays must have one decay or more");
  CHECK(error({.initial_momentum_decays = {.9, 1, .5}}) ==
        "AdafacMLPLOpt: initial_momentum_decays[1] must be in [0, 1), got 1");
  CHECK(error({.initial_rms_decays = {.9, .99, .999}}) == "no error");
}

TEST_CASE("AdafacMLPLOpt reproduces the params of the golden traces to 1e-6") {
  for (const char* name : kTraces) {
    const Trace trace(name);
    for (const auto& both : BothAdafacMLPLOpts(trace.options)) {
      CAPTURE(name);
      const AdafacMLPLOpt& optimizer = *both;
      const auto rule = optimizer.Bind(trace.params, trace.Theta(optimizer.theta_layout()));
      std::vector<float> params = trace.ParamsBefore(0);
      std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
      rule->InitState({}, params, state);
      Workspace scratch;
      for (int64_t step = 0; step < trace.steps; ++step) {
        rule->Update({.step = step}, trace.Params("gradient", step), params, state, scratch);
        const std::vector<float> wanted = trace.Params("param", step);
        CHECK(Farthest(params, wanted) <= 1e-6);
        CHECK(WorstOfLargest(rule->state_layout(), state,
                             trace.StateBefore(rule->state_layout(), step + 1)) <= 5e-6);
      }
    }
  }
}

TEST_CASE("every single step of the golden traces is right to 5e-5 of its largest") {
  for (const char* name : kTraces) {
    const Trace trace(name);
    // So large that the params before it are not seen.
    AdafacMLPLOptOptions options = trace.options;
    options.step_mult = 1e5;
    for (const auto& both : BothAdafacMLPLOpts(options)) {
      CAPTURE(name);
      const AdafacMLPLOpt& optimizer = *both;
      const auto rule = optimizer.Bind(trace.params, trace.Theta(optimizer.theta_layout()));
      const std::vector<double> largest = trace.Largest("update");
      Workspace scratch;
      for (int64_t step = 0; step < trace.steps; ++step) {
        const std::vector<float> before = trace.ParamsBefore(step);
        std::vector<float> params = before;
        std::vector<float> state = trace.StateBefore(rule->state_layout(), step);
        rule->Update({.step = step}, trace.Params("gradient", step), params, state, scratch);
        const std::vector<float> wanted = trace.Params("update", step);
        const double mult = options.step_mult / trace.options.step_mult;
        for (size_t n = 0; n < largest.size(); ++n) {
          const LayoutEntry& entry = trace.params.entries()[n];
          for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
            const double got = (double{before[i]} - params[i]) / mult;
            CHECK(std::abs(got - wanted[i]) <= 5e-5 * largest[n]);
          }
        }
      }
    }
  }
}

// A theta of `optimizer`, of one hidden layer of two units, whose steps are feature k: one unit has
// its positive part, the other its negative part.
std::vector<float> FeatureTheta(const AdafacMLPLOpt& optimizer, int64_t k) {
  const Layout& layout = optimizer.theta_layout();
  std::vector<float> theta(static_cast<size_t>(layout.size()));
  float* w0 = theta.data() + layout.Find("nn/w0").offset;
  float* w1 = theta.data() + layout.Find("nn/w1").offset;
  w0[2 * k] = w1[0] = 1;
  w0[2 * k + 1] = w1[2] = -1;
  return theta;
}

AdafacMLPLOptOptions FeatureOptions(AdafacMLPLOptOptions options) {
  options.hidden_size = 2;
  options.hidden_layers = 1;
  options.step_mult = 1;
  return options;
}

TEST_CASE("all features are those of the golden traces to 5e-6, the times among them") {
  for (const char* name : kTraces) {
    const Trace trace(name);
    for (const auto& both : BothAdafacMLPLOpts(FeatureOptions(trace.options))) {
      CAPTURE(name);
      const AdafacMLPLOpt& optimizer = *both;
      Workspace scratch;
      for (int64_t k = 0; k < 39; ++k) {
        CAPTURE(k);
        std::vector<float> theta = FeatureTheta(optimizer, k);
        for (const char* decays : {"momentum_decays", "rms_decays", "adafactor_decays"}) {
          const auto offsets = trace.file.arrays.At(std::string("theta/") + decays).As<float>();
          std::copy(offsets.begin(), offsets.end(),
                    theta.begin() + optimizer.theta_layout().Find(decays).offset);
        }
        const auto rule = optimizer.Bind(trace.params, theta);
        for (const int64_t shown : {0, 1}) {
          const int64_t step = shown * (trace.steps - 1);
          const std::vector<float> before = trace.ParamsBefore(step);
          std::vector<float> params = before;
          std::vector<float> state = trace.StateBefore(rule->state_layout(), step);
          rule->Update({.step = step}, trace.Params("gradient", step), params, state, scratch);
          double worst = 0;
          for (const LayoutEntry& entry : trace.params.entries()) {
            const auto features = trace.At("features/" + entry.name, shown);
            constexpr double kTau[] = {1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 3e4, 1e5};
            for (int64_t i = 0; i < entry.size; ++i) {
              const double wanted = k < 28
                                        ? features[i * 28 + k]
                                        : std::tanh(static_cast<double>(step) / kTau[k - 28] - 1);
              const double got = double{before[entry.offset + i]} - params[entry.offset + i];
              // 3e-7: the rounding of a difference of numbers of order one.
              const double difference =
                  (std::abs(got - wanted) - 3e-7) / std::max(1., std::abs(wanted));
              worst = Farther(worst, difference);
            }
          }
          CHECK(worst <= 5e-6);
        }
      }
    }
  }
}

TEST_CASE("a decay follows its offset; those of squares are clipped, those of momenta are not") {
  // After one step from zero the state is (1 - decay) times g, g^2, g^2, and 1 - decay is to
  // float32's 1.2e-7.
  const auto first = [](double momentum, double rms, double adafactor) {
    AdafacMLPLOptOptions options = {.hidden_size = 1, .hidden_layers = 1};
    options.initial_momentum_decays = {.5};
    options.initial_rms_decays = {.999};
    options.initial_adafactor_decays = {.9};
    const AdafacMLPLOpt optimizer(options);
    std::vector<float> theta(static_cast<size_t>(optimizer.theta_layout().size()));
    theta[theta.size() - 3] = static_cast<float>(momentum);
    theta[theta.size() - 2] = static_cast<float>(rms);
    theta[theta.size() - 1] = static_cast<float>(adafactor);
    const auto rule = optimizer.Bind(Layout({{"x", {1}}}), theta);
    std::vector<float> params = {0};
    std::vector<float> state(3);
    Workspace scratch;
    rule->Update({}, std::vector<float>{1}, params, state, scratch);
    return state;
  };
  const auto is = [](const std::vector<float>& got, const std::vector<double>& wanted) {
    for (size_t i = 0; i < 3; ++i) CHECK(std::abs(got[i] - wanted[i]) <= 1e-6 * wanted[i] + 1.2e-7);
  };
  const double rms = 1 - double{.999F};
  is(first(0, 0, 0), {.5, rms, .1});
  is(first(.1, .1, .1), {.5 * std::exp(1), rms * std::exp(1), .1 * std::exp(1)});
  is(first(.31, .69, .23), {.5 * std::exp(3.1), rms * std::exp(6.9), .1 * std::exp(2.3)});
  is(first(-10, .691, .231), {0, 1, 1});
  is(first(0, -10, -10), {.5, 0, 0});
}

// Features of a matrix after `steps` known steps, [28][size].
std::vector<std::vector<float>> FeaturesOf(const AdafacMLPLOpt& optimizer, const Shape& shape,
                                           const std::vector<std::vector<float>>& gradients) {
  std::vector<std::vector<float>> features;
  for (int64_t k = 0; k < 28; ++k) {
    const auto rule = optimizer.Bind(Layout({{"x", shape}}), FeatureTheta(optimizer, k));
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    std::vector<float> params;
    Workspace scratch;
    for (size_t step = 0; step < gradients.size(); ++step) {
      params.assign(gradients[0].size(), 1e-3F);
      rule->Update({.step = static_cast<int64_t>(step)}, gradients[step], params, state, scratch);
    }
    features.push_back(params);
  }
  return features;
}

std::vector<std::vector<float>> Gradients(int64_t steps, int64_t size) {
  std::vector<std::vector<float>> gradients(static_cast<size_t>(steps),
                                            std::vector<float>(static_cast<size_t>(size)));
  for (size_t i = 0; i < gradients.size(); ++i) Normal(FoldIn(KeyFromSeed(5), i), gradients[i]);
  return gradients;
}

// Element [i][j] goes to [j][i].
std::vector<float> Transposed(const std::vector<float>& x, int64_t rows, int64_t cols) {
  std::vector<float> moved(x.size());
  for (int64_t i = 0; i < rows * cols; ++i) moved[i % cols * rows + i / cols] = x[i];
  return moved;
}

TEST_CASE("all features but that of the parameter are the same for gradients of another size") {
  const AdafacMLPLOptOptions options = {.initial_momentum_decays = {.5, .6, .7},
                                        .initial_rms_decays = {.5},
                                        .initial_adafactor_decays = {.5, .6, .7}};
  for (const auto& both : BothAdafacMLPLOpts(FeatureOptions(options))) {
    const AdafacMLPLOpt& optimizer = *both;
    for (const Shape& shape : {Shape{40}, Shape{8, 5}}) {
      std::vector<std::vector<float>> gradients = Gradients(4, 40);
      const auto features = FeaturesOf(optimizer, shape, gradients);
      for (auto& gradient : gradients) {
        for (float& g : gradient) g *= 1.5F;
      }
      const auto larger = FeaturesOf(optimizer, shape, gradients);
      for (size_t k = 0; k < features.size(); ++k) {
        CAPTURE(k);
        for (size_t i = 0; i < 40; ++i) {
          CHECK(std::abs(features[k][i] - larger[k][i]) <= 2e-3 * std::abs(features[k][i]) + 1e-4);
        }
      }
    }
  }
}

TEST_CASE("permuted rows of a matrix permute its update") {
  for (const auto& both : BothAdafacMLPLOpts(FeatureOptions({}))) {
    const AdafacMLPLOpt& optimizer = *both;
    const std::vector<std::vector<float>> gradients = Gradients(3, 20 * 6);
    std::vector<std::vector<float>> permuted = gradients;
    const auto place = [](int64_t i) { return (i / 6 * 7 + 3) % 20 * 6 + i % 6; };
    for (size_t n = 0; n < gradients.size(); ++n) {
      for (int64_t i = 0; i < 120; ++i) permuted[n][place(i)] = gradients[n][i];
    }
    const auto features = FeaturesOf(optimizer, {20, 6}, gradients);
    const auto others = FeaturesOf(optimizer, {20, 6}, permuted);
    for (size_t k = 0; k < features.size(); ++k) {
      for (int64_t i = 0; i < 120; ++i) {
        CHECK(std::abs(features[k][i] - others[k][place(i)]) <= 1e-5);
      }
    }
  }
}

TEST_CASE("a transposed matrix has the transposed update, unless it is square") {
  for (const auto& both : BothAdafacMLPLOpts(FeatureOptions({}))) {
    const AdafacMLPLOpt& optimizer = *both;
    for (const Shape& shape : {Shape{4, 9}, Shape{20, 3}, Shape{6, 6}}) {
      const std::vector<std::vector<float>> gradients = Gradients(3, NumElements(shape));
      std::vector<std::vector<float>> transposed;
      for (const auto& g : gradients) transposed.push_back(Transposed(g, shape[0], shape[1]));
      const auto features = FeaturesOf(optimizer, shape, gradients);
      const auto others = FeaturesOf(optimizer, {shape[1], shape[0]}, transposed);
      double worst = 0;
      for (size_t k = 0; k < features.size(); ++k) {
        const std::vector<float> wanted = Transposed(features[k], shape[0], shape[1]);
        worst = Farther(worst, Farthest(others[k], wanted));
      }
      if (shape[0] == shape[1]) {
        CHECK(worst > .1);
        CHECK(std::isfinite(worst));
      } else {
        CHECK(worst <= 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace lopt
