#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/tasks/table/ratings.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

struct EmbeddingProductOptions {
  RatingsOptions ratings = {};
  int64_t batch_size = 128;
  Sampling sampling = Sampling::kReplacement;
  int64_t width = 8;
  double init_std = 0.1;
  void Visit(FieldVisitor& v);
};

// Matrix factorization, as recommender systems have it (Koren, Bell and Volinsky 2009): a user's
// rating of an item is predicted as
//   users_u . items_i + user_bias_u + item_bias_i,
// params "users" [width, users], "items" [width, items], "user_bias" [1, users] and "item_bias"
// [1, items], initially init_std N(0, 1). lopt's optimizers for PyTorch see the weights [users,
// width] of a torch.nn.Embedding in the same shape. The loss is the mean of (rating -
// prediction)^2. Meta-losses are cut to 100 (1 + noise^2), where 1 + noise^2 is the loss of the
// prediction 0. Only the columns of a batch's users and items have gradients, and small embeddings
// have small ones. No aux, no config.
class EmbeddingProduct : public TaskFamily {
 public:
  // Throws Error as CheckOptions does, if the ratings have other options, and above 2^28 params.
  EmbeddingProduct(const EmbeddingProductOptions& options, std::shared_ptr<const Ratings> ratings);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  std::shared_ptr<const Ratings> ratings_;
  int64_t width_;
  float init_std_;
};

}  // namespace lopt
