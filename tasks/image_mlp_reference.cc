#include "tasks/image_mlp_reference.h"

#include <algorithm>

#include "tasks/cross_entropy.h"

namespace lopt {
namespace {

// out = in w + b.
void Linear(std::span<const double> in, const float* w, const float* b, std::span<double> out) {
  std::copy(b, b + out.size(), out.begin());
  for (size_t i = 0; i < in.size(); ++i) {
    for (size_t o = 0; o < out.size(); ++o) out[o] += in[i] * w[i * out.size() + o];
  }
}

}  // namespace

ClassifierResult MlpLossReference(const MlpShape& shape, const MlpEvaluation& e,
                                  Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const int64_t layers = shape.layers();
  int64_t units = 0;
  for (const int64_t size : shape.sizes) units += size;
  const std::span<double> values = scratch.Take<double>(units);
  const std::span<double> slopes = scratch.Take<double>(units);
  const std::span<double> value_gradients = scratch.Take<double>(units);
  const std::span<double> sums = scratch.Take<double>(std::ssize(e.gradient));
  std::fill(sums.begin(), sums.end(), 0.0);

  double loss = 0;
  int64_t correct = 0;
  for (const int32_t example : e.batch.examples) {
    const float* image = e.batch.images + example * e.batch.stride;
    std::copy(image, image + shape.sizes[0], values.begin());
    std::fill_n(slopes.begin(), shape.sizes[0], 1.0);
    int64_t in = 0;
    int64_t w = 0;
    for (int64_t l = 0; l < layers; ++l) {
      const int64_t out = in + shape.sizes[l];
      const int64_t b = w + shape.sizes[l] * shape.sizes[l + 1];
      const std::span<double> next = values.subspan(out, shape.sizes[l + 1]);
      Linear(values.subspan(in, shape.sizes[l]), &e.params[w], &e.params[b], next);
      if (l + 1 < layers) {
        for (int64_t o = 0; o < std::ssize(next); ++o) {
          const Activated at = ActivationAt(e.activation, next[o]);
          next[o] = at.value;
          slopes[out + o] = at.slope;
        }
      }
      in = out;
      w = b + shape.sizes[l + 1];
    }
    const std::span<double> logits = values.subspan(in, shape.sizes[layers]);
    const CrossEntropyResult result = CrossEntropy(logits, e.batch.labels[example]);
    correct += result.correct;
    loss += result.loss;
    if (e.gradient.empty()) continue;

    std::copy(logits.begin(), logits.end(), value_gradients.begin() + in);
    int64_t out = in;
    for (int64_t l = layers - 1; l >= 0; --l) {
      const int64_t fan_in = shape.sizes[l];
      const int64_t fan_out = shape.sizes[l + 1];
      in = out - fan_in;
      const int64_t b = w - fan_out;
      w = b - fan_in * fan_out;
      for (int64_t o = 0; o < fan_out; ++o) sums[b + o] += value_gradients[out + o];
      for (int64_t i = 0; i < fan_in; ++i) {
        double back = 0;
        for (int64_t o = 0; o < fan_out; ++o) {
          sums[w + i * fan_out + o] += values[in + i] * value_gradients[out + o];
          back += e.params[w + i * fan_out + o] * value_gradients[out + o];
        }
        value_gradients[in + i] = slopes[in + i] == 0 ? 0 : slopes[in + i] * back;
      }
      out = in;
    }
  }
  const auto count = static_cast<double>(e.batch.examples.size());
  std::ranges::transform(sums, e.gradient.begin(),
                         [&](double sum) { return static_cast<float>(sum / count); });
  return {static_cast<float>(loss / count), correct};
}

}  // namespace lopt
