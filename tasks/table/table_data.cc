#include "lopt/tasks/table/table_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

constexpr int64_t kWaves = 32;
constexpr int64_t kFloatsPerCacheLine = 16;
constexpr int64_t kMostNumbers = int64_t{1} << 28;

int64_t WholeLines(int64_t floats) {
  return (floats + kFloatsPerCacheLine - 1) / kFloatsPerCacheLine * kFloatsPerCacheLine;
}

std::vector<float> Normals(Key key, int64_t count) {
  std::vector<float> drawn(static_cast<size_t>(count));
  Normal(key, drawn);
  return drawn;
}

std::vector<float> Uniforms(Key key, int64_t count) {
  std::vector<float> drawn(static_cast<size_t>(count));
  Uniform(key, drawn);
  return drawn;
}

// A category's value in each row.
std::vector<int64_t> DrawValues(Key key, int64_t values, int64_t rows) {
  std::vector<double> ends;
  for (int64_t v = 0; v < values; ++v) {
    ends.push_back((v == 0 ? 0.0 : ends.back()) + 1 / static_cast<double>(v + 1));
  }
  std::vector<int64_t> drawn;
  for (const float u : Uniforms(key, rows)) {
    const auto at = std::ranges::upper_bound(ends, double{u} * ends.back());
    drawn.push_back(std::min<int64_t>(at - ends.begin(), values - 1));
  }
  return drawn;
}

// What the rows have before they become a network's inputs.
struct DrawnColumns {
  int64_t inputs;
  std::vector<float> numbers;                     // [rows, inputs]
  std::vector<std::vector<int64_t>> values = {};  // [categories][rows]
};

// One smooth function of a row.
class Waves {
 public:
  Waves(Key key, const TableOptions& options)
      : inputs_(options.inputs),
        complexity_(options.complexity),
        slopes_(Normals(FoldIn(key, 0), options.inputs * kWaves)),
        phases_(Uniforms(FoldIn(key, 1), kWaves)) {
    for (size_t c = 0; c < options.categories.size(); ++c) {
      shifts_.push_back(Normals(FoldIn(FoldIn(key, 2), c), options.categories[c] * kWaves));
    }
  }

  double operator()(const DrawnColumns& table, int64_t row) const {
    double sum = 0;
    for (int64_t j = 0; j < kWaves; ++j) {
      double along = 0;
      for (int64_t i = 0; i < inputs_; ++i) {
        along += double{table.numbers[row * inputs_ + i]} * slopes_[i * kWaves + j];
      }
      if (inputs_ > 0) along /= std::sqrt(static_cast<double>(inputs_));
      for (size_t c = 0; c < shifts_.size(); ++c) {
        along += shifts_[c][table.values[c][row] * kWaves + j];
      }
      sum += std::sin(2 * std::numbers::pi * phases_[j] + complexity_ * along);
    }
    return std::sqrt(2.0 / kWaves) * sum;
  }

 private:
  int64_t inputs_;
  double complexity_;
  std::vector<float> slopes_;               // [inputs, waves]
  std::vector<float> phases_;               // [waves]
  std::vector<std::vector<float>> shifts_;  // [categories][values, waves]
};

const TableOptions& Checked(const TableOptions& options) {
  CheckOptions("table", options);
  Require(options.inputs > 0 || !options.categories.empty(),
          "table: wanted inputs or categories, got none");
  Require(options.classes != 1, "table: classes must be 0 for regression or at least 2, got 1");
  Require(options.classes == 0 || options.outputs == 1,
          "table: outputs are for regression, wanted 1 with classes {}, got {}", options.classes,
          options.outputs);
  return options;
}

}  // namespace

