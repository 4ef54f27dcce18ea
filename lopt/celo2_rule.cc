#include "lopt/celo2_rule.h"

#include <string>
#include <utility>

#include "lopt/adam_step.h"

namespace lopt {
namespace {

constexpr float kBeta1 = 0.9f;
constexpr float kBeta2 = 0.95f;
constexpr float kAdamEpsilon = 1e-8f;

bool IsLearned(OneD one_d, const LayoutEntry& entry) {
  if (one_d == OneD::kLearned) return true;
  const bool adam = one_d == OneD::kAdam ? entry.name == "b" || entry.name.ends_with("/b")
                                         : entry.shape.size() < 2;
  return !adam && entry.name.find("embed") == std::string::npos;
}

Layout StateOfCelo2(const Celo2Options& options, const Layout& params) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const LayoutEntry& entry : params.entries()) {
    const auto& [name, shape, offset, size] = entry;
    if (!IsLearned(options.one_d, entry)) {
      tensors.emplace_back("m/" + name, shape);
      tensors.emplace_back("v/" + name, shape);
      continue;
    }
    tensors.emplace_back("m/" + name, Copies(Celo2Base::kMomenta, shape));
    tensors.emplace_back("r/" + name, shape);
    if (shape.size() < 2) {
      tensors.emplace_back("v/" + name, Copies(Celo2Base::kMomenta, shape));
    } else {
      const FactoredShape factored(shape);
      tensors.emplace_back("row/" + name, Copies(Celo2Base::kMomenta, factored.row));
      tensors.emplace_back("col/" + name, Copies(Celo2Base::kMomenta, factored.col));
    }
  }
  return Layout(std::move(tensors));
}

}  // namespace

Celo2Tensor::Celo2Tensor(const Shape& shape) {
  const size_t rank = shape.size();
  for (size_t a = 0; a + 2 < rank; ++a) matrices *= shape[a];
  if (rank >= 1) columns = shape[rank - 1];
  if (rank >= 2) {
    rows = shape[rank - 2];
    factored.emplace(shape);
  }
}

Celo2State::Celo2State(const Celo2Tensor& tensor, std::span<float> state) {
  const auto take = [&](int64_t size) {
    const std::span<float> part = state.first(static_cast<size_t>(size));
    state = state.subspan(static_cast<size_t>(size));
    return part;
  };
  for (std::span<float>& part : m) part = take(tensor.size());
  r = take(tensor.size());
  for (std::span<float>& part : row) {
    part = take(tensor.factored ? tensor.factored->row_size() : tensor.size());
  }
  for (std::span<float>& part : col) part = take(tensor.factored ? tensor.factored->col_size() : 0);
}

Celo2Rule::Celo2Rule(const Celo2Options& options, const Layout& params)
    : UpdateRule(params, StateOfCelo2(options, params)), options_(options) {
  auto state = state_layout().entries().begin();
  for (const LayoutEntry& entry : params.entries()) {
    Place place = {.offset = entry.offset,
                   .size = entry.size,
                   .state_offset = state->offset,
                   .state_size = 0,
                   .learned = {}};
    const bool learned = IsLearned(options.one_d, entry);
    if (learned) place.learned.emplace(entry.shape);
    const int parts = !learned ? 2 : entry.shape.size() < 2 ? 3 : 4;
    for (int i = 0; i < parts; ++i) place.state_size += (state++)->size;
    places_.push_back(std::move(place));
  }
}

void Celo2Rule::DoUpdate(const StepInfo& info, std::span<const float> gradient,
                         std::span<float> params, std::span<float> state,
                         Workspace& scratch) const {
  const double learning_rate = options_.learning_rate * ScheduleFactor(options_.schedule, info);
  const double rate_1d = options_.mult_1d * learning_rate;
  const bool adamw = options_.one_d == OneD::kAdamW;
  AdamStep adam = {.beta1 = kBeta1,
                   .beta2 = kBeta2,
                   .epsilon = adamw ? kAdamEpsilon : 0,
                   .epsilon_root = adamw ? 0 : kAdamEpsilon,
                   .learning_rate = static_cast<float>(rate_1d),
                   .kept = static_cast<float>(1 - rate_1d * options_.weight_decay)};
  if (adamw) adam.CorrectBias(info.step);
  for (const Place& place : places_) {
    const auto g = gradient.subspan(place.offset, place.size);
    const auto p = params.subspan(place.offset, place.size);
    const auto s = state.subspan(place.state_offset, place.state_size);
    if (!place.learned) {
      adam.Apply(g, p, s.first(p.size()), s.subspan(p.size()));
    } else if (place.size > 0) {
      StepLearned(*place.learned, static_cast<float>(learning_rate),
                  static_cast<float>(options_.weight_decay), g, p, s, scratch);
    }
  }
}

}  // namespace lopt
