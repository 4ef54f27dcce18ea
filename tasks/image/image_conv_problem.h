#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/layers/activation.h"

namespace lopt {

// One dimension of a convolution with padding "SAME", as haiku and TensorFlow define it: there are
// ceil(size / stride) outputs, the windows lie in `padded` numbers of which `low` zeros come before
// the `size` inputs, and where the zeros on both sides are not equal there is one more behind.
struct SameWindow {
  int64_t size;
  int64_t kernel;
  int64_t stride;

  int64_t outputs() const { return (size + stride - 1) / stride; }
  int64_t padded() const {
    const int64_t reach = (outputs() - 1) * stride + kernel;
    return reach > size ? reach : size;
  }
  int64_t low() const { return (padded() - size) / 2; }
};

// What becomes of a layer's outputs behind the activation: nothing, or the largest or the mean of
// every 2 x 2 of them (2 x 1 or 1 x 2 where there is only one in the other direction; an odd line
// or column at the end is left out).
enum class Pool { kNone, kMax, kAverage };

// One convolution with its activation and pooling. Arrays are [height, width, channels].
struct ConvLayer {
  SameWindow rows;
  SameWindow columns;
  int64_t channels;
  int64_t filters;  // channels of the output
  Pool pool;

  int64_t window() const { return rows.kernel * columns.kernel * channels; }
  int64_t weights() const { return window() * filters; }
  // Positions before pooling.
  int64_t positions() const { return rows.outputs() * columns.outputs(); }
  int64_t pool_height() const { return pool == Pool::kNone || rows.outputs() == 1 ? 1 : 2; }
  int64_t pool_width() const { return pool == Pool::kNone || columns.outputs() == 1 ? 1 : 2; }
  int64_t pooled_height() const { return rows.outputs() / pool_height(); }
  int64_t pooled_width() const { return columns.outputs() / pool_width(); }
  int64_t pooled_positions() const { return pooled_height() * pooled_width(); }
};

// What the linear layer at the end takes of the last convolution's outputs: the mean over all
// positions of each filter, or all of them in the order [height, width, filter].
enum class ConvHead { kMean, kFlatten };

// A network of convolutions and a linear layer. Its params are, convolution by convolution, w
// [kernel height, kernel width, channels, filters] and b [filters], then those of the linear layer,
// w [features, classes] and b [classes], C order.
struct ConvShape {
  std::vector<ConvLayer> layers = {};  // at least one
  ConvHead head = ConvHead::kMean;
  int64_t classes = 0;

  int64_t features() const {
    const ConvLayer& last = layers.back();
    return last.filters * (head == ConvHead::kMean ? 1 : last.pooled_positions());
  }
};

// What to evaluate of a network, and where the gradient goes.
struct ConvEvaluation {
  Activation activation = Activation::kRelu;
  std::span<const float> params;
  ImageBatch batch;
  std::span<float> gradient = {};  // out; empty: not wanted
  std::span<float> logits = {};    // [examples, classes], out; empty: not wanted
};

}  // namespace lopt
