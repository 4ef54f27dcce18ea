#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/base/replica_device.h"
#include "lopt/tasks/data/data_rows_device.h"
#include "lopt/tasks/layers/activation_device.h"

namespace lopt {

// ImageMlp on a device. A batch is evaluated in chunks of examples whose units are in scratch
// memory, one row an example; a thread computes 4 x 4 numbers of a product at a time, from rows
// that are read as Float4. Weights go to scratch memory in panels, where they are aligned, whatever
// the layers' sizes.
struct ImageMlpDevice {
  // The units between two layers: the images, hidden units or logits.
  struct Units {
    int width;
    // Places in scratch of arrays [chunk, Pitch(width)]: the units, which become the gradient with
    // respect to what their activation is of, and slopes, of hidden units alone.
    int values;
    int slopes;
    int64_t params;  // of the layer that reads them: weights [width, next width], then its bias
  };

  struct Args {
    DeviceRows rows;
    const float* images;
    int stride;
    const uint8_t* labels;
    Activation activation;
    int layers;
    const Units* units;  // [layers + 1]
    int chunk;           // examples, a multiple of 4
    int units_size;      // floats of the units of a chunk
  };

  // The distance of two rows of `width` numbers: an odd multiple of 4, so that the Float4 of eight
  // neighbouring rows are in different banks.
  static LOPT_DEVICE constexpr int Pitch(int width) { return (width + 3) / 4 * 4 | 4; }

  // Floats of the work memory for each thread: a panel of weights, or partial sums of a gradient.
  static constexpr int kWork = 20;

  static int64_t ScratchFloats(const Args& args, int threads) {
    return args.units_size + 2 * int64_t{args.chunk} + int64_t{2 + kWork} * threads;
  }

  static LOPT_DEVICE_INLINE void Evaluate(const Block& block, const Args& args,
                                          const DeviceEvaluation& e, const Replica& replica) {
    const Scratch scratch = ScratchOf(block, args, replica);
    const DeviceBatch batch(args.rows, e);
    block.ForEach(2 * block.threads(), [&](int64_t i) { scratch.sums[i] = 0; });
    LOPT_ROLLED
    for (int first = 0; first < args.rows.batch_size; first += args.chunk) {
      const int left = args.rows.batch_size - first;
      const int count = left < args.chunk ? left : args.chunk;
      TakeImages(block, args, batch, first, count, scratch);
      LOPT_ROLLED
      for (int l = 0; l < args.layers; ++l) Forward(block, args, l, count, replica, scratch);
      Judge(block, args, count, scratch);
      LOPT_ROLLED
      for (int l = args.layers - 1; l >= 0 && e.gradient; --l) {
        AddWeightGradient(block, args, l, count, first == 0, replica, scratch);
        if (l > 0) Backward(block, args, l, count, replica, scratch);
      }
    }
    SumOverThreads(block, 2, scratch.sums, scratch.work);
    block.Once([&] {
      const auto examples = static_cast<float>(args.rows.batch_size);
      *replica.loss = scratch.work[0] / examples;
      *replica.aux = scratch.work[1] / examples;
    });
  }

 private:
  struct Scratch {
    float* units;
    int32_t* examples;  // [chunk] rows of the data set
    int32_t* labels;    // [chunk]
    float* sums;        // [2, threads]: of losses, and of examples that are right
    float* work;        // [kWork threads]
  };

  static LOPT_DEVICE_INLINE Scratch ScratchOf(const Block& block, const Args& args,
                                              const Replica& replica) {
    float* examples = replica.scratch + args.units_size;
    float* labels = examples + args.chunk;
    float* sums = labels + args.chunk;
    return {.units = replica.scratch,
            .examples = reinterpret_cast<int32_t*>(examples),
            .labels = reinterpret_cast<int32_t*>(labels),
            .sums = sums,
            .work = sums + 2 * block.threads()};
  }

  static LOPT_DEVICE int UpToFour(int n) { return (n + 3) / 4 * 4; }

  // A phase: body(row, column) for all of a matrix, neighbours of a row on neighbouring threads.
  template <class Body>
  static LOPT_DEVICE_INLINE void ForEachPlace(const Block& block, int rows, int columns,
                                              const Body& body) {
    block.ForEachThread([&](int thread) {
      const int down = block.threads() / columns;
      const int along = block.threads() % columns;
      int row = thread / columns;
      int column = thread % columns;
      while (row < rows) {
        body(row, column);
        row += down;
        column += along;
        if (column >= columns) {
          column -= columns;
          ++row;
        }
      }
    });
  }

