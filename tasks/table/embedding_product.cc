#include "lopt/tasks/table/embedding_product.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/options.h"
#include "lopt/tasks/batch_rows.h"
#include "lopt/tasks/table/drawn_columns.h"

namespace lopt {
namespace {

constexpr char kEmbeddingProduct[] = "EmbeddingProduct";
// As TableMLP has it.
constexpr double kMostLossOfRatings = 100;
constexpr int64_t kMostDrawn = int64_t{1} << 28;
// Sets the keys of ratings apart from those of a run with the same seed.
constexpr uint64_t kRatingsDraws = 0x4a71;

const RatingsOptions& CheckRatings(const RatingsOptions& options) {
  CheckOptions(kEmbeddingProduct, options);
  return options;
}

TaskParts EmbeddingProductParts(const EmbeddingProductOptions& options, const Ratings& ratings) {
  CheckOptions(kEmbeddingProduct, options);
  Require(ratings.options() == options.ratings, "{}: the ratings were drawn with other options",
          kEmbeddingProduct);
  Require(options.width <= kMostDrawn / (options.ratings.users + options.ratings.items),
          "{}: width {} for {} users and {} items is more than {} params", kEmbeddingProduct,
          options.width, options.ratings.users, options.ratings.items, kMostDrawn);
  const auto& [rows, users, items, rank, noise, seed] = options.ratings;
  TaskParts parts{.params = Layout({{"users", Shape{options.width, users}},
                                    {"items", Shape{options.width, items}},
                                    {"user_bias", Shape{1, users}},
                                    {"item_bias", Shape{1, items}}}),
                  .normalizer_maximum = kMostLossOfRatings * (1 + noise * noise)};
  parts.data.batch_size = options.batch_size;
  parts.data.sampling = options.sampling;
  for (const Split split : kSplits) {
    parts.data.splits[static_cast<size_t>(split)] = ratings.range(split);
  }
  return parts;
}

}  // namespace

void RatingsOptions::Visit(FieldVisitor& v) {
  v.Field("rows", &rows, Between(1, 10000000),
          "Ratings to train on; each of the other splits has 2,000.");
  v.Field("users", &users, Between(1, 1000000), "Users, each as likely as the others.");
  v.Field("items", &items, Between(1, 100000),
          "Items. Item i = 0, 1, ... is drawn in proportion to 1 / (i + 1), so most are rare.");
  v.Field("rank", &rank, Between(1, 1000), "Numbers of each user and item that ratings come from.");
  v.Field("noise", &noise, Between(0, 1000),
          "Standard deviation of the noise on the ratings, whose own is 1.");
  v.Field("table_seed", &table_seed, Between(0, 2147483647), "Names the ratings.");
}

Ratings::Ratings(const RatingsOptions& options) : options_(CheckRatings(options)) {
  Require(std::max(options.users, options.items) <= kMostDrawn / options.rank,
          "{}: rank {} times {} users or items is more than {} numbers", kEmbeddingProduct,
          options.rank, std::max(options.users, options.items), kMostDrawn);
  const auto count = static_cast<size_t>(range(Split::kTest).second);
  const Key key = FoldIn(KeyFromSeed(static_cast<uint64_t>(options.table_seed)), kRatingsDraws);
  const std::vector<float> of_users = DrawNormals(FoldIn(key, 0), options.users * options.rank);
  const std::vector<float> of_items = DrawNormals(FoldIn(key, 1), options.items * options.rank);
  std::vector<int32_t> users(count);
  for (size_t row = 0; row < count; ++row) {
    users[row] = Randint(FoldIn(FoldIn(key, 2), row), 0, static_cast<int32_t>(options.users));
  }
  const std::vector<int64_t> items =
      DrawRareValues(FoldIn(key, 3), options.items, static_cast<int64_t>(count));
  const std::vector<float> noise = DrawNormals(FoldIn(key, 4), static_cast<int64_t>(count));
  // Held out ones are drawn first, so that more ratings to train on leave them as they are.
  const size_t held_out = count - static_cast<size_t>(options.rows);
  for (size_t row = 0; row < count; ++row) {
    const size_t drawn = (row + held_out) % count;
    double product = 0;
    for (int64_t k = 0; k < options.rank; ++k) {
      product += double{of_users[users[drawn] * options.rank + k]} *
                 of_items[items[drawn] * options.rank + k];
    }
    rows_.push_back(
        {.user = users[drawn],
         .item = static_cast<int32_t>(items[drawn]),
         .rating = static_cast<float>(product / std::sqrt(static_cast<double>(options.rank)) +
                                      options.noise * noise[drawn])});
  }
}

std::pair<int64_t, int64_t> Ratings::range(Split split) const {
  return RangeOfRows(split, options_.rows, kHeldOut);
}

std::shared_ptr<const Ratings> GetRatings(const RatingsOptions& options,
                                          const TaskResources& resources) {
  return resources.Get<Ratings>(WriteOptions("ratings", CheckRatings(options)).Dump(-1),
                                [&] { return std::make_shared<Ratings>(options); });
}

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
