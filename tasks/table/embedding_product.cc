#include "lopt/tasks/table/embedding_product.h"

#include <algorithm>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/options.h"
#include "lopt/tasks/batch_rows.h"
#include "lopt/tasks/most_numbers.h"
#include "lopt/tasks/table/drawn_columns.h"

namespace lopt {
namespace {

constexpr char kEmbeddingProduct[] = "EmbeddingProduct";

TaskParts EmbeddingProductParts(const EmbeddingProductOptions& options, const Ratings& ratings) {
  CheckOptions(kEmbeddingProduct, options);
  Require(ratings.options() == options.ratings, "{}: the ratings were drawn with other options",
          kEmbeddingProduct);
  Require(options.width <= kMostNumbers / (options.ratings.users + options.ratings.items),
          "{}: width {} for {} users and {} items is more than {} params", kEmbeddingProduct,
          options.width, options.ratings.users, options.ratings.items, kMostNumbers);
  const auto& [rows, users, items, rank, noise, seed] = options.ratings;
  TaskParts parts{.params = Layout({{"users", Shape{options.width, users}},
                                    {"items", Shape{options.width, items}},
                                    {"user_bias", Shape{1, users}},
                                    {"item_bias", Shape{1, items}}}),
                  .normalizer_maximum = kMostLossOfRows * (1 + noise * noise)};
  parts.data = RowsInBatches(ratings, options.batch_size, options.sampling);
  return parts;
}

}  // namespace

void EmbeddingProductOptions::Visit(FieldVisitor& v) {
  ratings.Visit(v);
  v.Field("batch_size", &batch_size, Between(1, 1000000), "Ratings a step.");
  VisitSampling(v, &sampling);
  v.Field("width", &width, Between(1, 10000), "Numbers of each embedding.");
  v.Field("init_std", &init_std, Between(1e-6, 1e6), "Standard deviation of the initial params.");
}

EmbeddingProduct::EmbeddingProduct(const EmbeddingProductOptions& options,
                                   std::shared_ptr<const Ratings> ratings)
    : TaskFamily(EmbeddingProductParts(options, *ratings)),
      ratings_(std::move(ratings)),
      width_(options.width),
      init_std_(static_cast<float>(options.init_std)) {}

void EmbeddingProduct::DoInit(std::span<const float>, Key key, std::span<float> params,
                              std::span<float>) const {
  Normal(key, params);
  for (float& p : params) p *= init_std_;
}

void EmbeddingProduct::DoEvaluate(const TaskEvaluation& all, Workspace&) const {
  const RatingsOptions& of = ratings_->options();
  const int64_t items_at = of.users * width_;
  const int64_t user_bias_at = items_at + of.items * width_;
  const int64_t item_bias_at = user_bias_at + of.users;
  for (int64_t row = 0; row < all.rows; ++row) {
    const TaskEvaluation e = RowOf(all, row);
    std::ranges::fill(e.gradients, 0.0F);
    const float* p = e.params.data();
    float* g = e.gradients.data();
    const auto count = static_cast<double>(e.examples.size());
    double loss = 0;
    for (const int32_t example : e.examples) {
      const Rating& rating = ratings_->rows()[static_cast<size_t>(example)];
      const int64_t user = rating.user;
      const int64_t item = items_at + rating.item;
      float said = p[user_bias_at + rating.user] + p[item_bias_at + rating.item];
      for (int64_t k = 0; k < width_; ++k) {
        said += p[user + k * of.users] * p[item + k * of.items];
      }
      const float error = said - rating.rating;
      loss += double{error} * error;
      if (e.gradients.empty()) continue;
      const float slope = 2 * error / static_cast<float>(count);
      for (int64_t k = 0; k < width_; ++k) {
        g[user + k * of.users] += slope * p[item + k * of.items];
        g[item + k * of.items] += slope * p[user + k * of.users];
      }
      g[user_bias_at + rating.user] += slope;
      g[item_bias_at + rating.item] += slope;
    }
    e.losses[0] = static_cast<float>(loss / count);
  }
}

}  // namespace lopt
