#include "lopt/tasks/sequence/embeddings.h"

#include "lopt/base/error.h"
#include "lopt/tasks/layers/network_init.h"
#include "lopt/tasks/most_numbers.h"

namespace lopt {

void VisitEmbeddingStd(FieldVisitor& v, double* embedding_std) {
  v.Field("embedding_std", embedding_std, Between(1e-6, 1e6),
          "Standard deviation of the initial embeddings: 1 is PyTorch's, GPT-2 has 0.02.");
}

void RequireLength(const std::string& who, int64_t length) {
  Require(length <= kMostPlaces, "{}: length must be at most {}, got {}", who, kMostPlaces, length);
}

void RequireScratch(const std::string& who, double numbers) {
  Require(numbers <= static_cast<double>(kMostNumbers),
          "{}: these sizes want {:.3g} numbers of scratch memory, wanted at most {}; take fewer "
          "layers or places, or a smaller width",
          who, numbers, kMostNumbers);
}

void InitNetworkOnEmbeddings(const Layout& layout, double embedding_std, Key key,
                             std::span<float> params) {
  InitNetwork(layout, FoldIn(key, 0), params);
  uint64_t tensor = 1;
  for (const LayoutEntry& entry : layout.entries()) {
    if (entry.name != "embedding" && entry.name != "place") continue;
    const auto values =
        params.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.size));
    Normal(FoldIn(key, tensor++), values);
    for (float& value : values) value *= static_cast<float>(embedding_std);
  }
}

}  // namespace lopt
