#include "lopt/tasks/table/table_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/options.h"
#include "lopt/tasks/most_numbers.h"
#include "lopt/tasks/table/drawn_columns.h"

namespace lopt {
namespace {

constexpr char kTable[] = "table";
constexpr int64_t kWaves = 32;
constexpr int64_t kMostWork = int64_t{1} << 36;  // rows times features times outputs
// Sets the keys of tables apart from those of a run with the same seed.
constexpr uint64_t kTableDraws = 0x7ab1e;

// So that what follows is 64-byte aligned.
int64_t WholeCacheLines(int64_t floats) {
  constexpr int64_t kFloats = 16;
  return (floats + kFloats - 1) / kFloats * kFloats;
}

std::vector<float> Uniforms(Key key, int64_t count) {
  std::vector<float> drawn(static_cast<size_t>(count));
  Uniform(key, drawn);
  return drawn;
}

// What the rows have before they become a network's inputs.
struct DrawnColumns {
  int64_t inputs;
  std::vector<float> numbers;                     // [rows, inputs]
  std::vector<std::vector<int64_t>> values = {};  // [categories][rows]
};

DrawnColumns DrawColumns(Key key, const TableOptions& options, int64_t rows) {
  DrawnColumns columns{.inputs = options.inputs,
                       .numbers = DrawNormals(FoldIn(key, 0), rows * options.inputs)};
  for (size_t c = 0; c < options.categories.size(); ++c) {
    columns.values.push_back(
        DrawRareValues(FoldIn(FoldIn(key, 1), c), options.categories[c], rows));
  }
  return columns;
}

// Factors of the inputs.
std::vector<float> DrawUnits(Key key, const TableOptions& options) {
  std::vector<float> units = Uniforms(key, options.inputs);
  for (float& unit : units) {
    unit = static_cast<float>(std::pow(options.unit_range, 2 * double{unit} - 1));
  }
  return units;
}

// One smooth function of a row.
class Waves {
 public:
  Waves(Key key, const TableOptions& options)
      : inputs_(options.inputs),
        complexity_(options.complexity),
        slopes_(DrawNormals(FoldIn(key, 0), options.inputs * kWaves)),
        phases_(Uniforms(FoldIn(key, 1), kWaves)) {
    for (size_t c = 0; c < options.categories.size(); ++c) {
      shifts_.push_back(DrawNormals(FoldIn(FoldIn(key, 2), c), options.categories[c] * kWaves));
    }
  }

  double operator()(const DrawnColumns& table, int64_t row) const {
    std::array<double, kWaves> along = {};
    for (int64_t i = 0; i < inputs_; ++i) {
      const double x = table.numbers[row * inputs_ + i];
      for (int64_t j = 0; j < kWaves; ++j) along[j] += x * slopes_[i * kWaves + j];
    }
    if (inputs_ > 0) {
      for (double& a : along) a /= std::sqrt(static_cast<double>(inputs_));
    }
    for (size_t c = 0; c < shifts_.size(); ++c) {
      const int64_t value = table.values[c][row];
      for (int64_t j = 0; j < kWaves; ++j) along[j] += shifts_[c][value * kWaves + j];
    }
    double sum = 0;
    for (int64_t j = 0; j < kWaves; ++j) {
      sum += std::sin(2 * std::numbers::pi * phases_[j] + complexity_ * along[j]);
    }
    return std::sqrt(2.0 / kWaves) * sum;
  }

 private:
  int64_t inputs_;
  double complexity_;
  std::vector<float> slopes_;               // [inputs, waves]
  std::vector<float> phases_;               // [waves], in turns
  std::vector<std::vector<float>> shifts_;  // [categories][values, waves]
};

// What each of the functions says of every row, [rows, functions], made mean 0 and variance 1 over
// the rows.
std::vector<double> RightAnswers(const std::vector<Waves>& functions, const DrawnColumns& columns,
                                 int64_t rows) {
  const auto count = std::ssize(functions);
  std::vector<double> answers(static_cast<size_t>(rows * count));
  for (int64_t k = 0; k < count; ++k) {
    double sum = 0;
    double squares = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const double y = functions[k](columns, row);
      answers[row * count + k] = y;
      sum += y;
    }
    const double mean = sum / static_cast<double>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      double& y = answers[row * count + k];
      y -= mean;
      squares += y * y;
    }
    // A function is constant where no two rows differ in what it sees.
    const double deviation = std::sqrt(squares / static_cast<double>(rows));
    for (int64_t row = 0; row < rows && deviation > 0; ++row) answers[row * count + k] /= deviation;
  }
  return answers;
}

// Those of the outputs or classes.
std::vector<Waves> DrawFunctions(Key key, const TableOptions& options, int64_t count) {
  std::vector<Waves> functions;
  for (int64_t k = 0; k < count; ++k) {
    functions.emplace_back(FoldIn(key, static_cast<uint64_t>(k)), options);
  }
  return functions;
}

