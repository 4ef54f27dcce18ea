// Per-target header of Highway kernels, as base/vector_math-inl.h: the blocks of a transformer
// (transformer.h), forward and backward.
#if defined(LOPT_TRANSFORMER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_TRANSFORMER_INL_H_
#undef LOPT_TRANSFORMER_INL_H_
#else
#define LOPT_TRANSFORMER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "lopt/base/vector_math-inl.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/layers/activation-inl.h"
#include "lopt/tasks/layers/dense_layer-inl.h"
#include "lopt/tasks/layers/norm-inl.h"
#include "lopt/tasks/layers/products-inl.h"
#include "lopt/tasks/sequence/column_range-inl.h"
#include "lopt/tasks/sequence/transformer.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

constexpr int kPlaces = 4;  // that attention takes at a time

// Row-major matrices of attention have rows for a multiple of kPlaces places, and columns for a
// multiple of kLanes; what fills them up is 0.
struct AttentionSizes {
  int64_t length;
  int64_t size;  // of a head
  bool causal;
  int64_t places() const { return RoundUp(length, kPlaces); }
  int64_t place_columns() const { return RoundUp(length, kLanes); }
  int64_t size_columns() const { return RoundUp(size, kLanes); }
  int64_t weights() const { return places() * place_columns(); }
  // Those that places before `end` attend to.
  int64_t Seen(int64_t end) const { return causal ? std::min(end, length) : length; }
  // The first of those that attend to a place.
  int64_t FirstThatSees(int64_t place) const { return causal ? place : 0; }
};

HWY_MAYBE_UNUSED static float* TakeHeadRows(const AttentionSizes& sizes, Workspace& scratch) {
  return scratch.Take<float>(sizes.places() * sizes.size_columns()).data();
}
HWY_MAYBE_UNUSED static float* TakeHeadColumns(const AttentionSizes& sizes, Workspace& scratch) {
  return scratch.Take<float>(sizes.size * sizes.place_columns()).data();
}

// to [places, size] = a head's numbers.
HWY_MAYBE_UNUSED static void CopyHead(const AttentionSizes& sizes, const ColumnRange& head,
                                      float* to) {
  std::fill_n(to, sizes.places() * sizes.size_columns(), 0.0f);
  CopyColumns(head, to, sizes.size_columns());
}

// to [size, places] = rows [places, size] transposed.
HWY_MAYBE_UNUSED static void TransposeHead(const AttentionSizes& sizes, const float* rows,
                                           float* to) {
  const int64_t stride = sizes.place_columns();
  std::fill_n(to, sizes.size * stride, 0.0f);
  for (int64_t place = 0; place < sizes.length; ++place) {
    for (int64_t k = 0; k < sizes.size; ++k) {
      to[k * stride + place] = rows[place * sizes.size_columns() + k];
    }
  }
}

HWY_INLINE void StoreRows(const Tile<kPlaces, 1>& tile, float* to, int64_t stride) {
  Unrolled<kPlaces>([&](auto r) HWY_ATTR { hn::Store(tile.sums[r], d, to + r * stride); });
}
HWY_INLINE void ClearTile(Tile<kPlaces, 1>* tile) {
  Unrolled<kPlaces>([&](auto r) HWY_ATTR { tile->sums[r] = hn::Zero(d); });
}

// Rows [place, place + kPlaces) of out [places, places] = scale a b, with a [places, size] and b
// [size, places], as far as they see; 0 behind.
HWY_MAYBE_UNUSED static HWY_NOINLINE void PlaceProducts(const AttentionSizes& sizes, int64_t place,
                                                        const float* a, const float* b, float scale,
                                                        float* out) {
  const int64_t stride = sizes.place_columns();
  const int64_t seen = sizes.Seen(place + kPlaces);
  for (int64_t column = 0; column < stride; column += kLanes) {
    Tile<kPlaces, 1> tile;
    ClearTile(&tile);
    if (column < seen) {
      for (int64_t k = 0; k < sizes.size; ++k) {
        MulAddRows([&](int r) HWY_ATTR { return a[(place + r) * sizes.size_columns() + k]; },
                   b + k * stride + column, &tile);
      }
    }
    Unrolled<kPlaces>([&](auto r)
                          HWY_ATTR { tile.sums[r] = hn::Mul(tile.sums[r], hn::Set(d, scale)); });
    StoreRows(tile, out + place * stride + column, stride);
  }
}

