#include "lopt/tasks/image/parametric_image_mlp.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

constexpr const char* kParametricWho = "ParametricImageMLP";
constexpr int32_t kInitializerCount = 5;

// Purposes of the family's key, and of a task's.
enum FamilyDraw : uint64_t { kHiddenDraw, kLayersDraw, kImageSizeDraw, kBatchSizeDraw };
enum ParametricDraw : uint64_t { kActivationDraw, kInitializerDraw, kInitScaleDraw };

// Places of the config.
enum ConfigEntry : size_t { kActivationEntry, kInitializerEntry, kInitScaleEntry };

int64_t LogUniform(Key key, double low, double high) {
  return static_cast<int64_t>(low * std::exp(Uniform(key) * std::log(high / low)));
}

template <class Networks>
TaskParts PartsOfNetworks(const Networks& networks, int64_t classes) {
  TaskParts parts = networks[0]->parts();
  parts.config = Layout({{"activation", Shape()}, {"initializer", Shape()}, {"scale", Shape()}});
  parts.normalizer_maximum = 10 * std::log(10) / std::log(static_cast<double>(classes));
  return parts;
}

// [in, out] with orthonormal columns or rows.
void Orthogonal(Key key, int64_t in, int64_t out, std::span<float> values) {
  using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Normal(key, values);
  const int64_t tall = std::max(in, out);
  const int64_t narrow = std::min(in, out);
  const Eigen::MatrixXd drawn =
      Eigen::Map<const RowMajor>(values.data(), tall, narrow).cast<double>();
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr(drawn);
  Eigen::MatrixXd q = qr.householderQ() * Eigen::MatrixXd::Identity(tall, narrow);
  // The signs that make Q uniform among such matrices.
  for (int64_t column = 0; column < narrow; ++column) {
    if (qr.matrixQR()(column, column) < 0) q.col(column) *= -1;
  }
  Eigen::Map<RowMajor> result(values.data(), in, out);
  if (in >= out) {
    result = q.cast<float>();
  } else {
    result = q.transpose().cast<float>();
  }
}

void InitWeights(Initializer initializer, Key key, float scale, int64_t in, int64_t out,
                 std::span<float> values) {
  constexpr float kTruncatedDeviation = 0.87962566103423978F;  // of N(0, 1) on [-2, 2]
  const auto fan_in = static_cast<float>(in);
  float factor = 0;
  switch (initializer) {
    case Initializer::kOrthogonal:
      Orthogonal(key, in, out, values);
      factor = scale;
      break;
    case Initializer::kUniformScaling:
    case Initializer::kUniform:
      Uniform(key, values);
      for (float& value : values) value = 2 * value - 1;
      factor = initializer == Initializer::kUniform ? std::sqrt(3 * scale / fan_in)
                                                    : scale * std::sqrt(3 / fan_in);
      break;
    case Initializer::kNormal:
      Normal(key, values);
      factor = std::sqrt(scale / fan_in);
      break;
    case Initializer::kTruncatedNormal:
      TruncatedNormal(key, -2, 2, values);
      factor = std::sqrt(scale / fan_in) / kTruncatedDeviation;
      break;
  }
  for (float& value : values) value *= factor;
}

}  // namespace

void ParametricImageMlpOptions::Visit(FieldVisitor& v) {
  v.Field("family_seed", &family_seed, AtLeast(0),
          "Draws the sizes of the network, of the images and of a batch.");
  images.VisitSource(v);
}

ImageMlpOptions ParametricImageMlp::Drawn(const ParametricImageMlpOptions& options) {
  CheckOptions(kParametricWho, options);
  const Key key = KeyFromSeed(static_cast<uint64_t>(options.family_seed));
  const int64_t hidden = LogUniform(FoldIn(key, kHiddenDraw), 8, 128);
  const auto layers = static_cast<size_t>(Randint(FoldIn(key, kLayersDraw), 0, 5));
  ImageMlpOptions drawn{.images = options.images, .hidden = std::vector(layers, hidden)};
  drawn.images.image_size = LogUniform(FoldIn(key, kImageSizeDraw), 4, 32);
  drawn.images.batch_size = LogUniform(FoldIn(key, kBatchSizeDraw), 4, 512);
  return drawn;
}

ParametricImageMlp::ParametricImageMlp(const ParametricImageMlpOptions& options,
                                       const std::shared_ptr<const ImageData>& data)
    : ParametricImageMlp(
          [&] {
            Networks networks;
            ImageMlpOptions network = Drawn(options);
            for (const Activation activation : kParametricActivations) {
              network.activation = activation;
              networks.push_back(std::make_shared<ImageMlp>(network, data));
            }
            return networks;
          }(),
          data->classes()) {}

ParametricImageMlp::ParametricImageMlp(Networks networks, int64_t classes)
    : TaskFamily(PartsOfNetworks(networks, classes)),
      networks_(std::move(networks)),
      classes_(static_cast<double>(classes)) {}

double ParametricImageMlp::Normalize(std::span<const float>, double loss) const {
  if (!std::isfinite(loss)) return *NormalizerMaximum();
  const double cut = std::clamp(loss, 0.0, std::log(2 * classes_));
  return std::min(10 * (cut - std::log(classes_ / 5)) / std::log(classes_), *NormalizerMaximum());
}

const ImageMlp& ParametricImageMlp::NetworkOf(std::span<const float> config) const {
  const float index = config[kActivationEntry];
  Require(index >= 0 && index < static_cast<float>(networks_.size()),
          "{}: a config has activation {}, wanted one of {}", kParametricWho, index,
          networks_.size());
  return *networks_[static_cast<size_t>(index)];
}

void ParametricImageMlp::DoSample(Key key, std::span<float> config) const {
  config[kActivationEntry] = static_cast<float>(
      Randint(FoldIn(key, kActivationDraw), 0, std::size(kParametricActivations)));
  config[kInitializerEntry] =
      static_cast<float>(Randint(FoldIn(key, kInitializerDraw), 0, kInitializerCount));
  config[kInitScaleEntry] = 0.5F + 1.5F * Uniform(FoldIn(key, kInitScaleDraw));
}

void ParametricImageMlp::DoInit(std::span<const float> config, Key key, std::span<float> params,
                                std::span<float>) const {
  const float index = config[kInitializerEntry];
  Require(index >= 0 && index < kInitializerCount,
          "{}: a config has initializer {}, wanted one of {}", kParametricWho, index,
          kInitializerCount);
  const auto initializer = static_cast<Initializer>(index);
  uint64_t tensor = 0;
  for (const LayoutEntry& entry : params_layout().entries()) {
    const std::span<float> values = params.subspan(entry.offset, entry.size);
    if (entry.shape.size() == 2) {
      InitWeights(initializer, FoldIn(key, tensor++), config[kInitScaleEntry], entry.shape[0],
                  entry.shape[1], values);
    } else {
      std::ranges::fill(values, 0.0F);
    }
  }
}

void ParametricImageMlp::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  for (int64_t row = 0; row < e.rows; ++row) {
    TaskEvaluation of_network = RowOf(e, row);
    const ImageMlp& network = NetworkOf(of_network.config);
    of_network.config = {};
    network.Evaluate(of_network, scratch);
  }
}

std::vector<Pictures> ParametricImageMlp::DoShow(const TaskEvaluation& e,
                                                 Workspace& scratch) const {
  TaskEvaluation of_network = e;
  of_network.config = {};
  return NetworkOf(e.config).Show(of_network, scratch);
}

}  // namespace lopt
