#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// Ratings that are drawn: who rates what, and how they come about.
struct RatingsOptions {
  int64_t rows = 10000;  // of the split train
  int64_t users = 500;
  int64_t items = 400;
  int64_t rank = 4;
  double noise = 0.3;
  int64_t table_seed = 0;
  void Visit(FieldVisitor& v);
  bool operator==(const RatingsOptions&) const = default;
};

struct Rating {
  int32_t user = 0;
  int32_t item = 0;
  float rating = 0;
};

// Drawn ratings. Immutable; a function of the options. Users u are uniform, and items i = 0, 1, ...
// come in proportion to 1 / (i + 1), so most are rare. With vectors a_u and b_i of `rank` standard
// normal numbers, a rating is a_u . b_i / sqrt(rank) + noise N(0, 1), whose mean is 0 and whose
// variance is 1 + noise^2. Those of the split train are drawn last, so that more of them leave the
// others as they are.
class Ratings {
 public:
  // Rows of each split but train.
  static constexpr int64_t kHeldOut = 2000;

  // Throws Error as CheckOptions does and if rank times users or items exceeds 2^28.
  explicit Ratings(const RatingsOptions& options);

  const RatingsOptions& options() const { return options_; }
  // Those of the split train, then those of the others in the order of kSplits.
  std::span<const Rating> rows() const { return rows_; }
  std::pair<int64_t, int64_t> range(Split split) const;

 private:
  RatingsOptions options_;
  std::vector<Rating> rows_;
};

// The ratings of such options, made once a run. Throws Error as Ratings does.
std::shared_ptr<const Ratings> GetRatings(const RatingsOptions& options,
                                          const TaskResources& resources);

}  // namespace lopt
