#include "lopt/tasks/sequence/lstm_kernel.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/sequence/lstm_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/vector_math-inl.h"
#include "lopt/tasks/layers/classifier_head-inl.h"
#include "lopt/tasks/layers/dense_layer-inl.h"
#include "lopt/tasks/sequence/byte_embedding-inl.h"
#include "lopt/tasks/sequence/byte_parts.h"
#include "lopt/tasks/sequence/column_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

constexpr int64_t kGates = 4;  // i, f, g, o

// Rows from `row` on of a matrix.
PanelMatrix From(PanelMatrix matrix, int64_t row) {
  return {matrix.data + row * kWidth, matrix.rows};
}

// The panels of transposed weights, made once.
struct ReadyPanels {
  const float* panels;
  int64_t columns;
  const float* Panel(int64_t p) const { return panels + p * columns * kWidth; }
};

ReadyPanels TakeTransposed(const float* w, int64_t units, int64_t columns, Workspace& scratch) {
  const int64_t panels = (units + kWidth - 1) / kWidth;
  float* to = scratch.Take<float>(panels * columns * kWidth).data();
  for (int64_t p = 0; p < panels; ++p) {
    TransposedPanel(w, units, columns, p, to + p * columns * kWidth);
  }
  return {to, columns};
}

// Of a layer. Rows of matrices are the sequences of byte 0, then those of byte 1 and so on; a step
// has those of one byte. Its own arrays have rows [width rounded up to kLanes].
struct LstmLayer {
  PanelMatrix states;  // [1 + bytes, sequences] rows: those before each byte, from 0
  float* gates;        // [bytes, kGates, sequences]: behind their functions
  float* cells;        // [1 + bytes, sequences]
};

struct LstmPass {
  const LstmShape& shape;
  int64_t sequences;
  int64_t rows;      // of all bytes
  int64_t capacity;  // of whole panels
  int64_t stride;    // of a layer's own arrays
  float* buffer;     // of the widest layer, times kWidth

  int64_t step_size() const { return sequences * stride; }
  int64_t tiles(int64_t count) const { return RoundUp(count, kRows); }
  // Gate g of the bytes at `row`.
  ColumnRange Gate(PanelMatrix matrix, int64_t row, int64_t g) const {
    return {matrix, row, sequences, g * shape.width, shape.width};
  }
};

// One step of all sequences: the sums of the gates become their values.
HWY_NOINLINE void StepCells(const LstmPass& pass, float* gates, const float* before, float* cells,
                            float* states) {
  const int64_t size = pass.step_size();
  for (int64_t k = 0; k < size; k += kLanes) {
    const V i = Sigmoid(d, hn::Load(d, gates + k));
    const V f = Sigmoid(d, hn::Load(d, gates + size + k));
    const V g = Tanh(d, hn::Load(d, gates + 2 * size + k));
    const V o = Sigmoid(d, hn::Load(d, gates + 3 * size + k));
    const V c = hn::MulAdd(f, hn::Load(d, before + k), hn::Mul(i, g));
    hn::Store(i, d, gates + k);
    hn::Store(f, d, gates + size + k);
    hn::Store(g, d, gates + 2 * size + k);
    hn::Store(o, d, gates + 3 * size + k);
    hn::Store(c, d, cells + k);
    hn::Store(hn::Mul(o, Tanh(d, c)), d, states + k);
  }
}

// The way back: of_states and of_cells are the gradients of a step's results; of_cells becomes that
// of the cells before, and of_gates that of the sums.
HWY_NOINLINE void StepCellsBackward(const LstmPass& pass, const float* gates, const float* before,
                                    const float* cells, const float* of_states, float* of_cells,
                                    float* of_gates) {
  const int64_t size = pass.step_size();
  const V one = hn::Set(d, 1.0f);
  const auto sigmoid_slope = [&](V y) HWY_ATTR { return hn::Mul(y, hn::Sub(one, y)); };
  for (int64_t k = 0; k < size; k += kLanes) {
    const V i = hn::Load(d, gates + k);
    const V f = hn::Load(d, gates + size + k);
    const V g = hn::Load(d, gates + 2 * size + k);
    const V o = hn::Load(d, gates + 3 * size + k);
    const V y = Tanh(d, hn::Load(d, cells + k));
    const V of_h = hn::Load(d, of_states + k);
    const V of_c =
        hn::MulAdd(hn::Mul(of_h, o), hn::NegMulAdd(y, y, one), hn::Load(d, of_cells + k));
    hn::Store(hn::Mul(hn::Mul(of_c, g), sigmoid_slope(i)), d, of_gates + k);
    hn::Store(hn::Mul(hn::Mul(of_c, hn::Load(d, before + k)), sigmoid_slope(f)), d,
              of_gates + size + k);
    hn::Store(hn::Mul(hn::Mul(of_c, i), hn::NegMulAdd(g, g, one)), d, of_gates + 2 * size + k);
    hn::Store(hn::Mul(hn::Mul(of_h, y), sigmoid_slope(o)), d, of_gates + 3 * size + k);
    hn::Store(hn::Mul(of_c, f), d, of_cells + k);
  }
}

