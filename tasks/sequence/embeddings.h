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

// The most places that a sequence may have.
inline constexpr int64_t kMostPlaces = 1024;

// Throws Error if the option "length" of a task on bytes is larger.
void RequireLength(const std::string& who, int64_t length);

// Throws Error if a kernel would take more than 2^28 numbers of scratch memory.
void RequireScratch(const std::string& who, double numbers);

// Draws params as InitNetwork does, except "embedding" and "place", which are normal with standard
// deviation embedding_std.
void InitNetworkOnEmbeddings(const Layout& layout, double embedding_std, Key key,
                             std::span<float> params);

}  // namespace lopt
