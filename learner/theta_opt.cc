#include "lopt/learner/theta_opt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/every_key.h"
#include "lopt/base/options.h"
#include "lopt/base/problems.h"
#include "lopt/base/strict_json.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

constexpr const char* kCount = "count";
constexpr const char* kThetaOpt = "theta_opt";  // the key of the config

// Moves the keys of ClippingOptions out of a config.
ClippingOptions TakeClipping(nlohmann::ordered_json* config) {
  nlohmann::ordered_json own;
  const Config keys = WriteOptions("", ClippingOptions());
  for (const auto& [key, unused] : keys.json().items()) {
    own[key] = config->at(key);
    config->erase(key);
  }
  return ReadOptions<ClippingOptions>(Config::FromJson(std::move(own)));
}

// The schedule of an optimizer, or one that needs nothing where it has none or one that is wrong,
// which what reads the config reports.
RateSchedule ScheduleOf(const nlohmann::ordered_json& optimizer) {
  RateSchedule schedule;
  const auto found = optimizer.find("schedule");
  if (found == optimizer.end()) return schedule;
  Problems problems(kThetaOpt);
  ReadFields(
      Config::FromJson({{"schedule", *found}}),
      [&](FieldVisitor& v) { VisitSchedule(v, &schedule); }, &problems);
  return problems.empty() ? schedule : RateSchedule();
}

// Fills in what the schedule of an optimizer, to which the keys `path` lead, leaves to the length
// of the run.
void ResolveSchedule(const std::string& path, int64_t updates, nlohmann::ordered_json* optimizer) {
  const RateSchedule given = ScheduleOf(*optimizer);
  RateSchedule schedule = ResolvedSchedule(given, updates, path);
  if (schedule == given) return;
  (*optimizer)["schedule"] =
      WriteFields("", [&](FieldVisitor& v) { VisitSchedule(v, &schedule); }).json().at("schedule");
}

// The same for the optimizers in one. A schedule with its own total_steps stays as it is: rounding
// its rise would change the steps of earlier runs.
void ResolveInner(const std::string& path, int64_t updates, nlohmann::ordered_json* optimizer) {
  if (optimizer->value("type", nlohmann::ordered_json()) == "UnknownLength") return;
  for (const char* key : {"optimizer", "matrices", "vectors"}) {
    const auto inner = optimizer->find(key);
    if (inner == optimizer->end() || !inner->is_object()) continue;
    const std::string inner_path = JoinKey(path, key);
    if (ScheduleOf(*inner).NeedsRunLength()) ResolveSchedule(inner_path, updates, &*inner);
    ResolveInner(inner_path, updates, &*inner);
  }
}

// The theta that an optimizer's options give.
Eigen::VectorXf ThetaOfOptions(const LearnedOptimizer& optimizer, const std::string& type) {
  Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(0));
  Require(theta == optimizer.InitTheta(KeyFromSeed(1)),
          "theta_opt: {} begins with drawn weights, so it is to be meta-trained itself; wanted an "
          "optimizer that its options define, such as Adam, AdamW, Muon or Lion",
          type);
  return theta;
}

}  // namespace

void ClippingOptions::Visit(FieldVisitor& v) {
  v.Field("clip_by_value", &clip_by_value, Above(0),
          "Each element of the gradient is clipped to this magnitude, before "
          "clip_by_global_norm.");
  v.Field("clip_by_global_norm", &clip_by_global_norm, Above(0),
          "A gradient of a greater norm is scaled down to this one.");
}

ThetaOpt::ThetaOpt(const Config& config, const Layout& theta) : type_(config.Type()) {
  nlohmann::ordered_json optimizer_config = WithEveryKey(kThetaOpt, config, ThetaOptTypes()).json();
  clipping_ = TakeClipping(&optimizer_config);
  const auto optimizer =
      OptimizerRegistry().Make(Config::FromJson(std::move(optimizer_config), "theta_opt"));
  const Eigen::VectorXf weights = ThetaOfOptions(*optimizer, type_);
  Require(optimizer->needs_num_steps().empty(),
          "theta_opt: {} needs the length of the run, which is not fixed; wanted a schedule with "
          "total_steps, which a meta-training run fills in, and no other use of the length",
          optimizer->needs_num_steps());
  rule_ = optimizer->Bind(theta, AsSpan(weights));
}

NamedArrays ThetaOpt::InitState(std::span<const float> theta) const {
  std::vector<float> row(static_cast<size_t>(rule_->state_layout().size()));
  rule_->InitState({}, theta, row);
  NamedArrays state = ArraysFromRow(rule_->state_layout(), row, "");
  state.Set(kCount, Array(DType::kInt64, {}));
  return state;
}

