#pragma once

#include <cstdint>

#include "lopt/base/choices.h"
#include "lopt/base/fields.h"

namespace lopt {

// What a model of bytes is made of. Without LibTorch: the core knows the options of tasks.
enum class ByteBody { kBigram, kLstm, kGru, kTransformer };
inline constexpr Named<ByteBody> kByteBodies[] = {{ByteBody::kBigram, "bigram"},
                                                  {ByteBody::kLstm, "lstm"},
                                                  {ByteBody::kGru, "gru"},
                                                  {ByteBody::kTransformer, "transformer"}};

struct ByteModelOptions {
  ByteBody body = ByteBody::kLstm;
  int64_t width = 32;
  int64_t layers = 1;
  int64_t heads = 2;

  void Visit(FieldVisitor& v) {
    v.Choice("body", &body, kByteBodies,
             "How a byte is predicted: linearly from the one before it, by recurrent layers, or by "
             "causal attention.");
    v.Field("width", &width, Between(1, 100000), "Units of each layer; not of \"bigram\".");
    v.Field("layers", &layers, Between(1, 1000),
            "Recurrent layers or transformer blocks; not of \"bigram\".");
    v.Field("heads", &heads, Between(1, 1000),
            "Heads of \"transformer\", of width / heads numbers each.");
  }
};

}  // namespace lopt
