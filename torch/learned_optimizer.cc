#include "lopt/torch/learned_optimizer.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <sstream>
#include <type_traits>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/lopt/use/tensor_updates.h"
#include "lopt/torch/call.h"

namespace lopt::torch_optim {
namespace {

using Group = torch::optim::OptimizerParamGroup;
using Options = LearnedOptimizerOptions;
using State = LearnedOptimizerParamState;
using States = std::decay_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

constexpr const char* kArchiveFormat = "lopt torch optimizer 3";

// The key that LibTorch uses: text up to 1.13, a pointer later.
template <class Key = States::key_type>
Key StateKey(const torch::Tensor& param) {
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << param.unsafeGetTensorImpl();
    return text.str();
  } else {
    return param.unsafeGetTensorImpl();
  }
}

std::string Name(size_t group, size_t index, const torch::Tensor& param) {
  return fmt::format("LearnedOptimizer: parameter {} of group {}, shape {},", index, group,
                     ToString(param.sizes().vec()));
}

template <class T>
std::string Text(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// `needs_num_steps` is the learned optimizer's.
void CheckOptions(const torch::optim::OptimizerOptions& options, const std::string& needs_num_steps,
                  const std::string& who) {
  const auto* own = dynamic_cast<const Options*>(&options);
  Require(own != nullptr, "{} has the options of another optimizer; LearnedOptimizerOptions needed",
          who);
  for (const auto& [name, value] :
       {std::pair("lr", own->lr()), std::pair("weight_decay", own->weight_decay())}) {
    constexpr double kLargest = std::numeric_limits<float>::max();
    Require(value >= 0 && value <= kLargest,
            "{}: {} must be a number from 0 to {:.3g}, the largest of float32, got {}", who, name,
            kLargest, value);
  }
  for (const auto& [name, value] :
       {std::pair("num_steps", own->num_steps()), std::pair("batch_size", own->batch_size())}) {
    Require(value >= 0, "{}: {} must be at least 0, got {}", who, name, value);
  }
  Require(needs_num_steps.empty() || own->num_steps() > 0,
          "{}: {} needs num_steps, the number of steps of the training, which is not given", who,
          needs_num_steps);
}

// What is wrong with a parameter or its gradient; empty if nothing is.
std::string Problem(const torch::Tensor& param) {
  if (!param.device().is_cpu()) {
    return fmt::format("is on the device {}; it must be on the CPU", Text(param.device()));
  }
  if (param.layout() != torch::kStrided) {
    return fmt::format("has the layout {}; it must be Strided", Text(param.layout()));
  }
  if (param.scalar_type() != torch::kFloat32 && param.scalar_type() != torch::kFloat64) {
    return fmt::format("has elements of type {}; valid types: Float, Double",
                       Text(param.scalar_type()));
  }
  const torch::Tensor& gradient = param.grad();
  if (!gradient.defined()) return "";
  if (gradient.layout() != torch::kStrided) {
    return fmt::format("has a gradient with the layout {}; it must be Strided (dense)",
                       Text(gradient.layout()));
  }
  if (!gradient.device().is_cpu() || gradient.sizes() != param.sizes()) {
    return fmt::format("has a gradient of shape {} on the device {}; it must be like the parameter",
                       ToString(gradient.sizes().vec()), Text(gradient.device()));
  }
  return "";
}

// Checks all params, their gradients and the options of all groups.
void CheckGroups(const std::vector<Group>& groups, const std::string& needs_num_steps) {
  std::set<const void*> seen;
  for (size_t g = 0; g < groups.size(); ++g) {
    CheckOptions(groups[g].options(), needs_num_steps,
                 fmt::format("LearnedOptimizer: param group {}", g));
    for (size_t i = 0; i < groups[g].params().size(); ++i) {
      const torch::Tensor& param = groups[g].params()[i];
      std::string problem = Problem(param);
      if (!seen.insert(param.unsafeGetTensorImpl()).second) problem = "is given twice";
      if (!problem.empty()) Fail("{} {}", Name(g, i, param), problem);
    }
  }
}

// Whether these are numbers of the kind that rules work on, one after the other.
bool ArePlainFloats(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == torch::kStrided &&
         tensor.scalar_type() == torch::kFloat32 && tensor.is_contiguous();
}

// What is wrong with a state of which a rule needs so many numbers; empty if nothing is.
std::string StateProblem(const torch::Tensor& state, int64_t wanted) {
  if (ArePlainFloats(state) && state.numel() == wanted) return "";
  if (!state.defined()) return "has no state";
  return fmt::format(
      "has a state of {} numbers of type {} on the device {}; needed are {} of type Float, one "
      "after the other, on the CPU",
      state.numel(), Text(state.scalar_type()), Text(state.device()), wanted);
}

std::span<float> Floats(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// A tensor [out, in, spatial...] as an optimizer that sees shapes knows it, [spatial..., in, out]:
// a view. Tensors of fewer than two axes, and those for other optimizers, as they are.
torch::Tensor InRuleOrder(const torch::Tensor& tensor, bool sees_shapes) {
  if (!sees_shapes || tensor.dim() < 2) return tensor;
  std::vector<int64_t> axes;
  for (int64_t axis = 2; axis < tensor.dim(); ++axis) axes.push_back(axis);
  axes.insert(axes.end(), {1, 0});
  return tensor.permute(axes);
}

// One parameter's update, prepared.
struct Job {
  Job(size_t group_number, size_t number, const torch::Tensor& param, bool sees_shapes,
      const Options& options)
      : group(group_number),
        index(number),
        key(StateKey(param)),
        param(InRuleOrder(param.detach(), sees_shapes)),
        gradient(
            InRuleOrder(param.grad(), sees_shapes).to(torch::kFloat32).resolve_neg().contiguous()),
        options(&options) {}

  size_t group;
  size_t index;  // within the group
  States::key_type key;
  torch::Tensor param;     // a view of it in the order of the rule
  torch::Tensor gradient;  // float32 in C order
  const Options* options;
  torch::Tensor values = {};  // float32 in C order: the param itself or a copy, updated
  const UpdateRule* rule = nullptr;
  State* state = nullptr;

  bool IsDouble() const { return param.scalar_type() == torch::kFloat64; }
  bool InPlace() const { return !IsDouble() && param.is_contiguous() && !param.is_neg(); }

  void Prepare() {
    values = InPlace() ? param : torch::empty(param.sizes(), torch::kFloat32).copy_(param);
  }

  TensorUpdate Update(float loss) const {
    TensorUpdate update = {
        .rule = rule,
        .info = {.step = state->step(), .num_steps = options->num_steps(), .loss = loss},
        .options = {},
        .gradient = Floats(gradient),
        .params = Floats(values),
        .state = Floats(state->state())};
    if (!IsDouble()) {
      update.options = {options->lr(), options->weight_decay(), options->skip_zero_gradients()};
    }
    return update;
  }

  // The part of a float64 param that weight decay takes.
  double Finish() const {
    state->step(state->step() + 1);
    if (InPlace()) {
      param.unsafeGetTensorImpl()->bump_version();  // autograd must notice, as with any operation
      return 0;
    }
    double decay = 0;
    const torch::Tensor& old = param;
    torch::Tensor updated = values;
    if (IsDouble()) {
      torch::Tensor change = (values - old.to(torch::kFloat32)).to(torch::kFloat64);
      if (options->weight_decay() != 0) {
        decay = options->lr() * options->weight_decay() / kAdamWStep *
                std::sqrt(change.square().mean().item<double>());
      }
      change.mul_(options->lr());
      if (decay != 0) change.sub_(old, decay);
      updated = old + change;
      if (options->skip_zero_gradients()) updated = torch::where(gradient == 0, old, updated);
    }
    param.copy_(updated);
    return decay;
  }
};

std::string GroupKey(size_t group, const char* what) {
  return fmt::format("groups/{}/{}", group, what);
}
std::string ParamKey(size_t group, size_t index, const char* what) {
  return fmt::format("groups/{}/params/{}/{}", group, index, what);
}

// Reads what must be in an archive of this format.
c10::IValue Read(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  Require(archive.try_read(key, value), "LearnedOptimizer: the archive is damaged: no '{}'", key);
  return value;
}

void CheckSame(const char* what, int64_t saved, size_t here) {
  Require(saved == static_cast<int64_t>(here),
          "LearnedOptimizer: the archive has {} {}, this optimizer {}", saved, what, here);
}

}  // namespace

// The bound optimizer, with what a run of it says.
struct LearnedOptimizer::Rules {
  explicit Rules(const ThetaFile& theta_file)
      : config(theta_file.learned_optimizer),
        tensors(config, theta_file.theta),
        horizon(theta_file.trained_horizon),
        range(theta_file.trained_range) {
    range.longest_training = horizon;  // also where that alone is known
    // Whose averages nobody would see here.
    RequireStepsMakeParams(tensors.For({2}), "LearnedOptimizer");
  }

  const lopt::LearnedOptimizer& optimizer() const { return tensors.optimizer(); }

  // For a parameter in the order of the rule.
  const UpdateRule& Get(const torch::Tensor& param, const Options& options) {
    return tensors.For(options.as_vectors() ? Shape{param.numel()} : param.sizes().vec());
  }

  torch::Tensor ThetaTensor() const {
    const Eigen::VectorXf& theta = tensors.theta();
    return torch::from_blob(const_cast<float*>(theta.data()), {theta.size()}).clone();
  }

  // Says once, at the first step, what of a training is unlike all that the optimizer was trained
  // on. `num_steps`, `batch_size`: 0 if unknown; `tensors`: the sizes of those that have a
  // gradient.
  void CompareWithTrained(int64_t num_steps, int64_t batch_size, std::span<const int64_t> tensors) {
    if (compared || tensors.empty()) return;
    compared = true;
    const std::string unlike = UnlikeTrained(range, num_steps, tensors, batch_size);
    if (unlike.empty()) return;
    warned = horizon > 0 && num_steps > horizon;
    TORCH_WARN("LearnedOptimizer: ", unlike,
               ". Try a smaller and a larger lr, and compare with Adam");
  }

  // Says once that a training goes beyond what the optimizer was trained for, unless its num_steps
  // said so.
  void NoteSteps(int64_t steps) {
    if (horizon == 0 || steps <= horizon || warned) return;
    warned = true;
    TORCH_WARN("LearnedOptimizer: step ", steps, " is beyond the ", horizon,
               " steps that this optimizer was trained for; it may lose what it has gained");
  }

  // Counts a tensor that is left as it is, and says so once.
  void NoteLeft(const std::string& name) {
    ++skipped;
    if (warned_of_left) return;
    warned_of_left = true;
    TORCH_WARN(name,
               " would not be finite after its step, so it is left as it is; skipped() counts "
               "such steps");
  }

  // Says once that weight decay takes much of a tensor in a step.
  void NoteDecay(double weight_decay, double part, const std::string& name) {
    if (warned_of_decay) return;
    warned_of_decay = true;
    TORCH_WARN(
        fmt::format("{} loses {:.2g} % in a step by weight_decay {}; that is more than {} "
                    "%, which few trainings bear",
                    name, 100 * part, weight_decay, 100 * kLargeDecay));
  }

  Config config;
  TensorRules tensors;
  TensorUpdater updater;
  int64_t horizon;  // 0: unknown
  TrainedRange range;
  bool compared = false;
  bool warned = false;
  bool warned_of_left = false;
  bool warned_of_decay = false;
  int64_t skipped = 0;
};

LearnedOptimizer::LearnedOptimizer(std::vector<Group> param_groups, const ThetaFile& theta_file,
                                   const Options& defaults)
    : torch::optim::Optimizer(std::move(param_groups), std::make_unique<Options>(defaults)),
      rules_(std::make_unique<Rules>(theta_file)) {
  CheckOptions(defaults, /*needs_num_steps=*/"", "LearnedOptimizer");
  CheckGroups(param_groups_, rules_->optimizer().needs_num_steps());
}

LearnedOptimizer::LearnedOptimizer(std::vector<torch::Tensor> params, const ThetaFile& theta_file,
                                   const Options& defaults)
    : LearnedOptimizer(std::vector<Group>{Group(std::move(params))}, theta_file, defaults) {}

LearnedOptimizer LearnedOptimizer::FromFile(std::vector<Group> param_groups,
                                            const std::string& path, const Options& defaults) {
  return {std::move(param_groups), ReadThetaFile(path), defaults};
}

LearnedOptimizer LearnedOptimizer::FromFile(std::vector<torch::Tensor> params,
                                            const std::string& path, const Options& defaults) {
  return {std::move(params), ReadThetaFile(path), defaults};
}

LearnedOptimizer::LearnedOptimizer(LearnedOptimizer&&) noexcept = default;
LearnedOptimizer::~LearnedOptimizer() = default;

torch::Tensor LearnedOptimizer::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  const std::string& needs_num_steps = rules_->optimizer().needs_num_steps();
  CheckGroups(param_groups_, needs_num_steps);
  Require(
      !rules_->optimizer().needs_loss() || (loss.defined() && loss.numel() == 1),
      "LearnedOptimizer: a {} needs the loss of the batch: give step a closure that returns it; "
      "nothing was changed",
      rules_->config.Type());

  std::vector<Job> jobs;
  std::vector<std::span<const float>> gradients;
  std::vector<int64_t> sizes;
  int64_t longest = 0;
  int64_t batch_size = 0;
  bool told = true;
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& options = static_cast<const Options&>(param_groups_[g].options());
    for (size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      const torch::Tensor& param = param_groups_[g].params()[i];
      if (!param.grad().defined() || param.numel() == 0) continue;
      Require(needs_num_steps.empty() || StepsOf(param) < options.num_steps(),
              "{} has made all {} steps of its training (num_steps), which {} needs; nothing was "
              "changed{}",
              Name(g, i, param), options.num_steps(), needs_num_steps,
              rules_->optimizer().needs_loss() ? "" : ". A higher num_steps lets it go on");
      Job& job = jobs.emplace_back(g, i, param, rules_->optimizer().sees_shapes(), options);
      job.rule = &rules_->Get(job.param, options);
      if (const auto found = state_.find(job.key); found != state_.end()) {
        const std::string problem = StateProblem(static_cast<const State&>(*found->second).state(),
                                                 job.rule->state_layout().size());
        if (!problem.empty()) {
          Fail("{} {} (as_vectors of its group is {}; has it been changed?); nothing was changed",
               Name(g, i, param), problem, options.as_vectors());
        }
      }
      gradients.push_back(Floats(jobs.back().gradient));
      sizes.push_back(param.numel());
      longest = std::max(longest, options.num_steps());
      told = told && options.num_steps() > 0;
      batch_size = std::max(batch_size, options.batch_size());
    }
  }
  rules_->CompareWithTrained(told ? longest : 0, batch_size, sizes);
  const double loss_value = rules_->optimizer().needs_loss() ? loss.item<double>() : 0;
  if (!(std::abs(loss_value) <= std::numeric_limits<float>::max())) {
    for (const Job& job : jobs) {
      Require(
          job.options->non_finite() == NonFinite::kSkip,
          "LearnedOptimizer: a {} is told the loss {} at step {}, which is not finite in "
          "float32; nothing was changed. NonFinite::kSkip leaves all parameters as they are and "
          "goes on",
          rules_->config.Type(), loss_value,
          StepsOf(param_groups_[job.group].params()[job.index]) + 1);
    }
    rules_->skipped += std::ssize(jobs);
    return loss;
  }
  const int threads = at::get_num_threads();
  const std::vector<int64_t> not_finite = rules_->updater.NotFinite(gradients, threads);
  for (const int64_t n : not_finite) {
    const Job& job = jobs[static_cast<size_t>(n)];
    Require(job.options->non_finite() == NonFinite::kSkip,
            "{} has a gradient that is not finite; nothing was changed. NonFinite::kSkip leaves "
            "such a parameter as it is and goes on",
            Name(job.group, job.index, param_groups_[job.group].params()[job.index]));
  }
  for (const int64_t n : std::views::reverse(not_finite)) jobs.erase(jobs.begin() + n);
  rules_->skipped += std::ssize(not_finite);
  // Entries only once all new states are there, whatever throws before.
  std::vector<std::pair<Job*, std::unique_ptr<State>>> fresh;
  for (Job& job : jobs) {
    job.Prepare();
    const auto found = state_.find(job.key);
    if (found != state_.end()) {
      job.state = static_cast<State*>(found->second.get());
      continue;
    }
    auto& [_, state] = fresh.emplace_back(&job, std::make_unique<State>());
    state->state(torch::zeros({job.rule->state_layout().size()}, torch::kFloat32));
    job.rule->InitState({.num_steps = job.options->num_steps()}, Floats(job.values),
                        Floats(state->state()));
  }
  for (auto& [job, state] : fresh) {
    job->state = state.get();
    state_.emplace(job->key, std::move(state));
  }
  std::vector<TensorUpdate> updates;
  for (const Job& job : jobs) updates.push_back(job.Update(static_cast<float>(loss_value)));
  const UpdateReport report = rules_->updater.Update(updates, threads);
  for (size_t n = 0; n < jobs.size(); ++n) {
    const Job& job = jobs[n];
    const auto name = [&] {
      return Name(job.group, job.index, param_groups_[job.group].params()[job.index]);
    };
    if (std::ranges::binary_search(report.left, static_cast<int64_t>(n))) {
      rules_->NoteLeft(name());
      job.state->step(job.state->step() + 1);
    } else {
      const double decay = std::max(report.decays[n], job.Finish());
      if (decay > kLargeDecay) rules_->NoteDecay(job.options->weight_decay(), decay, name());
    }
    rules_->NoteSteps(job.state->step());
  }
  return loss;
}

