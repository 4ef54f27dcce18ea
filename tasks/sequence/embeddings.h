#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lopt/base/fields.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"

namespace lopt {

// The option "embedding_std" of families with embeddings.
void VisitEmbeddingStd(FieldVisitor& v, double* embedding_std);

// Throws Error if a sequence has more than 1,024 places. `options` are those that say how many.
void RequirePlaces(const std::string& who, const std::string& options, int64_t places);

// Draws params as InitNetwork does, but for the embeddings of bytes and places, the tensors
// "embedding" and "place", which are embedding_std N(0, 1).
void InitNetworkOnEmbeddings(const Layout& layout, double embedding_std, Key key,
                             std::span<float> params);

}  // namespace lopt