// out [places, size] = weights [places, places] rows [places, size].
HWY_MAYBE_UNUSED static HWY_NOINLINE void MixPlaces(const AttentionSizes& sizes,
                                                    const float* weights, const float* rows,
                                                    float* out) {
  const int64_t stride = sizes.size_columns();
  for (int64_t place = 0; place < sizes.places(); place += kPlaces) {
    const float* of = weights + place * sizes.place_columns();
    const int64_t seen = sizes.Seen(place + kPlaces);
    for (int64_t k = 0; k < stride; k += kLanes) {
      Tile<kPlaces, 1> tile;
      ClearTile(&tile);
      for (int64_t j = 0; j < seen; ++j) {
        MulAddRows([&](int r) HWY_ATTR { return of[r * sizes.place_columns() + j]; },
                   rows + j * stride + k, &tile);
      }
      StoreRows(tile, out + place * stride + k, stride);
    }
  }
}

// out = weights^T rows. The columns of `weights` behind the last place may be anything.
HWY_MAYBE_UNUSED static HWY_NOINLINE void MixPlacesBack(const AttentionSizes& sizes,
                                                        const float* weights, const float* rows,
                                                        float* out) {
  const int64_t stride = sizes.size_columns();
  for (int64_t place = 0; place < sizes.length; place += kPlaces) {
    for (int64_t k = 0; k < stride; k += kLanes) {
      Tile<kPlaces, 1> tile;
      ClearTile(&tile);
      for (int64_t i = sizes.FirstThatSees(place); i < sizes.length; ++i) {
        const float* of = weights + i * sizes.place_columns() + place;
        const int64_t last = std::min<int64_t>(kPlaces, sizes.place_columns() - place) - 1;
        MulAddRows([&](int r) HWY_ATTR { return of[std::min<int64_t>(r, last)]; },
                   rows + i * stride + k, &tile);
      }
      StoreRows(tile, out + place * stride + k, stride);
    }
  }
}

// A row of scores becomes shares of its first `seen` numbers, softmax(scores), and 0 behind.
HWY_MAYBE_UNUSED static HWY_NOINLINE void SharesOfScores(int64_t seen, int64_t columns,
                                                         float* row) {
  const auto valid = [&](int64_t j) HWY_ATTR {
    return hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(seen - j, 0, kLanes)));
  };
  const V none = hn::Set(d, -std::numeric_limits<float>::infinity());
  V largest = none;
  for (int64_t j = 0; j < columns; j += kLanes) {
    const V x = hn::IfThenElse(valid(j), hn::Load(d, row + j), none);
    hn::Store(x, d, row + j);
    largest = hn::Max(largest, x);
  }
  largest = hn::MaxOfLanes(d, largest);
  V sum = hn::Zero(d);
  for (int64_t j = 0; j < columns; j += kLanes) {
    const V e = ExpOfAtMost88(d, hn::Sub(hn::Load(d, row + j), largest));
    const V share = hn::IfThenElseZero(valid(j), e);
    sum = hn::Add(sum, share);
    hn::Store(share, d, row + j);
  }
  const V inverse = hn::Set(d, 1 / hn::GetLane(hn::SumOfLanes(d, sum)));
  for (int64_t j = 0; j < columns; j += kLanes) {
    hn::Store(hn::Mul(hn::Load(d, row + j), inverse), d, row + j);
  }
}