void ThetaOpt::RequireOwnState(const NamedArrays& state) const {
  const std::vector<LayoutEntry>& entries = rule_->state_layout().entries();
  const bool own =
      state.Contains(kCount) && std::ranges::all_of(entries, [&](const auto& entry) {
        return state.Contains(entry.name) && state.At(entry.name).shape() == entry.shape;
      });
  if (own && std::ranges::distance(state) == std::ssize(entries) + 1) return;
  std::vector<std::string> wanted = {kCount};
  for (const LayoutEntry& entry : entries) {
    wanted.push_back(entry.name + " " + ToString(entry.shape));
  }
  std::vector<std::string> got;
  for (const auto& [name, array] : state) {
    got.push_back(name == kCount ? name : name + " " + ToString(array.shape()));
  }
  Fail("theta_opt: wanted a state of {} with {}, got one of another optimizer or theta with {}",
       type_, fmt::join(wanted, ", "), fmt::join(got, ", "));
}

std::vector<float> ThetaOpt::RowOf(const NamedArrays& state) const {
  RequireOwnState(state);
  std::vector<float> row(static_cast<size_t>(rule_->state_layout().size()));
  RowFromArrays(rule_->state_layout(), state, "", row);
  return row;
}

double ThetaOpt::LearningRate(const NamedArrays& state) const {
  return rule_->LearningRate({.step = state.At(kCount, DType::kInt64, {}).As<int64_t>()[0]});
}

std::optional<int64_t> ThetaOpt::EndOfSchedule(const NamedArrays& state, int64_t updates) const {
  if (type_ == "MatricesAndVectors") return std::nullopt;  // has one learning rate of two
  const auto rests = [this](int64_t step) { return rule_->LearningRate({.step = step}) == 0; };
  int64_t end = state.At(kCount, DType::kInt64, {}).As<int64_t>()[0];
  for (int64_t step = end; step < updates; ++step) {
    if (!rests(step)) return std::nullopt;
  }
  while (end > 0 && rests(end - 1)) --end;
  return end > 0 ? std::optional(end) : std::nullopt;
}

std::vector<float> ThetaOpt::EvalTheta(std::span<const float> theta,
                                       const NamedArrays& state) const {
  const std::vector<float> row = RowOf(state);
  const std::span<const float> kept = rule_->EvalParams(theta, row);
  return {kept.begin(), kept.end()};
}

std::vector<double> ThetaOpt::Clipped(std::span<const float> gradient) const {
  std::vector<double> clipped(gradient.begin(), gradient.end());
  if (clipping_.clip_by_value) {
    for (double& element : clipped) {
      element = std::clamp(element, -*clipping_.clip_by_value, *clipping_.clip_by_value);
    }
  }
  if (clipping_.clip_by_global_norm) {
    double sum = 0;
    for (const double element : clipped) sum += element * element;
    const double norm = std::sqrt(sum);
    if (norm > *clipping_.clip_by_global_norm) {
      for (double& element : clipped) element *= *clipping_.clip_by_global_norm / norm;
    }
  }
  return clipped;
}

void ThetaOpt::Update(std::span<const float> gradient, std::span<float> theta,
                      NamedArrays* state) const {
  Require(gradient.size() == theta.size(), "theta_opt: the gradient has {} numbers, theta has {}",
          gradient.size(), theta.size());
  std::vector<float> row = RowOf(*state);
  int64_t& count = state->At(kCount, DType::kInt64, {}).As<int64_t>()[0];
  Workspace scratch;
  rule_->UpdateInFloat64({.step = count}, Clipped(gradient), theta, row, scratch);
  ++count;
  for (const LayoutEntry& entry : rule_->state_layout().entries()) {
    const auto* from = row.data() + entry.offset;
    std::copy(from, from + entry.size, state->At(entry.name).As<float>().begin());
  }
}

const TypeTable& ThetaOptTypes() {
  static std::mutex mutex;
  static TypeTable types("theta_opt", kTypesOfPlugins);
  const std::lock_guard lock(mutex);
  const std::vector<TypeEntry>& optimizers = OptimizerRegistry().table().entries();
  for (size_t i = types.entries().size(); i < optimizers.size(); ++i) {
    TypeEntry entry = optimizers[i];
    entry.fields = [fields = entry.fields](FieldVisitor& v) {
      fields(v);
      ClippingOptions().Visit(v);
    };
    types.Add(std::move(entry));
  }
  return types;
}

Config ResolveThetaOpt(const Config& theta_opt, int64_t updates) {
  nlohmann::ordered_json resolved = theta_opt.json();
  ResolveSchedule(kThetaOpt, updates, &resolved);
  ResolveInner(kThetaOpt, updates, &resolved);
  return Config::FromJson(std::move(resolved), theta_opt.path());
}

}  // namespace lopt
