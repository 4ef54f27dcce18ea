#pragma once

#include <span>

#include "lopt/base/fields.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"

namespace lopt {

// The option "embedding_std" of families with embeddings.
void VisitEmbeddingStd(FieldVisitor& v, double* embedding_std);

// Draws params as InitNetwork does, except "embedding" and "place", which are normal with standard
// deviation embedding_std.
void InitNetworkOnEmbeddings(const Layout& layout, double embedding_std, Key key,
                             std::span<float> params);

}  // namespace lopt