LstmLayer TakeLayer(const LstmPass& pass, Workspace& scratch) {
  const int64_t steps = pass.shape.length;
  const LstmLayer layer = {.states = TakePanels(pass.capacity + RoundUp(pass.sequences, kWidth),
                                                pass.shape.width, scratch),
                           .gates = scratch.Take<float>(steps * kGates * pass.step_size()).data(),
                           .cells = scratch.Take<float>((steps + 1) * pass.step_size()).data()};
  ClearRows(layer.states, pass.shape.width, 0);
  std::fill_n(layer.gates, steps * kGates * pass.step_size(), 0.0f);
  std::fill_n(layer.cells, pass.step_size(), 0.0f);
  return layer;
}

// From inputs [rows, width]; params at w.
void RunLayer(const LstmPass& pass, PanelMatrix inputs, const float* w, const LstmLayer& layer,
              Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const int64_t width = pass.shape.width;
  const float* u = w + pass.shape.weights() + kGates * width;
  const PanelMatrix from_inputs = TakePanels(pass.capacity, kGates * width, scratch);
  const PanelMatrix from_states =
      TakePanels(RoundUp(pass.sequences, kWidth), kGates * width, scratch);
  float* sums = scratch.Take<float>(pass.step_size()).data();
  float* states = scratch.Take<float>(pass.step_size()).data();
  std::fill_n(sums, pass.step_size(), 0.0f);
  Forward(Units{inputs}, pass.tiles(pass.rows), width, kGates * width, w, w + pass.shape.weights(),
          /*relu=*/false, from_inputs, pass.buffer);
  for (int64_t t = 0; t < pass.shape.length; ++t) {
    const int64_t row = t * pass.sequences;
    Forward(Units{From(layer.states, row)}, pass.tiles(pass.sequences), width, kGates * width, u,
            u + pass.shape.weights(), /*relu=*/false, from_states, pass.buffer);
    float* gates = layer.gates + t * kGates * pass.step_size();
    for (int64_t g = 0; g < kGates; ++g) {
      float* of = gates + g * pass.step_size();
      CopyColumns(pass.Gate(from_inputs, row, g), of, pass.stride);
      CopyColumns(pass.Gate(from_states, 0, g), sums, pass.stride);
      for (int64_t k = 0; k < pass.step_size(); k += kLanes) {
        hn::Store(hn::Add(hn::Load(d, of + k), hn::Load(d, sums + k)), d, of + k);
      }
    }
    float* cells = layer.cells + t * pass.step_size();
    StepCells(pass, gates, cells, cells + pass.step_size(), states);
    WriteColumns(states, pass.stride, pass.Gate(layer.states, row + pass.sequences, 0));
  }
}

// `of_outputs`, the gradient of the states behind each byte, becomes that of the inputs.
void LayerBackward(const LstmPass& pass, PanelMatrix inputs, const float* w, bool add,
                   const LstmLayer& layer, PanelMatrix of_outputs, float* gradient,
                   Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const int64_t width = pass.shape.width;
  const int64_t behind_w = pass.shape.weights() + kGates * width;
  const float* u = w + behind_w;
  // A step's products read tiles, beyond the last of its rows.
  const PanelMatrix of_sums =
      TakePanels(pass.capacity + RoundUp(pass.sequences, kWidth), kGates * width, scratch);
  const PanelMatrix of_before = TakePanels(RoundUp(pass.sequences, kWidth), width, scratch);
  float* of_states = scratch.Take<float>(pass.step_size()).data();
  float* of_next = scratch.Take<float>(pass.step_size()).data();  // through the next step
  float* of_cells = scratch.Take<float>(pass.step_size()).data();
  float* of_gates = scratch.Take<float>(kGates * pass.step_size()).data();
  for (float* zeros : {of_states, of_next, of_cells}) {
    std::fill_n(zeros, pass.step_size(), 0.0f);
  }
  ClearRows(of_sums, kGates * width, 0);
  const ReadyPanels back = TakeTransposed(u, width, kGates * width, scratch);
  for (int64_t t = pass.shape.length - 1; t >= 0; --t) {
    const int64_t row = t * pass.sequences;
    CopyColumns(pass.Gate(of_outputs, row, 0), of_states, pass.stride);
    for (int64_t k = 0; k < pass.step_size(); k += kLanes) {
      hn::Store(hn::Add(hn::Load(d, of_states + k), hn::Load(d, of_next + k)), d, of_states + k);
    }
    const float* cells = layer.cells + t * pass.step_size();
    StepCellsBackward(pass, layer.gates + t * kGates * pass.step_size(), cells,
                      cells + pass.step_size(), of_states, of_cells, of_gates);
    for (int64_t g = 0; g < kGates; ++g) {
      WriteColumns(of_gates + g * pass.step_size(), pass.stride, pass.Gate(of_sums, row, g));
    }
    if (t == 0) break;
    Backward<false>(Units{From(of_sums, row)}, pass.tiles(pass.sequences), width, kGates * width,
                    back, Derivative::kOne, of_before);
    CopyColumns(pass.Gate(of_before, 0, 0), of_next, pass.stride);
  }
  for (const bool states : {false, true}) {
    float* to = gradient + (states ? behind_w : 0);
    WeightGradient(Units{states ? layer.states : inputs}, width, kGates * width, pass.rows, of_sums,
                   add, to);
    BiasGradient(kGates * width, pass.rows, of_sums, add, to + pass.shape.weights());
  }
  Backward<false>(Units{of_sums}, pass.tiles(pass.rows), width, kGates * width,
                  TransposedWeights{w, width, kGates * width, pass.buffer}, Derivative::kOne,
                  of_outputs);
}

