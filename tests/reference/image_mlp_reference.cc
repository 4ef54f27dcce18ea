#include "tests/reference/image_mlp_reference.h"

#include <algorithm>
#include <cmath>

#include "lopt/tasks/image/image_classifier.h"
#include "tests/reference/cross_entropy.h"

namespace lopt {
namespace {

// The arrays of one layer, [examples, units], in order of computation.
struct MlpLayerArrays {
  const double* inputs;  // [examples, in]
  double* normalized;    // also without a norm, where it is the linear map's output
  double* slopes;
  double* values;
  double* inverse;  // 1 / sqrt(variance + epsilon), [examples] or [units]
};

struct Moments {
  double mean;
  double variance;
};

// Of n numbers that lie `stride` apart.
Moments MomentsOf(const double* x, int64_t n, int64_t stride) {
  Moments moments{0, 0};
  for (int64_t i = 0; i < n; ++i) moments.mean += x[i * stride] / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    const double distance = x[i * stride] - moments.mean;
    moments.variance += distance * distance / static_cast<double>(n);
  }
  return moments;
}

// Normalizes n numbers; gives the factor.
double Normalize(const Moments& moments, int64_t n, int64_t stride, double* x) {
  const double inverse = 1 / std::sqrt(moments.variance + kNormEpsilon);
  for (int64_t i = 0; i < n; ++i) x[i * stride] = (x[i * stride] - moments.mean) * inverse;
  return inverse;
}

// The gradient of n numbers from that of their normalized values.
void NormalizeBackward(double inverse, int64_t n, int64_t stride, const double* normalized,
                       double* gradient) {
  double mean = 0;
  double share = 0;
  for (int64_t i = 0; i < n; ++i) {
    mean += gradient[i * stride] / static_cast<double>(n);
    share += gradient[i * stride] * normalized[i * stride] / static_cast<double>(n);
  }
  for (int64_t i = 0; i < n; ++i) {
    gradient[i * stride] = inverse * (gradient[i * stride] - mean - normalized[i * stride] * share);
  }
}

void NormForward(Norm norm, const MlpEvaluation& e, int64_t count, int64_t units, float* statistics,
                 const MlpLayerArrays& at) {
  if (norm == Norm::kLayer) {
    for (int64_t n = 0; n < count; ++n) {
      double* x = at.normalized + n * units;
      at.inverse[n] = Normalize(MomentsOf(x, units, 1), units, 1, x);
    }
    return;
  }
  for (int64_t u = 0; u < units; ++u) {
    float& mean = statistics[u];
    float& variance = statistics[units + u];
    Moments moments{mean, variance};
    if (e.train) {
      moments = MomentsOf(at.normalized + u, count, units);
      const auto n = static_cast<double>(count);
      const double unbiased = moments.variance * n / std::max(n - 1, 1.0);
      mean = static_cast<float>(mean + kNormMomentum * (moments.mean - mean));
      variance = static_cast<float>(variance + kNormMomentum * (unbiased - variance));
    }
    at.inverse[u] = Normalize(moments, count, units, at.normalized + u);
  }
}

void NormBackward(Norm norm, const MlpEvaluation& e, int64_t count, int64_t units,
                  const MlpLayerArrays& at, double* gradient) {
  if (norm == Norm::kLayer) {
    for (int64_t n = 0; n < count; ++n) {
      NormalizeBackward(at.inverse[n], units, 1, at.normalized + n * units, gradient + n * units);
    }
    return;
  }
  for (int64_t u = 0; u < units; ++u) {
    if (e.train) {
      NormalizeBackward(at.inverse[u], count, units, at.normalized + u, gradient + u);
    } else {
      for (int64_t n = 0; n < count; ++n) gradient[n * units + u] *= at.inverse[u];
    }
  }
}

}  // namespace

