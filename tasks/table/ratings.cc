#include "lopt/tasks/table/ratings.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/options.h"
#include "lopt/tasks/most_numbers.h"
#include "lopt/tasks/table/drawn_columns.h"

namespace lopt {
namespace {

// Who it is that has ratings, in configs and messages.
constexpr char kRatings[] = "EmbeddingProduct";
// Sets the keys of ratings apart from those of a run with the same seed.
constexpr uint64_t kRatingsDraws = 0x4a71;

const RatingsOptions& CheckRatings(const RatingsOptions& options) {
  CheckOptions(kRatings, options);
  return options;
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
  Require(std::max(options.users, options.items) <= kMostNumbers / options.rank,
          "{}: rank {} times {} users or items is more than {} numbers", kRatings, options.rank,
          std::max(options.users, options.items), kMostNumbers);
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
  rows_.reserve(count);
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

}  // namespace lopt