  static LOPT_DEVICE_INLINE Float4 Four(const float* from) {
    return *reinterpret_cast<const Float4*>(from);
  }

  // Images and labels of `count` examples of the batch.
  static LOPT_DEVICE_INLINE void TakeImages(const Block& block, const Args& args,
                                            const DeviceBatch& batch, int first, int count,
                                            const Scratch& scratch) {
    block.ForEach(count,
                  [&](int64_t n) { scratch.examples[n] = batch(first + static_cast<int>(n)); });
    const int width = args.units[0].width;
    float* images = scratch.units + args.units[0].values;
    ForEachPlace(block, count, UpToFour(width) / 4, [&](int n, int four) {
      const int32_t example = scratch.examples[n];
      const float* image = args.images + static_cast<int64_t>(example) * args.stride;
      *reinterpret_cast<Float4*>(images + n * Pitch(width) + 4 * four) = Four(image + 4 * four);
      if (four == 0) scratch.labels[n] = args.labels[example];
    });
  }

  static LOPT_DEVICE_INLINE void Forward(const Block& block, const Args& args, int l, int count,
                                         const Replica& replica, const Scratch& scratch) {
    const Units& from = args.units[l];
    const Units& to = args.units[l + 1];
    float* values = scratch.units + to.values;
    MultiplyByWeights(block, replica.params + from.params, from.width, to.width, false, count,
                      scratch.units + from.values, values, scratch.work);
    if (l + 1 == args.layers) return;
    float* slopes = scratch.units + to.slopes;
    block.ForEach(count * Pitch(to.width), [&](int64_t i) {
      const ActivatedReal<float> at = ActivatedAt(args.activation, values[i]);
      values[i] = at.value;
      slopes[i] = at.slope;
    });
  }

  // The gradient with respect to hidden units l, before their activation, from that of the next.
  static LOPT_DEVICE_INLINE void Backward(const Block& block, const Args& args, int l, int count,
                                          const Replica& replica, const Scratch& scratch) {
    const Units& from = args.units[l];
    const Units& to = args.units[l + 1];
    float* values = scratch.units + from.values;
    MultiplyByWeights(block, replica.params + from.params, from.width, to.width, true, count,
                      scratch.units + to.values, values, scratch.work);
    const float* slopes = scratch.units + from.slopes;
    block.ForEach(count * Pitch(from.width),
                  [&](int64_t i) { values[i] = slopes[i] == 0 ? 0 : slopes[i] * values[i]; });
  }

  // Losses from logits, which become the gradient with respect to them.
  static LOPT_DEVICE_INLINE void Judge(const Block& block, const Args& args, int count,
                                       const Scratch& scratch) {
    const Units& units = args.units[args.layers];
    const int classes = units.width;
    const float share = 1 / static_cast<float>(args.rows.batch_size);
    block.ForEachThread([&](int thread) {
      for (int n = thread; n < count; n += block.threads()) {
        float* logits = scratch.units + units.values + n * Pitch(classes);
        const int label = scratch.labels[n];
        const float of_label = logits[label];
        float largest = of_label;
        bool right = true;
        for (int c = 0; c < classes; ++c) {
          const float logit = logits[c];
          if (logit > largest) largest = logit;
          right = right && (c < label ? of_label > logit : of_label >= logit);
        }
        float sum = 0;
        for (int c = 0; c < classes; ++c) {
          logits[c] = std::exp(logits[c] - largest);
          sum += logits[c];
        }
        const float loss = std::log(sum) - (of_label - largest);
        const float scale = share / sum;
        for (int c = 0; c < classes; ++c) {
          logits[c] = logits[c] * scale - (c == label ? share : 0.0f);
        }
        scratch.sums[thread] += loss;
        scratch.sums[block.threads() + thread] += static_cast<float>(right && loss == loss);
      }
    });
  }