double MlpReference(const MlpShape& shape, const MlpEvaluation& e, const LossOfOutputs& loss,
                    Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const auto count = std::ssize(e.batch.examples);
  const int64_t layers = shape.layers();
  const auto take = [&](int64_t n) { return scratch.Take<double>(n).data(); };
  const std::span<MlpLayerArrays> arrays = scratch.Take<MlpLayerArrays>(layers);
  const std::span<double> sums = scratch.Take<double>(std::ssize(e.gradient));
  std::ranges::fill(sums, 0.0);
  const int64_t widest = std::ranges::max(shape.sizes);
  double* gradient = take(count * widest);
  double* next_gradient = take(count * widest);
  double* images = take(count * shape.sizes[0]);
  for (int64_t n = 0; n < count; ++n) {
    std::copy_n(e.batch.images + e.batch.examples[n] * e.batch.stride, shape.sizes[0],
                images + n * shape.sizes[0]);
  }

  const double* inputs = images;
  const float* w = e.params.data();
  float* statistics = e.statistics.data();
  for (int64_t l = 0; l < layers; ++l) {
    const int64_t in = shape.sizes[l];
    const int64_t out = shape.sizes[l + 1];
    MlpLayerArrays& at = arrays[l];
    at = {inputs, take(count * out), take(count * out), take(count * out), take(count + out)};
    for (int64_t n = 0; n < count; ++n) {
      double* sum = at.normalized + n * out;
      std::copy_n(w + in * out, out, sum);
      for (int64_t i = 0; i < in; ++i) {
        for (int64_t o = 0; o < out; ++o) sum[o] += inputs[n * in + i] * w[i * out + o];
      }
    }
    if (l + 1 == layers) break;
    const bool normalized = shape.norm != Norm::kNone;
    if (normalized) NormForward(shape.norm, e, count, out, statistics, at);
    const float* scale = w + (in + 1) * out;
    for (int64_t i = 0; i < count * out; ++i) {
      const double x =
          normalized ? at.normalized[i] * scale[i % out] + scale[out + i % out] : at.normalized[i];
      const auto activated = ActivatedAt<double>(e.activation, x);
      at.values[i] = activated.value;
      at.slopes[i] = activated.slope;
    }
    inputs = at.values;
    w += shape.params(l);
    if (shape.norm == Norm::kBatch) statistics += 2 * out;
  }

  double total = 0;
  const int64_t outputs = shape.sizes[layers];
  for (int64_t n = 0; n < count; ++n) {
    double* output = arrays[layers - 1].normalized + n * outputs;
    total += loss(n, {output, static_cast<size_t>(outputs)});
    std::copy_n(output, outputs, gradient + n * outputs);
  }
  for (int64_t l = layers - 1; l >= 0 && !e.gradient.empty(); --l) {
    const int64_t in = shape.sizes[l];
    const int64_t out = shape.sizes[l + 1];
    const MlpLayerArrays& at = arrays[l];
    double* sum = sums.data() + (w - e.params.data());
    if (l + 1 < layers) {
      for (int64_t i = 0; i < count * out; ++i) {
        gradient[i] = at.slopes[i] == 0 ? 0 : at.slopes[i] * gradient[i];
      }
      if (shape.norm != Norm::kNone) {
        const float* scale = w + (in + 1) * out;
        for (int64_t i = 0; i < count * out; ++i) {
          sum[(in + 1) * out + i % out] += gradient[i] * at.normalized[i];
          sum[(in + 2) * out + i % out] += gradient[i];
          gradient[i] *= scale[i % out];
        }
        NormBackward(shape.norm, e, count, out, at, gradient);
      }
    }
    std::fill_n(next_gradient, count * in, 0.0);
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t o = 0; o < out; ++o) sum[in * out + o] += gradient[n * out + o];
      for (int64_t i = 0; i < in; ++i) {
        for (int64_t o = 0; o < out; ++o) {
          sum[i * out + o] += at.inputs[n * in + i] * gradient[n * out + o];
          next_gradient[n * in + i] += w[i * out + o] * gradient[n * out + o];
        }
      }
    }
    std::swap(gradient, next_gradient);
    if (l > 0) w -= shape.params(l - 1);
  }
  std::ranges::transform(sums, e.gradient.begin(), [&](double sum) {
    return static_cast<float>(sum / static_cast<double>(count));
  });
  return total / static_cast<double>(count);
}

ClassifierResult MlpLossReference(const MlpShape& shape, const MlpEvaluation& e,
                                  Workspace& scratch) {
  int64_t correct = 0;
  const auto cross_entropy = [&](int64_t example, std::span<double> logits) {
    if (!e.logits.empty()) {
      std::ranges::copy(logits, e.logits.begin() + example * std::ssize(logits));
    }
    const CrossEntropyResult result =
        CrossEntropy(logits, e.batch.labels[e.batch.examples[example]]);
    correct += result.correct;
    return result.loss;
  };
  const double loss = MlpReference(shape, e, cross_entropy, scratch);
  return {static_cast<float>(loss), correct};
}

void ReferenceImageMlp::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t size = params_layout().size();
  const int64_t state_size = model_state_layout().size();
  const int64_t augmentation = images().model_state_layout().size();
  const auto loss = [&](int64_t row, const ImageBatch& batch, bool train, std::span<float> gradient,
                        std::span<float> logits) {
    const std::span<float> state = e.model_state.subspan(row * state_size, state_size);
    return MlpLossReference(shape(),
                            {.activation = activation(),
                             .params = e.params.subspan(row * size, size),
                             .statistics = state.subspan(augmentation),
                             .train = train,
                             .batch = batch,
                             .gradient = gradient,
                             .logits = logits},
                            scratch);
  };
  EvaluateClassifiers(images(), e, loss, scratch);
}

}  // namespace lopt
