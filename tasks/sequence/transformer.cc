#include "lopt/tasks/sequence/transformer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/tasks/sequence/embeddings.h"
#include "lopt/tasks/sequence/sequence_limits.h"

namespace lopt {

void TransformerOptions::Visit(FieldVisitor& v) {
  v.Field("width", &width, Between(1, 10000), "Numbers of each place between blocks.");
  v.Field("layers", &layers, Between(0, 1000), "Blocks of attention and MLP.");
  v.Field("heads", &heads, Between(1, 1000), "Heads of attention, of width / heads numbers each.");
  VisitEmbeddingStd(v, &embedding_std);
}

int64_t TransformerShape::sequences_of_part() const {
  constexpr int64_t kPlacesOfPart = 256;  // which fit in the caches
  return std::max<int64_t>(1, kPlacesOfPart / length);
}

void CheckTransformer(const std::string& who, const TransformerShape& shape) {
  Require(shape.width % shape.heads == 0,
          "{}: width must be a multiple of heads, got width {} and heads {}", who, shape.width,
          shape.heads);
  // Of these factors no product overflows: width and layers are bounded.
  RequireParams(who, shape.width, shape.layers, shape.params());
  // What a block keeps: the shares of attention, whose rows fill vectors, and 17 matrices [places,
  // width].
  constexpr double kMatrices = 17;
  constexpr int64_t kMostLanes = 16;
  const auto sequences = static_cast<double>(shape.sequences_of_part());
  const int64_t padded = (shape.length + kMostLanes - 1) / kMostLanes * kMostLanes;
  const auto length = static_cast<double>(padded);
  const double block =
      sequences * length *
      (static_cast<double>(shape.heads) * length + kMatrices * static_cast<double>(shape.width));
  RequireScratch(who, static_cast<double>(shape.layers) * block);
}

Layout TransformerLayout(const TransformerShape& shape) {
  const int64_t width = shape.width;
  std::vector<std::pair<std::string, Shape>> tensors;
  const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
    tensors.push_back({name + "/w", {in, out}});
    tensors.push_back({name + "/b", {out}});
  };
  const auto norm = [&](const std::string& name) {
    tensors.push_back({name + "/scale", {width}});
    tensors.push_back({name + "/offset", {width}});
  };
  if (shape.inputs == 0) {
    tensors.push_back({"embedding", {width, kByteValues}});
  } else {
    linear("patches", shape.inputs, width);
  }
  tensors.push_back({"place", {width, shape.length}});
  for (int64_t l = 0; l < shape.layers; ++l) {
    const std::string block = fmt::format("block_{}/", l);
    norm(block + "attention/norm");
    linear(block + "attention/qkv", width, 3 * width);
    linear(block + "attention/out", width, width);
    norm(block + "mlp/norm");
    linear(block + "mlp/linear", width, 4 * width);
    linear(block + "mlp/linear_1", 4 * width, width);
  }
  norm("norm");
  linear("logits", width, shape.outputs);
  return Layout(std::move(tensors));
}

double TransformerFlops(const TransformerShape& shape, int64_t sequences) {
  const auto width = static_cast<double>(shape.width);
  const auto length = static_cast<double>(shape.length);
  const double places = static_cast<double>(sequences) * length;
  const double weights = (3 + 1 + 4 + 4) * width * width;
  const double attention = 2 * length * width;
  const double classified = shape.causal ? places : static_cast<double>(sequences);
  const double products = places * static_cast<double>(shape.layers) * (weights + attention) +
                          classified * width * static_cast<double>(shape.outputs);
  // Forward, of the weights and of what they are given; the inputs have no gradient.
  return 2 * (3 * products + 2 * places * width * static_cast<double>(shape.inputs));
}

}  // namespace lopt