  // c = a W + bias or, transposed, c = a W^T, for W [in, out], followed by the bias. Rows of a and
  // c are `count`, up to the next multiple of 4 of which more is computed.
  static LOPT_DEVICE_INLINE void MultiplyByWeights(const Block& block, const float* weights, int in,
                                                   int out, bool transposed, int count,
                                                   const float* a, float* c, float* work) {
    const int inner = transposed ? out : in;
    const int columns = transposed ? in : out;
    const float* bias = transposed ? nullptr : weights + int64_t{in} * out;
    // A panel that is deep enough to need one only, or wide enough for all threads.
    const int size = kWork * block.threads();
    int wide = UpToFour(columns);
    int deep = UpToFour(inner);
    if (int64_t{Pitch(wide)} * deep > size) {
      const int row_tiles = (count + 3) / 4;
      const int busy = (block.threads() + row_tiles - 1) / row_tiles * 4;
      if (busy < wide) wide = busy;
      const int fits = size / Pitch(wide) / 4 * 4;
      if (fits < deep) deep = fits;
    }
    LOPT_ROLLED
    for (int column = 0; column < columns; column += wide) {
      const int now_wide = columns - column < wide ? columns - column : wide;
      LOPT_ROLLED
      for (int k = 0; k < inner; k += deep) {
        const int now_deep = inner - k < deep ? inner - k : deep;
        const int across = Pitch(now_wide);
        // Rows behind the last are zeros.
        if (transposed) {
          ForEachPlace(block, now_wide, UpToFour(now_deep), [&](int i, int j) {
            work[j * across + i] = j < now_deep ? weights[int64_t{column + i} * out + k + j] : 0.0f;
          });
        } else {
          ForEachPlace(block, UpToFour(now_deep), now_wide, [&](int i, int j) {
            work[i * across + j] = i < now_deep ? weights[int64_t{k + i} * out + column + j] : 0.0f;
          });
        }
        MultiplyByPanel(block, count, now_deep, now_wide, a + k, Pitch(inner), work,
                        bias == nullptr ? nullptr : bias + column, k > 0, c + column,
                        Pitch(columns));
      }
    }
  }

  // c [count, wide] = a [count, deep] times the panel, added to c or, if there is one, to the bias.
  // Columns behind the last, up to the next multiple of 4, become zeros.
  static LOPT_DEVICE_INLINE void MultiplyByPanel(const Block& block, int count, int deep, int wide,
                                                 const float* a, int a_pitch, const float* panel,
                                                 const float* bias, bool adds, float* c,
                                                 int c_pitch) {
    const int row_tiles = (count + 3) / 4;
    const int column_tiles = (wide + 3) / 4;
    const int across = Pitch(wide);
    block.ForEachThread([&](int thread) {
      for (int tile = thread; tile < row_tiles * column_tiles; tile += block.threads()) {
        // Rows row, row + row_tiles, ...: neighbouring ones are of neighbouring threads.
        const int row = tile / column_tiles;
        const int column = tile % column_tiles * 4;
        const int used = wide - column < 4 ? wide - column : 4;
        float* to = c + row * c_pitch + column;
        float start[4];
        LOPT_UNROLL
        for (int j = 0; j < 4; ++j) {
          start[j] = bias != nullptr && j < used ? bias[column + j] : 0.0f;
        }
        float sums[4][4];
        LOPT_UNROLL
        for (int i = 0; i < 4; ++i) {
          const Float4 so_far = adds ? Four(to + i * row_tiles * c_pitch) : Float4{};
          LOPT_UNROLL
          for (int j = 0; j < 4; ++j) sums[i][j] = adds ? so_far.at[j] : start[j];
        }
        const float* x = a + row * a_pitch;
        const float* w = panel + column;
        LOPT_ROLLED
        for (int k = 0; k < deep; k += 4) {
          Float4 xs[4];
          Float4 ws[4];
          LOPT_UNROLL
          for (int i = 0; i < 4; ++i) xs[i] = Four(x + i * row_tiles * a_pitch + k);
          LOPT_UNROLL
          for (int i = 0; i < 4; ++i) ws[i] = Four(w + (k + i) * across);
          LOPT_UNROLL
          for (int step = 0; step < 4; ++step) {
            LOPT_UNROLL
            for (int i = 0; i < 4; ++i) {
              LOPT_UNROLL
              for (int j = 0; j < 4; ++j) sums[i][j] += xs[i].at[step] * ws[step].at[j];
            }
          }
        }
        LOPT_UNROLL
        for (int i = 0; i < 4; ++i) {
          Float4 sum;
          LOPT_UNROLL
          for (int j = 0; j < 4; ++j) sum.at[j] = j < used ? sums[i][j] : 0.0f;
          *reinterpret_cast<Float4*>(to + i * row_tiles * c_pitch) = sum;
        }
      }
    });
  }