LossSums RunLstm(const LstmShape& shape, const LstmEvaluation& e, const BytePart& part,
                 Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const int64_t width = shape.width;
  const int64_t rows = part.sequences * shape.length;
  const int64_t widest = std::max(kGates * width, kByteValues);
  const LstmPass pass{.shape = shape,
                      .sequences = part.sequences,
                      .rows = rows,
                      .capacity = RoundUp(rows, kWidth),
                      .stride = RoundUp(width, kLanes),
                      .buffer = scratch.Take<float>(RoundUp(widest, kLanes) * kWidth).data()};
  const auto byte_of = [&](std::span<const int32_t> bytes, int64_t row) {
    return bytes[row % part.sequences * shape.length + row / part.sequences];
  };
  const std::span<int32_t> next = scratch.Take<int32_t>(pass.capacity + kSpareRows);
  std::ranges::fill(next, 0);
  for (int64_t row = 0; row < rows; ++row) next[row] = byte_of(part.next, row);
  const PanelMatrix x = TakePanels(pass.capacity, width, scratch);
  ClearRows(x, width, 0);
  const float* embedding = e.params.data();
  const auto read = [&](int64_t row) { return byte_of(part.bytes, row); };
  LookUpBytes(embedding, width, rows, read, x);

  const std::span<LstmLayer> layers = scratch.Take<LstmLayer>(shape.layers);
  const std::span<PanelMatrix> inputs = scratch.Take<PanelMatrix>(shape.layers + 1);
  inputs[0] = x;
  const float* w = embedding + width * kByteValues;
  for (int64_t l = 0; l < shape.layers; ++l, w += shape.layer_params()) {
    layers[l] = TakeLayer(pass, scratch);
    RunLayer(pass, inputs[l], w, layers[l], scratch);
    inputs[l + 1] = From(layers[l].states, part.sequences);
  }
  const ClassifierHead head{.units = inputs[shape.layers],
                            .inputs = width,
                            .classes = kByteValues,
                            .count = rows,
                            .capacity = pass.capacity,
                            .labels = next.first(rows),
                            .scale = part.scale,
                            .w = w,
                            .buffer = pass.buffer,
                            .logits = nullptr};
  float* slopes = scratch.Take<float>(kByteValues * pass.capacity).data();
  const LossSums sums = ClassifierLosses(head, slopes);
  if (e.gradient.empty()) return sums;

  float* gradient = e.gradient.data();
  const auto gradient_of = [&](const float* at) { return gradient + (at - embedding); };
  ClassifierWeightGradient(head, slopes, part.add, gradient_of(w));
  const PanelMatrix of_x = TakePanels(pass.capacity, width, scratch);
  ClassifierBackward(head, slopes, Derivative::kOne, of_x);
  for (int64_t l = shape.layers - 1; l >= 0; --l) {
    w -= shape.layer_params();
    LayerBackward(pass, inputs[l], w, part.add, layers[l], of_x, gradient_of(w), scratch);
  }
  EmbeddingGradient(of_x, width, rows, read, part.add, gradient);
  return sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(RunLstm);

}  // namespace

ClassifierResult ByteLstmLoss(const LstmShape& shape, const LstmEvaluation& e,
                              const ByteSequences& sequences, Workspace& scratch) {
  return SumOverByteParts(sequences, shape.sequences_of_part(), scratch, [&](const BytePart& part) {
    return LOPT_DISPATCH(RunLstm)(shape, e, part, scratch);
  });
}

}  // namespace lopt
#endif  // HWY_ONCE
