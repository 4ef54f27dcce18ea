#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lopt/base/buffer.h"
#include "lopt/base/fields.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// A table that is drawn: what its columns are and how they depend on each other.
struct TableOptions {
  int64_t rows = 1000;                   // of the split train
  int64_t inputs = 8;                    // columns of numbers
  std::vector<int64_t> categories = {};  // columns of categories: how many values each has
  int64_t outputs = 1;                   // numbers to be told from a row; 1 where there are classes
  int64_t classes = 0;                   // 0: regression
  double complexity = 1;
  double noise = 0;
  double unit_range = 1;
  int64_t table_seed = 0;
  void Visit(FieldVisitor& v);
  bool operator==(const TableOptions&) const = default;
};

// The rows of a drawn table. Immutable; a function of the options. Held-out rows are drawn first,
// then those to train on: tables that differ in their number of rows alone have the same ones held
// out, and the smaller one trains on the first of the larger one's. Their inputs are equal; their
// targets differ by about a hundredth, as mean and deviation (below) are those of each table, and
// a few labels differ.
//
// An input x_i is standard normal. The values v = 0, 1, ... of a category come with probabilities
// in proportion to 1 / (v + 1). With w, e ~ N(0, 1), phases p uniform on [0, 2 pi) and v_c the
// value of category c in the row, each output, or each class, has a smooth function of the row,
//   y = sqrt(2 / 32) sum over j < 32 of sin(p_j + complexity (w_j . x / sqrt(inputs) +
//                                                             sum over c of e_{c, v_c, j})),
// random Fourier features (Rahimi and Recht 2007), less its mean over all rows of the table and
// divided by its standard deviation over them. A target of regression is y + noise N(0, 1); the
// class of a row is the one with the largest y + noise N(0, 1). The network then sees x_i in units
// of its own, times unit_range^u with u uniform on [-1, 1), and each category as one number for
// each of its values, 1 for the row's and 0 for the others.
class TableData {
 public:
  // Rows of each split but train.
  static constexpr int64_t kHeldOut = 2000;

  // Throws Error as CheckOptions does, and unless there are columns, no classes beside several
  // outputs, at most 2^28 numbers in the table and at most 2^23 features times outputs.
  explicit TableData(const TableOptions& options);

  const TableOptions& options() const { return options_; }
  // What a network sees of a row: the inputs, then a number for each value of each category.
  int64_t features() const { return features_; }
  // Numbers that a network has to give: outputs or, one for each, classes.
  int64_t outputs() const { return outputs_; }
  int64_t classes() const { return options_.classes; }  // 0: regression
  // Row i begins at rows()[i * stride()], 64-byte aligned: its features, zeros up to targets_at(),
  // its targets where there are no classes, and zeros.
  const float* rows() const { return reinterpret_cast<const float*>(rows_.data()); }
  int64_t stride() const { return stride_; }
  int64_t targets_at() const { return targets_at_; }
  // A row's class; 0 where there are none.
  const uint8_t* labels() const { return labels_.data(); }
  // Rows [first, last) of a split.
  std::pair<int64_t, int64_t> range(Split split) const;

 private:
  TableOptions options_;
  int64_t features_;
  int64_t outputs_;
  int64_t targets_at_;
  int64_t stride_;
  std::vector<uint8_t> labels_;
  Buffer rows_;
};

// The table of such options, made once a run. Throws Error as TableData does.
std::shared_ptr<const TableData> GetTable(const TableOptions& options,
                                          const TaskResources& resources);

}  // namespace lopt
