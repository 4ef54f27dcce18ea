#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lopt/base/fields.h"
#include "lopt/base/layout.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/sequence/byte_sequences.h"

namespace lopt {

// What every task with a transformer shares.

// The sizes that a user chooses.
struct TransformerOptions {
  int64_t width = 32;
  int64_t layers = 1;
  int64_t heads = 2;
  double embedding_std = 1;
  void Visit(FieldVisitor& v);
};

// A pre-norm transformer (GPT-2, ViT). Each place of a sequence has `width` numbers, which go
// through `layers` blocks
//   x += attention(norm(x)), x += mlp(norm(x)),
// attention of `heads` heads, an MLP of 4 width gelu units (Activation::kGelu), then a norm and a
// linear layer. Layer norms have scales and offsets.
struct TransformerShape {
  int64_t length = 0;  // places of a sequence
  int64_t inputs = 0;  // numbers of a place before the linear layer to `width`; 0: bytes
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t outputs = 0;  // classes
  // If true, a place attends to itself and those before it, and each place has a class. If false, a
  // place attends to all, and the sequence has one class, read from the mean over its places after
  // the last norm.
  bool causal = false;

  int64_t head_size() const { return width / heads; }
  // How many sequences a kernel takes at a time.
  int64_t sequences_of_part() const;
  // Sizes of a block's params, in their order.
  int64_t norm_params() const { return 2 * width; }
  int64_t attention_params() const { return (3 * width + 4) * width + width * width; }
  int64_t mlp_params() const { return 8 * width * width + 5 * width; }
  int64_t block_params() const { return 2 * norm_params() + attention_params() + mlp_params(); }
  // Those before the first block.
  int64_t embedding_params() const {
    return (inputs == 0 ? kByteValues : inputs + 1) * width + length * width;
  }
  // Those behind the last block: the last norm's and the linear layer's.
  int64_t head_params() const { return norm_params() + (width + 1) * outputs; }
  int64_t params() const { return embedding_params() + layers * block_params() + head_params(); }
};

// Throws Error if the width is no multiple of the heads, and as RequireParams and RequireScratch
// do. `who` names the task.
void CheckTransformer(const std::string& who, const TransformerShape& shape);

// The params, C order. What the sequence is made of: "embedding" [width, 256], the columns of the
// bytes, or "patches/w" [inputs, width] and "patches/b" [width]; "place" [width, length]. The
// names of block i begin with "block_i/":
//   "attention/norm/scale", "attention/norm/offset" [width],
//   "attention/qkv/w" [width, 3 width], "attention/qkv/b" [3 width]: queries, keys and values, of
//   each the heads one after the other,
//   "attention/out/w" [width, width], "attention/out/b" [width],
//   "mlp/norm/scale", "mlp/norm/offset" [width],
//   "mlp/linear/w" [width, 4 width], "mlp/linear/b" [4 width],
//   "mlp/linear_1/w" [4 width, width], "mlp/linear_1/b" [width].
// At the end are "norm/scale", "norm/offset" [width], "logits/w" [width, outputs], "logits/b"
// [outputs]. lopt's optimizers for PyTorch see the weights [256, width] of a torch.nn.Embedding in
// the shape of "embedding".
Layout TransformerLayout(const TransformerShape& shape);

// As TaskParts::flops, of so many sequences.
double TransformerFlops(const TransformerShape& shape, int64_t sequences);

// What to evaluate of a transformer, and where the gradient goes.
struct TransformerEvaluation {
  std::span<const float> params;
  std::span<float> gradient = {};  // out; empty: not wanted
  std::span<float> logits = {};    // [sequences, outputs] of images, out; empty: not wanted
};

// Images [height, width, channels] as sequences of square patches, row by row. A patch is [patch,
// patch, channels].
struct PatchSequences {
  ImageBatch batch;
  int64_t width;  // pixels
  int64_t channels;
  int64_t patch;  // pixels of a side
};

}  // namespace lopt