const TableOptions& CheckTable(const TableOptions& options) {
  CheckOptions(kTable, options);
  Require(options.inputs > 0 || !options.categories.empty(),
          "{}: wanted inputs or categories, got none", kTable);
  Require(options.classes != 1, "{}: classes must be 0 for regression or at least 2, got 1",
          kTable);
  Require(options.classes == 0 || options.outputs == 1,
          "{}: outputs are for regression, wanted 1 with classes {}, got {}", kTable,
          options.classes, options.outputs);
  return options;
}

}  // namespace

void TableOptions::Visit(FieldVisitor& v) {
  v.Field("rows", &rows, Between(1, 10000000),
          "Rows to train on; each of the other splits has 2,000.");
  v.Field("inputs", &inputs, Between(0, 100000), "Columns of numbers, which are standard normal.");
  v.Field("categories", &categories, Between(2, 100000),
          "Columns of categories: how many values each has. Value v = 0, 1, ... is drawn in "
          "proportion to 1 / (v + 1), so most are rare.");
  v.Field("outputs", &outputs, Between(1, 10000), "Numbers to be told from a row.");
  v.Field("classes", &classes, Between(0, 256),
          "Classes to be told from a row; 0: its outputs, by the mean square of their errors.");
  v.Field("complexity", &complexity, Between(0.001, 1000),
          "How fast the right answer changes with a column: below .3 it is nearly linear, at 3 it "
          "takes many rows to learn.");
  v.Field("noise", &noise, Between(0, 1000),
          "Standard deviation of the noise on the right answer, whose own is 1.");
  v.Field("unit_range", &unit_range, Between(1, 1e6),
          "Each column of numbers is multiplied by a factor between 1 / this and this.");
  v.Field("table_seed", &table_seed, Between(0, 2147483647), "Names the table.");
}

TableData::TableData(const TableOptions& options)
    : options_(CheckTable(options)),
      features_(
          std::accumulate(options.categories.begin(), options.categories.end(), options.inputs)),
      outputs_(std::max(options.outputs, options.classes)),
      targets_at_(WholeCacheLines(features_)),
      stride_(targets_at_ + (options.classes > 0 ? 0 : WholeCacheLines(outputs_))) {
  const int64_t rows = range(Split::kTest).second;
  Require(rows <= kMostNumbers / (stride_ + outputs_),
          "{}: {} rows, held out ones among them, of {} numbers each are more than {} numbers",
          kTable, rows, stride_ + outputs_, kMostNumbers);
  Require(features_ <= kMostNumbers / kWaves / outputs_,
          "{}: {} features for {} outputs or classes are more than {} pairs", kTable, features_,
          outputs_, kMostNumbers / kWaves);
  Require(rows <= kMostWork / features_ / outputs_,
          "{}: {} rows of {} features for {} outputs or classes are too many to draw", kTable, rows,
          features_, outputs_);
  const Key key = FoldIn(KeyFromSeed(static_cast<uint64_t>(options.table_seed)), kTableDraws);
  const DrawnColumns columns = DrawColumns(key, options, rows);
  const std::vector<double> right =
      RightAnswers(DrawFunctions(FoldIn(key, 2), options, outputs_), columns, rows);
  const std::vector<float> noise = DrawNormals(FoldIn(key, 3), rows * outputs_);
  const std::vector<float> units = DrawUnits(FoldIn(key, 4), options);

  labels_.resize(static_cast<size_t>(rows));
  rows_ = Buffer(static_cast<size_t>(rows * stride_) * sizeof(float));
  auto* out = reinterpret_cast<float*>(rows_.data());
  std::vector<double> answers(static_cast<size_t>(outputs_));
  for (int64_t row = 0; row < rows; ++row, out += stride_) {
    // Held out rows are drawn first, so that tables of more rows do not train on them.
    const int64_t drawn = row < options.rows ? rows - options.rows + row : row - options.rows;
    for (int64_t i = 0; i < options.inputs; ++i) {
      out[i] = units[i] * columns.numbers[drawn * options.inputs + i];
    }
    int64_t first = options.inputs;
    for (size_t c = 0; c < options.categories.size(); ++c) {
      out[first + columns.values[c][drawn]] = 1;
      first += options.categories[c];
    }
    for (int64_t k = 0; k < outputs_; ++k) {
      const int64_t at = drawn * outputs_ + k;
      answers[k] = right[at] + options.noise * noise[at];
    }
    if (options.classes > 0) {
      labels_[row] = static_cast<uint8_t>(std::ranges::max_element(answers) - answers.begin());
    } else {
      std::ranges::transform(answers, out + targets_at_,
                             [](double y) { return static_cast<float>(y); });
    }
  }
}

std::pair<int64_t, int64_t> TableData::range(Split split) const {
  return RangeOfRows(split, options_.rows, kHeldOut);
}

std::shared_ptr<const TableData> GetTable(const TableOptions& options,
                                          const TaskResources& resources) {
  return resources.Get<TableData>(WriteOptions(kTable, CheckTable(options)).Dump(-1),
                                  [&] { return std::make_shared<TableData>(options); });
}

}  // namespace lopt