int64_t LearnedOptimizer::StepsOf(const torch::Tensor& param) const {
  const auto found = state_.find(StateKey(param));
  return found == state_.end() ? 0 : static_cast<const State&>(*found->second).step();
}

int64_t LearnedOptimizer::skipped() const { return rules_->skipped; }

void LearnedOptimizer::save(torch::serialize::OutputArchive& archive) const {
  archive.write("format", c10::IValue(kArchiveFormat));
  archive.write("learned_optimizer", c10::IValue(rules_->config.Dump(-1)));
  archive.write("theta", rules_->ThetaTensor(), /*is_buffer=*/true);
  archive.write("groups", c10::IValue(std::ssize(param_groups_)));
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& options = static_cast<const Options&>(param_groups_[g].options());
    const std::vector<torch::Tensor>& params = param_groups_[g].params();
    archive.write(GroupKey(g, "lr"), c10::IValue(options.lr()));
    archive.write(GroupKey(g, "weight_decay"), c10::IValue(options.weight_decay()));
    archive.write(GroupKey(g, "non_finite"),
                  c10::IValue(NameOf("non_finite", options.non_finite(), kNonFinites)));
    archive.write(GroupKey(g, "skip_zero_gradients"), c10::IValue(options.skip_zero_gradients()));
    archive.write(GroupKey(g, "as_vectors"), c10::IValue(options.as_vectors()));
    archive.write(GroupKey(g, "num_steps"), c10::IValue(options.num_steps()));
    archive.write(GroupKey(g, "params"), c10::IValue(std::ssize(params)));
    for (size_t i = 0; i < params.size(); ++i) {
      const auto found = state_.find(StateKey(params[i]));
      archive.write(ParamKey(g, i, "shape"), c10::IValue(params[i].sizes().vec()));
      archive.write(ParamKey(g, i, "used"), c10::IValue(found != state_.end()));
      if (found == state_.end()) continue;
      const auto& state = static_cast<const State&>(*found->second);
      archive.write(ParamKey(g, i, "step"), c10::IValue(state.step()));
      archive.write(ParamKey(g, i, "state"), state.state(), /*is_buffer=*/true);
    }
  }
}