// The gradient of a row of shares becomes that of its scores, times `scale`.
HWY_MAYBE_UNUSED static HWY_NOINLINE void ScoreGradient(int64_t columns, const float* shares,
                                                        float scale, float* gradient) {
  V sum = hn::Zero(d);
  for (int64_t j = 0; j < columns; j += kLanes) {
    sum = hn::MulAdd(hn::Load(d, shares + j), hn::Load(d, gradient + j), sum);
  }
  const V mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)));
  const V factor = hn::Set(d, scale);
  for (int64_t j = 0; j < columns; j += kLanes) {
    const V slope = hn::Sub(hn::Load(d, gradient + j), mean);
    hn::Store(hn::Mul(hn::Mul(hn::Load(d, shares + j), factor), slope), d, gradient + j);
  }
}

// The numbers of head h of a sequence's places from `row` on, in the part [0, 3) of a matrix whose
// parts are [places, width].
HWY_MAYBE_UNUSED static ColumnRange HeadOf(const TransformerShape& shape, PanelMatrix matrix,
                                           int64_t row, int64_t part, int64_t h) {
  return {.matrix = matrix,
          .row = row,
          .rows = shape.length,
          .first = part * shape.width + h * shape.head_size(),
          .size = shape.head_size()};
}

// Of all sequences of a part. `shares` [sequences, heads, AttentionSizes::weights()] is kept for
// the way back. mixed [places, width].
HWY_MAYBE_UNUSED static HWY_NOINLINE void Attention(const TransformerShape& shape,
                                                    int64_t sequences, PanelMatrix qkv,
                                                    float* shares, PanelMatrix mixed,
                                                    Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const AttentionSizes sizes{shape.length, shape.head_size(), shape.causal};
  const float scale = 1 / std::sqrt(static_cast<float>(sizes.size));
  float* queries = TakeHeadRows(sizes, scratch);
  float* keys = TakeHeadRows(sizes, scratch);
  float* key_columns = TakeHeadColumns(sizes, scratch);
  float* values = TakeHeadRows(sizes, scratch);
  float* out = TakeHeadRows(sizes, scratch);
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const int64_t row = sequence * sizes.length;
    for (int64_t h = 0; h < shape.heads; ++h, shares += sizes.weights()) {
      CopyHead(sizes, HeadOf(shape, qkv, row, 0, h), queries);
      CopyHead(sizes, HeadOf(shape, qkv, row, 1, h), keys);
      TransposeHead(sizes, keys, key_columns);
      CopyHead(sizes, HeadOf(shape, qkv, row, 2, h), values);
      for (int64_t place = 0; place < sizes.places(); place += kPlaces) {
        PlaceProducts(sizes, place, queries, key_columns, scale, shares);
        for (int64_t r = place; r < place + kPlaces; ++r) {
          SharesOfScores(sizes.Seen(r + 1), sizes.place_columns(),
                         shares + r * sizes.place_columns());
        }
      }
      MixPlaces(sizes, shares, values, out);
      WriteColumns(out, sizes.size_columns(), HeadOf(shape, mixed, row, 0, h));
    }
  }
}

