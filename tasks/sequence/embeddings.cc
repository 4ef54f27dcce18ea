#include "lopt/tasks/sequence/embeddings.h"

#include "lopt/tasks/layers/network_init.h"

namespace lopt {

void VisitEmbeddingStd(FieldVisitor& v, double* embedding_std) {
  v.Field("embedding_std", embedding_std, Between(1e-6, 1e6),
          "Standard deviation of the initial embeddings: 1 is PyTorch's, GPT-2 has 0.02.");
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