void LearnedOptimizer::load(torch::serialize::InputArchive& archive) {
  WithTorchErrors("LearnedOptimizer: loading the archive", [&] {
    c10::IValue format;
    Require(archive.try_read("format", format) && format.isString() &&
                format.toStringRef() == kArchiveFormat,
            "LearnedOptimizer: the archive is not one of a LearnedOptimizer ('{}')",
            kArchiveFormat);
    const std::string config = Read(archive, "learned_optimizer").toStringRef();
    const std::vector<std::string> differences =
        Config::Parse(config, "archive").Differences(rules_->config, {}, "in the archive", "here");
    Require(differences.empty(),
            "LearnedOptimizer: the archive is of another learned optimizer: {}",
            fmt::join(differences, "; "));
    const torch::Tensor theta = Read(archive, "theta").toTensor();
    Require(ArePlainFloats(theta) && theta.numel() == rules_->tensors.theta().size() &&
                std::memcmp(theta.data_ptr<float>(), rules_->tensors.theta().data(),
                            static_cast<size_t>(theta.numel()) * sizeof(float)) == 0,
            "LearnedOptimizer: the archive was saved with another theta");

    CheckSame("param groups", Read(archive, "groups").toInt(), param_groups_.size());
    States states;
    std::vector<Options> options;
    for (size_t g = 0; g < param_groups_.size(); ++g) {
      const std::vector<torch::Tensor>& params = param_groups_[g].params();
      const auto& here = static_cast<const Options&>(param_groups_[g].options());
      options.push_back(
          Options()
              .lr(Read(archive, GroupKey(g, "lr")).toDouble())
              .weight_decay(Read(archive, GroupKey(g, "weight_decay")).toDouble())
              .non_finite(ValueOf("LearnedOptimizer: the archive's non_finite",
                                  Read(archive, GroupKey(g, "non_finite")).toStringRef(),
                                  kNonFinites))
              .skip_zero_gradients(Read(archive, GroupKey(g, "skip_zero_gradients")).toBool())
              .as_vectors(Read(archive, GroupKey(g, "as_vectors")).toBool())
              .num_steps(here.num_steps() > 0 ? here.num_steps()
                                              : Read(archive, GroupKey(g, "num_steps")).toInt())
              .batch_size(here.batch_size()));
      CheckOptions(options.back(), rules_->optimizer().needs_num_steps(),
                   fmt::format("LearnedOptimizer: param group {} in the archive", g));
      CheckSame(fmt::format("parameters in group {}", g).c_str(),
                Read(archive, GroupKey(g, "params")).toInt(), params.size());
      for (size_t i = 0; i < params.size(); ++i) {
        const Shape shape = Read(archive, ParamKey(g, i, "shape")).toIntVector();
        Require(shape == params[i].sizes().vec(), "{} has the shape {} in the archive",
                Name(g, i, params[i]), ToString(shape));
        if (!Read(archive, ParamKey(g, i, "used")).toBool()) continue;
        auto state = std::make_unique<State>();
        state->step(Read(archive, ParamKey(g, i, "step")).toInt());
        Require(state->step() >= 0, "{} has made {} steps in the archive; wanted 0 or more",
                Name(g, i, params[i]), state->step());
        const torch::Tensor saved = Read(archive, ParamKey(g, i, "state")).toTensor();
        const int64_t wanted =
            rules_->Get(InRuleOrder(params[i], rules_->optimizer().sees_shapes()), options[g])
                .state_layout()
                .size();
        const std::string problem = StateProblem(saved, wanted);
        Require(problem.empty(), "{} in the archive {}", Name(g, i, params[i]), problem);
        state->state(saved.clone());
        states[StateKey(params[i])] = std::move(state);
      }
    }
    state_ = std::move(states);
    for (size_t g = 0; g < param_groups_.size(); ++g) {
      static_cast<Options&>(param_groups_[g].options()) = options[g];
    }
  });
}

}  // namespace lopt::torch_optim