  // Writes the first `used` of four neighbours; `aligned`: to a multiple of 16 bytes.
  static LOPT_DEVICE_INLINE void Store(const float (&values)[4], int used, bool aligned,
                                       float* to) {
    if (aligned && used == 4) {
      *reinterpret_cast<Float4*>(to) = {{values[0], values[1], values[2], values[3]}};
      return;
    }
    LOPT_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (j < used) to[j] = values[j];
    }
  }

  // Adds the chunk's gradient of layer l, from the layer's units and the gradient of the next;
  // `first`: there is nothing yet to add to.
  static LOPT_DEVICE_INLINE void AddWeightGradient(const Block& block, const Args& args, int l,
                                                   int count, bool first, const Replica& replica,
                                                   const Scratch& scratch) {
    const int in = args.units[l].width;
    const int out = args.units[l + 1].width;
    const float* x = scratch.units + args.units[l].values;
    const float* d = scratch.units + args.units[l + 1].values;
    const int in_tiles = (in + 3) / 4;
    const int out_tiles = (out + 3) / 4;
    const int tiles = in_tiles * out_tiles;
    // Where there are fewer tiles than threads, several threads share the examples of each.
    int shares = block.threads() / tiles;
    if (shares > count / 4) shares = count / 4;
    if (shares < 1) shares = 1;
    const int64_t size = (int64_t{in} + 1) * out;
    float* gradient = replica.gradient + args.units[l].params;
    float* sums_of_shares = shares > 1 ? scratch.work : gradient;
    const bool aligned = out % 4 == 0 && reinterpret_cast<uintptr_t>(sums_of_shares) % 16 == 0;
    const bool adds = shares == 1 && !first;
    block.ForEachThread([&](int thread) {
      for (int item = thread; item < tiles * shares; item += block.threads()) {
        const int o = item % out_tiles * 4;
        const int i = item / out_tiles % in_tiles * 4;
        const int share = item / tiles;
        const int used = out - o < 4 ? out - o : 4;
        float* to = sums_of_shares + share * size + int64_t{i} * out + o;
        float* to_bias = sums_of_shares + share * size + int64_t{in} * out + o;
        float sums[4][4] = {};
        float bias[4] = {};
        if (adds) {
          LOPT_UNROLL
          for (int j = 0; j < 4; ++j) {
            LOPT_UNROLL
            for (int q = 0; q < 4; ++q) {
              if (q < used && i + j < in) sums[j][q] = to[int64_t{j} * out + q];
            }
            if (j < used && i == 0) bias[j] = to_bias[j];
          }
        }
        const auto add = [&](int n) {
          const Float4 xs = Four(x + n * Pitch(in) + i);
          const Float4 ds = Four(d + n * Pitch(out) + o);
          LOPT_UNROLL
          for (int j = 0; j < 4; ++j) {
            LOPT_UNROLL
            for (int q = 0; q < 4; ++q) sums[j][q] += xs.at[j] * ds.at[q];
          }
          // Kept of the first rows alone; to ask costs as much.
          LOPT_UNROLL
          for (int q = 0; q < 4; ++q) bias[q] += ds.at[q];
        };
        const int end = count * (share + 1) / shares;
        int n = count * share / shares;
        LOPT_ROLLED
        for (; n + 4 <= end; n += 4) {
          LOPT_UNROLL
          for (int j = 0; j < 4; ++j) add(n + j);
        }
        LOPT_ROLLED
        for (; n < end; ++n) add(n);
        LOPT_UNROLL
        for (int j = 0; j < 4; ++j) {
          if (i + j < in) Store(sums[j], used, aligned, to + int64_t{j} * out);
        }
        if (i == 0) Store(bias, used, aligned, to_bias);
      }
    });
    if (shares == 1) return;
    block.ForEach(size, [&](int64_t i) {
      float sum = first ? 0.0f : gradient[i];
      for (int share = 0; share < shares; ++share) sum += sums_of_shares[share * size + i];
      gradient[i] = sum;
    });
  }
};

}  // namespace lopt
