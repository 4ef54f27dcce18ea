#include "lopt/lopt/celo2/celo2_rule.h"

#include <string>
#include <utility>

namespace lopt {
namespace {

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

std::vector<Celo2Place> Celo2Places(const Celo2Options& options, const Layout& params,
                                    const Layout& state) {
  std::vector<Celo2Place> places;
  auto part = state.entries().begin();
  for (const LayoutEntry& entry : params.entries()) {
    Celo2Place place = {.offset = entry.offset,
                        .size = entry.size,
                        .state_offset = part->offset,
                        .state_size = 0,
                        .learned = {}};
    const bool learned = IsLearned(options.one_d, entry);
    if (learned) place.learned.emplace(entry.shape);
    const int parts = !learned ? 2 : entry.shape.size() < 2 ? 3 : 4;
    for (int i = 0; i < parts; ++i) place.state_size += (part++)->size;
    places.push_back(std::move(place));
  }
  return places;
}

Celo2StepOptions StepOptionsOf(const Celo2Options& options) {
  return {.learning_rate = options.learning_rate,
          .weight_decay = options.weight_decay,
          .schedule = options.schedule,
          .adamw = options.one_d == OneD::kAdamW,
          .mult_1d = options.mult_1d};
}

Celo2Rule::Celo2Rule(const Celo2Options& options, const Layout& params)
    : UpdateRule(params, StateOfCelo2(options, params)),
      options_(StepOptionsOf(options)),
      places_(Celo2Places(options, params, state_layout())) {}

void Celo2Rule::DoUpdate(const StepInfo& info, std::span<const float> gradient,
                         std::span<float> params, std::span<float> state,
                         Workspace& scratch) const {
  const Celo2Rates rates(options_, info.step, info.num_steps);
  for (const Celo2Place& place : places_) {
    const auto g = gradient.subspan(place.offset, place.size);
    const auto p = params.subspan(place.offset, place.size);
    const auto s = state.subspan(place.state_offset, place.state_size);
    if (!place.learned) {
      rates.adam.Apply(g, p, s.first(p.size()), s.subspan(p.size()));
    } else if (place.size > 0) {
      StepLearned(*place.learned, rates.learning_rate, rates.weight_decay, g, p, s, scratch);
    }
  }
}

}  // namespace lopt