void TableOptions::Visit(FieldVisitor& v) {
  v.Field("rows", &rows, Between(1, 10000000), "Rows to train on; held out are 2,000 a split.");
  v.Field("inputs", &inputs, Between(0, 100000), "Columns of numbers, which are standard normal.");
  v.Field("categories", &categories, Between(2, 100000),
          "Columns of categories: how many values each has. Value v is drawn in proportion to "
          "1 / (v + 1), so most are rare.");
  v.Field("outputs", &outputs, Between(1, 10000), "Numbers to be told from a row.");
  v.Field("classes", &classes, Between(0, 256),
          "Classes to be told from a row; 0: its outputs, by the mean square of their errors.");
  v.Field("complexity", &complexity, Above(0),
          "How fast the right answer changes with a column: below .3 it is nearly linear, at 3 it "
          "takes many rows to learn.");
  v.Field("noise", &noise, Between(0, 1000),
          "Standard deviation of the noise on the right answer, which has standard deviation 1.");
  v.Field("unit_range", &unit_range, Between(1, 1e6),
          "Each column of numbers is multiplied by a factor between 1 / this and this.");
  v.Field("table_seed", &table_seed, Between(0, 2147483647), "Names the table.");
}

TableData::TableData(const TableOptions& options)
    : features_(std::accumulate(Checked(options).categories.begin(), options.categories.end(),
                                options.inputs)),
      outputs_(std::max(options.outputs, options.classes)),
      classes_(options.classes),
      targets_at_(WholeLines(features_)),
      stride_(targets_at_ + (classes_ > 0 ? 0 : WholeLines(outputs_))) {
  int64_t rows = options.rows;
  splits_[static_cast<size_t>(Split::kTrain)] = {0, rows};
  for (const Split split : {Split::kInnerValid, Split::kOuterValid, Split::kTest}) {
    splits_[static_cast<size_t>(split)] = {rows, rows + kHeldOut};
    rows += kHeldOut;
  }
  Require(rows <= kMostNumbers / stride_, "table: {} rows of {} numbers are more than {} numbers",
          rows, stride_, kMostNumbers);
  const Key key = KeyFromSeed(static_cast<uint64_t>(options.table_seed));
  const DrawnColumns drawn = [&] {
    DrawnColumns columns{.inputs = options.inputs,
                         .numbers = Normals(FoldIn(key, 0), rows * options.inputs)};
    for (size_t c = 0; c < options.categories.size(); ++c) {
      columns.values.push_back(DrawValues(FoldIn(FoldIn(key, 1), c), options.categories[c], rows));
    }
    return columns;
  }();
  std::vector<Waves> functions;
  for (int64_t k = 0; k < outputs_; ++k) {
    functions.emplace_back(FoldIn(FoldIn(key, 2), static_cast<uint64_t>(k)), options);
  }
  const std::vector<float> noise = Normals(FoldIn(key, 3), rows * outputs_);
  std::vector<float> units = Uniforms(FoldIn(key, 4), options.inputs);
  for (float& unit : units) {
    unit = static_cast<float>(std::pow(options.unit_range, 2 * double{unit} - 1));
  }

  labels_.resize(static_cast<size_t>(rows));
  rows_.reset(new (std::align_val_t{64}) float[static_cast<size_t>(rows * stride_)]());
  std::vector<double> answers(static_cast<size_t>(outputs_));
  for (int64_t row = 0; row < rows; ++row) {
    float* out = rows_.get() + row * stride_;
    for (int64_t i = 0; i < options.inputs; ++i) {
      out[i] = units[i] * drawn.numbers[row * options.inputs + i];
    }
    int64_t first = options.inputs;
    for (size_t c = 0; c < options.categories.size(); ++c) {
      out[first + drawn.values[c][row]] = 1;
      first += options.categories[c];
    }
    for (int64_t k = 0; k < outputs_; ++k) {
      answers[k] = functions[k](drawn, row) + options.noise * noise[row * outputs_ + k];
    }
    if (classes_ > 0) {
      labels_[row] = static_cast<uint8_t>(std::ranges::max_element(answers) - answers.begin());
    } else {
      std::ranges::transform(answers, out + targets_at_,
                             [](double y) { return static_cast<float>(y); });
    }
  }
}

std::shared_ptr<const TableData> GetTable(const TableOptions& options,
                                          const TaskResources& resources) {
  const std::string name =
      fmt::format("table {} {} {} {} {} {} {} {} {}", options.rows, options.inputs,
                  ToString(options.categories), options.outputs, options.classes,
                  options.complexity, options.noise, options.unit_range, options.table_seed);
  return resources.Get<TableData>(name, [&] { return std::make_shared<TableData>(options); });
}

}  // namespace lopt