// The gradient of qkv from that of mixed.
HWY_MAYBE_UNUSED static HWY_NOINLINE void AttentionBackward(const TransformerShape& shape,
                                                            int64_t sequences, PanelMatrix qkv,
                                                            const float* shares, PanelMatrix mixed,
                                                            PanelMatrix gradient,
                                                            Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const AttentionSizes sizes{shape.length, shape.head_size(), shape.causal};
  const float scale = 1 / std::sqrt(static_cast<float>(sizes.size));
  float* of_mixed = TakeHeadRows(sizes, scratch);
  float* rows = TakeHeadRows(sizes, scratch);
  float* value_columns = TakeHeadColumns(sizes, scratch);
  float* out = TakeHeadRows(sizes, scratch);
  float* slopes = scratch.Take<float>(sizes.weights()).data();
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const int64_t row = sequence * sizes.length;
    for (int64_t h = 0; h < shape.heads; ++h, shares += sizes.weights()) {
      CopyHead(sizes, HeadOf(shape, mixed, row, 0, h), of_mixed);
      MixPlacesBack(sizes, shares, of_mixed, out);
      WriteColumns(out, sizes.size_columns(), HeadOf(shape, gradient, row, 2, h));
      CopyHead(sizes, HeadOf(shape, qkv, row, 2, h), rows);
      TransposeHead(sizes, rows, value_columns);
      for (int64_t place = 0; place < sizes.places(); place += kPlaces) {
        PlaceProducts(sizes, place, of_mixed, value_columns, 1, slopes);
        for (int64_t r = place; r < place + kPlaces; ++r) {
          const int64_t at = r * sizes.place_columns();
          ScoreGradient(sizes.place_columns(), shares + at, scale, slopes + at);
        }
      }
      CopyHead(sizes, HeadOf(shape, qkv, row, 1, h), rows);
      MixPlaces(sizes, slopes, rows, out);
      WriteColumns(out, sizes.size_columns(), HeadOf(shape, gradient, row, 0, h));
      CopyHead(sizes, HeadOf(shape, qkv, row, 0, h), rows);
      MixPlacesBack(sizes, slopes, rows, out);
      WriteColumns(out, sizes.size_columns(), HeadOf(shape, gradient, row, 1, h));
    }
  }
}

// Calls body(at the numbers of a vector in a, in b) for rows [0, rows).
template <class Body>
HWY_INLINE void ForVectorsOfBoth(int64_t rows, int64_t columns, PanelMatrix a, PanelMatrix b,
                                 const Body& body) {
  ForPanels(columns, [&](int64_t p, auto kV) HWY_ATTR {
    for (int64_t row = 0; row < rows; ++row) {
      Unrolled<kV>([&](auto v) HWY_ATTR {
        const int64_t at = row * kWidth + v * kLanes;
        body(a.Panel(p) + at, b.Panel(p) + at);
      });
    }
  });
}

// x += y.
HWY_MAYBE_UNUSED static HWY_NOINLINE void AddRows(int64_t rows, int64_t columns, PanelMatrix y,
                                                  PanelMatrix x) {
  ForVectorsOfBoth(rows, columns, y, x, [&](const float* from, float* to) HWY_ATTR {
    hn::Store(hn::Add(hn::Load(d, to), hn::Load(d, from)), d, to);
  });
}
// x = y.
HWY_MAYBE_UNUSED static HWY_NOINLINE void CopyRowsOf(int64_t rows, int64_t columns, PanelMatrix y,
                                                     PanelMatrix x) {
  ForVectorsOfBoth(rows, columns, y, x, [&](const float* from, float* to) HWY_ATTR {
    hn::Store(hn::Load(d, from), d, to);
  });
}

// What a norm gives, and what it keeps for the way back.
struct NormPlace {
  PanelMatrix out;
  NormArrays arrays;
};

// What a block keeps for the way back.
struct BlockArrays {
  NormPlace attention;
  PanelMatrix qkv;
  float* shares;
  PanelMatrix mixed;
  NormPlace mlp;
  PanelMatrix units;
  PanelMatrix slopes;
};

// A pass of a part's sequences through the blocks and the last norm.
struct TransformerPass {
  const TransformerShape& shape;
  const float* params;  // of the first block
  float* gradient;      // of the same; null: not wanted
  bool add;             // to the gradient of the parts before
  int64_t sequences;
  int64_t count;     // places of all sequences
  int64_t rows;      // of whole tiles
  int64_t capacity;  // of whole panels
  float* buffer;     // of the widest layer rounded up to kLanes, times kWidth
  PanelMatrix x;     // [places, width]: in
  PanelMatrix part;  // of the same size, for what is added to x
  std::span<BlockArrays> blocks;
  NormPlace last;  // out: of the last norm

