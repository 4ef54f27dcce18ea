#include "tests/reference/image_conv_reference.h"

#include <algorithm>
#include <cmath>

#include "lopt/tasks/image/image_classifier.h"
#include "tests/reference/cross_entropy.h"

namespace lopt {
namespace {

// Calls body(output position, input position, tap) for every weight window that lies on an input.
template <class Body>
void ForTaps(const ConvLayer& layer, const Body& body) {
  const SameWindow& rows = layer.rows;
  const SameWindow& columns = layer.columns;
  for (int64_t y = 0; y < rows.outputs(); ++y) {
    for (int64_t x = 0; x < columns.outputs(); ++x) {
      for (int64_t i = 0; i < rows.kernel; ++i) {
        for (int64_t j = 0; j < columns.kernel; ++j) {
          const int64_t from_y = y * rows.stride + i - rows.low();
          const int64_t from_x = x * columns.stride + j - columns.low();
          if (from_y < 0 || from_y >= rows.size || from_x < 0 || from_x >= columns.size) continue;
          body(y * columns.outputs() + x, from_y * columns.size + from_x, i * columns.kernel + j);
        }
      }
    }
  }
}

void Convolve(const ConvLayer& layer, const double* in, const float* w, double* out) {
  const float* b = w + layer.weights();
  for (int64_t p = 0; p < layer.positions(); ++p)
    std::copy_n(b, layer.filters, out + p * layer.filters);
  ForTaps(layer, [&](int64_t to, int64_t from, int64_t tap) {
    for (int64_t c = 0; c < layer.channels; ++c) {
      for (int64_t f = 0; f < layer.filters; ++f) {
        out[to * layer.filters + f] +=
            in[from * layer.channels + c] * w[(tap * layer.channels + c) * layer.filters + f];
      }
    }
  });
}

// Adds to the gradient of the weights and bias; that of the input is written.
void ConvolveBackward(const ConvLayer& layer, const double* in, const float* w,
                      const double* out_gradient, double* in_gradient, double* w_gradient) {
  std::fill_n(in_gradient, layer.rows.size * layer.columns.size * layer.channels, 0.0);
  ForTaps(layer, [&](int64_t to, int64_t from, int64_t tap) {
    for (int64_t c = 0; c < layer.channels; ++c) {
      for (int64_t f = 0; f < layer.filters; ++f) {
        const int64_t at = (tap * layer.channels + c) * layer.filters + f;
        const double gradient = out_gradient[to * layer.filters + f];
        w_gradient[at] += in[from * layer.channels + c] * gradient;
        in_gradient[from * layer.channels + c] += w[at] * gradient;
      }
    }
  });
  for (int64_t i = 0; i < layer.positions() * layer.filters; ++i) {
    w_gradient[layer.weights() + i % layer.filters] += out_gradient[i];
  }
}

// Calls body(pooled number, number, share) for the numbers that a pooled one is made of.
template <class Body>
void ForPooled(const ConvLayer& layer, const double* values, const Body& body) {
  const int64_t width = layer.columns.outputs();
  for (int64_t to = 0; to < layer.pooled_positions() * layer.filters; ++to) {
    const int64_t position = to / layer.filters;
    const int64_t corner = position / layer.pooled_width() * layer.pool_height() * width +
                           position % layer.pooled_width() * layer.pool_width();
    const auto number = [&](int64_t i, int64_t j) {
      return (corner + i * width + j) * layer.filters + to % layer.filters;
    };
    int64_t largest = number(0, 0);
    for (int64_t i = 0; i < layer.pool_height(); ++i) {
      for (int64_t j = 0; j < layer.pool_width(); ++j) {
        const int64_t from = number(i, j);
        if (layer.pool == Pool::kAverage) {
          body(to, from, 1.0 / static_cast<double>(layer.pool_height() * layer.pool_width()));
        }
        const bool larger = values[from] > values[largest] || std::isnan(values[from]);
        if (larger && !std::isnan(values[largest])) largest = from;
      }
    }
    if (layer.pool != Pool::kAverage) body(to, largest, 1.0);
  }
}

struct LayerArrays {
  std::span<double> values;  // of the activation
  std::span<double> slopes;
  std::span<double> pooled;
};

}  // namespace

ClassifierResult ConvLossReference(const ConvShape& shape, const ConvEvaluation& e,
                                   Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const auto layers = std::ssize(shape.layers);
  const std::span<LayerArrays> arrays = scratch.Take<LayerArrays>(layers);
  const ConvLayer& first = shape.layers.front();
  const int64_t pixels = first.rows.size * first.columns.size * first.channels;
  int64_t widest = pixels;
  for (int64_t l = 0; l < layers; ++l) {
    const ConvLayer& layer = shape.layers[l];
    const int64_t size = layer.positions() * layer.filters;
    arrays[l] = {scratch.Take<double>(size), scratch.Take<double>(size),
                 scratch.Take<double>(layer.pooled_positions() * layer.filters)};
    widest = std::max(widest, size);
  }
  const std::span<double> image = scratch.Take<double>(pixels);
  const std::span<double> gradient = scratch.Take<double>(widest);
  const std::span<double> next_gradient = scratch.Take<double>(widest);
  const std::span<double> features = scratch.Take<double>(shape.features());
  const std::span<double> feature_gradients = scratch.Take<double>(shape.features());
  const std::span<double> logits = scratch.Take<double>(shape.classes);
  const std::span<double> sums = scratch.Take<double>(std::ssize(e.gradient));
  std::ranges::fill(sums, 0.0);

  double loss = 0;
  int64_t correct = 0;
  int64_t examples_done = 0;
  for (const int32_t example : e.batch.examples) {
    const float* stored = e.batch.images + example * e.batch.stride;
    std::copy_n(stored, pixels, image.begin());
    const float* w = e.params.data();
    const double* in = image.data();
    for (int64_t l = 0; l < layers; ++l) {
      const ConvLayer& layer = shape.layers[l];
      const LayerArrays& at = arrays[l];
      Convolve(layer, in, w, at.values.data());
      for (int64_t i = 0; i < std::ssize(at.values); ++i) {
        const auto activated = ActivatedAt<double>(e.activation, at.values[i]);
        at.values[i] = activated.value;
        at.slopes[i] = activated.slope;
      }
      std::ranges::fill(at.pooled, 0.0);
      ForPooled(layer, at.values.data(), [&](int64_t to, int64_t from, double share) {
        at.pooled[to] += share * at.values[from];
      });
      in = at.pooled.data();
      w += layer.weights() + layer.filters;
    }
    const std::span<const double> outputs = arrays[layers - 1].pooled;
    const int64_t shares = std::ssize(outputs) / shape.features();
    std::ranges::fill(features, 0.0);
    for (int64_t i = 0; i < std::ssize(outputs); ++i) {
      features[i % shape.features()] += outputs[i] / static_cast<double>(shares);
    }
    std::copy_n(w + shape.features() * shape.classes, shape.classes, logits.begin());
    for (int64_t i = 0; i < shape.features(); ++i) {
      for (int64_t c = 0; c < shape.classes; ++c) {
        logits[c] += features[i] * w[i * shape.classes + c];
      }
    }
    if (!e.logits.empty()) {
      std::ranges::copy(logits, e.logits.begin() + examples_done * shape.classes);
      ++examples_done;
    }
    const CrossEntropyResult result = CrossEntropy(logits, e.batch.labels[example]);
    loss += result.loss;
    correct += result.correct;
    if (e.gradient.empty()) continue;

    double* sum = sums.data() + (w - e.params.data());
    std::ranges::fill(feature_gradients, 0.0);
    for (int64_t i = 0; i < shape.features(); ++i) {
      for (int64_t c = 0; c < shape.classes; ++c) {
        sum[i * shape.classes + c] += features[i] * logits[c];
        feature_gradients[i] += w[i * shape.classes + c] * logits[c];
      }
    }
    for (int64_t c = 0; c < shape.classes; ++c) {
      sum[shape.features() * shape.classes + c] += logits[c];
    }
    for (int64_t i = 0; i < std::ssize(outputs); ++i) {
      next_gradient[i] = feature_gradients[i % shape.features()] / static_cast<double>(shares);
    }
    for (int64_t l = layers - 1; l >= 0; --l) {
      const ConvLayer& layer = shape.layers[l];
      const LayerArrays& at = arrays[l];
      w -= layer.weights() + layer.filters;
      std::ranges::fill(gradient, 0.0);
      ForPooled(layer, at.values.data(), [&](int64_t to, int64_t from, double share) {
        if (at.slopes[from] != 0) gradient[from] = share * at.slopes[from] * next_gradient[to];
      });
      ConvolveBackward(layer, l == 0 ? image.data() : arrays[l - 1].pooled.data(), w,
                       gradient.data(), next_gradient.data(), sums.data() + (w - e.params.data()));
    }
  }
  const auto count = static_cast<double>(e.batch.examples.size());
  std::ranges::transform(sums, e.gradient.begin(),
                         [&](double sum) { return static_cast<float>(sum / count); });
  return {static_cast<float>(loss / count), correct};
}

void ReferenceImageConv::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t size = params_layout().size();
  const auto loss = [&](int64_t row, const ImageBatch& batch, bool /*train*/,
                        std::span<float> gradient, std::span<float> logits) {
    return ConvLossReference(shape(),
                             {.activation = activation(),
                              .params = e.params.subspan(row * size, size),
                              .batch = batch,
                              .gradient = gradient,
                              .logits = logits},
                             scratch);
  };
  EvaluateClassifiers(images(), e, loss, scratch);
}

}  // namespace lopt
