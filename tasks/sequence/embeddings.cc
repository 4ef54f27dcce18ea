#include "lopt/tasks/sequence/embeddings.h"

#include "lopt/base/error.h"
#include "lopt/tasks/layers/network_init.h"

namespace lopt {

void VisitEmbeddingStd(FieldVisitor& v, double* embedding_std) {
  v.Field("embedding_std", embedding_std, Between(1e-6, 1e6),
          "Standard deviation of the initial embeddings: 1 is PyTorch's, GPT-2 has 0.02.");
}

void RequirePlaces(const std::string& who, const std::string& options, int64_t places) {
  constexpr int64_t kMost = 1024;
  Require(places <= kMost, "{}: sequences of {} places, wanted at most {}; choose another {}", who,
          places, kMost, options);
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