  const float* head() const { return params + shape.layers * shape.block_params(); }
  // Where the gradient of params at `at` goes.
  float* GradientOf(const float* at) const { return gradient + (at - params); }
};

HWY_MAYBE_UNUSED static NormPlace TakeNorm(int64_t capacity, int64_t width, Workspace& scratch) {
  return {TakePanels(capacity, width, scratch),
          {TakePanels(capacity, width, scratch), scratch.Take<float>(capacity).data()}};
}

// With x of zeros.
HWY_MAYBE_UNUSED static TransformerPass TakePass(const TransformerShape& shape,
                                                 const TransformerEvaluation& e, int64_t sequences,
                                                 bool add, Workspace& scratch) {
  const int64_t width = shape.width;
  const int64_t count = sequences * shape.length;
  const int64_t capacity = RoundUp(count, kWidth);
  const int64_t widest = std::max({4 * width, shape.outputs, shape.inputs});
  TransformerPass pass{
      .shape = shape,
      .params = e.params.data() + shape.embedding_params(),
      .gradient = e.gradient.empty() ? nullptr : e.gradient.data() + shape.embedding_params(),
      .add = add,
      .sequences = sequences,
      .count = count,
      .rows = RoundUp(count, kRows),
      .capacity = capacity,
      .buffer = scratch.Take<float>(RoundUp(widest, kLanes) * kWidth).data(),
      .x = TakePanels(capacity, width, scratch),
      .part = TakePanels(capacity, width, scratch),
      .blocks = scratch.Take<BlockArrays>(shape.layers),
      .last = TakeNorm(capacity, width, scratch)};
  const AttentionSizes sizes{shape.length, shape.head_size(), shape.causal};
  for (BlockArrays& block : pass.blocks) {
    if (pass.gradient == nullptr && &block != pass.blocks.data()) {
      block = pass.blocks.front();  // nothing of it is needed again
      continue;
    }
    block = {.attention = TakeNorm(capacity, width, scratch),
             .qkv = TakePanels(capacity, 3 * width, scratch),
             .shares = scratch.Take<float>(sequences * shape.heads * sizes.weights()).data(),
             .mixed = TakePanels(capacity, width, scratch),
             .mlp = TakeNorm(capacity, width, scratch),
             .units = TakePanels(capacity, 4 * width, scratch),
             .slopes = TakePanels(capacity, 4 * width, scratch)};
    ClearRows(block.mixed, width, 0);
  }
  ClearRows(pass.x, width, 0);
  return pass;
}

// norm(x), with scale and offset behind each other at `scale`.
HWY_MAYBE_UNUSED static void NormOf(const TransformerPass& pass, const float* scale,
                                    const NormPlace& norm) {
  CopyRowsOf(pass.rows, pass.shape.width, pass.x, norm.out);
  LayerNorm(pass.rows, pass.shape.width, scale, norm.out, norm.arrays);
}

// A linear layer's outputs; its params are w [in, out] and b [out].
HWY_MAYBE_UNUSED static void LinearOf(const TransformerPass& pass, PanelMatrix inputs, int64_t in,
                                      int64_t out, const float* w, PanelMatrix outputs) {
  Forward(Units{inputs}, pass.rows, in, out, w, w + in * out, /*relu=*/false, outputs, pass.buffer);
}

// From x through the blocks to the outputs of the last norm.
HWY_MAYBE_UNUSED static void RunBlocks(const TransformerPass& pass, Workspace& scratch) {
  const TransformerShape& shape = pass.shape;
  const int64_t width = shape.width;
  const float* at = pass.params;
  for (const BlockArrays& block : pass.blocks) {
    NormOf(pass, at, block.attention);
    at += shape.norm_params();
    LinearOf(pass, block.attention.out, width, 3 * width, at, block.qkv);
    at += (width + 1) * 3 * width;
    Attention(shape, pass.sequences, block.qkv, block.shares, block.mixed, scratch);
    LinearOf(pass, block.mixed, width, width, at, pass.part);
    at += (width + 1) * width;
    AddRows(pass.rows, width, pass.part, pass.x);
    NormOf(pass, at, block.mlp);
    at += shape.norm_params();
    LinearOf(pass, block.mlp.out, width, 4 * width, at, block.units);
    at += (width + 1) * 4 * width;
    Activate(Activation::kGelu, pass.rows, 4 * width, block.units,
             pass.gradient == nullptr ? PanelMatrix{} : block.slopes);
    LinearOf(pass, block.units, 4 * width, width, at, pass.part);
    at += (4 * width + 1) * width;
    AddRows(pass.rows, width, pass.part, pass.x);
  }
  NormOf(pass, at, pass.last);
}

// The gradient of a linear layer's params, and that of its inputs times a derivative. `of_inputs`
// holds what the derivative is taken from; the gradient replaces it.
HWY_MAYBE_UNUSED static void LinearBackward(const TransformerPass& pass, PanelMatrix inputs,
                                            int64_t in, int64_t out, const float* w,
                                            PanelMatrix of_outputs, Derivative derivative,
                                            PanelMatrix of_inputs) {
  float* gradient = pass.GradientOf(w);
  WeightGradient(Units{inputs}, in, out, pass.count, of_outputs, pass.add, gradient);
  BiasGradient(out, pass.count, of_outputs, pass.add, gradient + in * out);
  Backward<false>(Units{of_outputs}, pass.rows, in, out, TransposedWeights{w, in, out, pass.buffer},
                  derivative, of_inputs);
}

// `gradient`, of a norm's outputs, becomes that of its inputs.
HWY_MAYBE_UNUSED static void NormBackward(const TransformerPass& pass, const float* scale,
                                          const NormPlace& norm, PanelMatrix gradient) {
  const int64_t width = pass.shape.width;
  NormParamGradient(pass.count, width, norm.arrays, gradient, pass.add, pass.GradientOf(scale));
  LayerNormBackward(pass.rows, width, scale, norm.arrays, gradient);
}

// From the gradient of the last norm's outputs to that of what the first block was given, in its
// place.
HWY_MAYBE_UNUSED static void BlocksBackward(const TransformerPass& pass, PanelMatrix gradient,
                                            Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const TransformerShape& shape = pass.shape;
  const int64_t width = shape.width;
  const PanelMatrix of_mixed = TakePanels(pass.capacity, width, scratch);
  const PanelMatrix of_qkv = TakePanels(pass.capacity, 3 * width, scratch);
  ClearRows(of_qkv, 3 * width, 0);
  const float* at = pass.head();
  NormBackward(pass, at, pass.last, gradient);
  for (int64_t l = shape.layers - 1; l >= 0; --l) {
    const BlockArrays& block = pass.blocks[static_cast<size_t>(l)];
    at -= (4 * width + 1) * width;
    LinearBackward(pass, block.units, 4 * width, width, at, gradient, Derivative::kSlope,
                   block.slopes);
    at -= (width + 1) * 4 * width;
    LinearBackward(pass, block.mlp.out, width, 4 * width, at, block.slopes, Derivative::kOne,
                   pass.part);
    at -= shape.norm_params();
    NormBackward(pass, at, block.mlp, pass.part);
    AddRows(pass.rows, width, pass.part, gradient);
    at -= (width + 1) * width;
    LinearBackward(pass, block.mixed, width, width, at, gradient, Derivative::kOne, of_mixed);
    AttentionBackward(shape, pass.sequences, block.qkv, block.shares, of_mixed, of_qkv, scratch);
    at -= (width + 1) * 3 * width;
    LinearBackward(pass, block.attention.out, width, 3 * width, at, of_qkv, Derivative::kOne,
                   pass.part);
    at -= shape.norm_params();
    NormBackward(pass, at, block.attention, pass.part);
    AddRows(pass.rows, width, pass.part, gradient);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_TRANSFORMER_INL_H_
