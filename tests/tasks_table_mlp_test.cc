#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/tasks/image/image_mlp_kernel.h"
#include "lopt/tasks/table/table_mlp.h"
#include "tests/adam_training.h"
#include "tests/error_of.h"
#include "tests/image_rows.h"
#include "tests/squared_error_check.h"

namespace lopt {
namespace {

constexpr int64_t kHeldOutRows = 3 * TableData::kHeldOut;

std::shared_ptr<const TableData> Table(const TableOptions& options) {
  return GetTable(options, TaskResources(""));
}

TableMlp Task(const TableMlpOptions& options) { return {options, Table(options.table)}; }

const float* RowOfTable(const TableData& table, int64_t row) {
  return table.rows() + row * table.stride();
}

// Moments of f(row) over all rows of a table.
struct MomentsOfRows {
  double mean = 0;
  double square = 0;
  double variance() const { return square - mean * mean; }
};

template <class OfRow>
MomentsOfRows Moments(int64_t rows, const OfRow& f) {
  MomentsOfRows moments;
  for (int64_t row = 0; row < rows; ++row) {
    const double x = f(row);
    moments.mean += x / static_cast<double>(rows);
    moments.square += x * x / static_cast<double>(rows);
  }
  return moments;
}

// Random features, targets behind them, weights and running statistics.
struct RegressionProblem {
  MlpShape shape;
  std::vector<float> params;
  std::vector<float> statistics;
  ImageRows rows;
  int64_t targets_at;

  MlpEvaluation Evaluation(Activation activation, bool train) const {
    return {.activation = activation,
            .params = params,
            .train = train,
            .batch = rows.batch(),
            .targets = {.at = targets_at, .sigmoid = false}};
  }
};

RegressionProblem MakeRegression(const std::vector<int64_t>& sizes, Norm norm, int64_t examples) {
  MlpShape shape{.sizes = sizes, .norm = norm};
  const Key key = FoldIn(KeyFromSeed(5), static_cast<uint64_t>(examples));
  const int64_t targets_at = (sizes[0] + 15) / 16 * 16;
  const int64_t width = targets_at + sizes.back();
  std::vector<float> numbers(examples * width);
  Normal(FoldIn(key, 0), numbers);
  for (int64_t row = 0; row < examples; ++row) {
    std::fill(numbers.begin() + row * width + sizes[0], numbers.begin() + row * width + targets_at,
              0.0F);
  }
  std::vector<float> params(shape.params());
  Normal(FoldIn(key, 1), params);
  for (float& x : params) x *= 0.4F;
  std::vector<float> statistics;
  if (norm == Norm::kBatch) {
    for (size_t l = 1; l + 1 < sizes.size(); ++l) {
      std::vector<float> more(2 * sizes[l]);
      Uniform(FoldIn(FoldIn(key, 2), l), more);
      // A variance near 0 would make much of roundings.
      for (const float u : more) statistics.push_back(0.5F + u);
    }
  }
  return {shape, params, statistics, ImageRows(width, numbers, std::vector<uint8_t>(examples)),
          targets_at};
}

TEST_CASE("The squared error of targets agrees with the plain loops for layers of any size") {
  for (const Named<Activation>& activation : kActivations) {
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
             {8, 32, 1}, {3, 5, 2}, {16, 33, 20, 19}, {40, 3}, {1, 1, 1}}) {
      for (const int64_t examples : {1, 19, 300}) {
        CAPTURE(activation.name);
        CAPTURE(ToString(sizes));
        CAPTURE(examples);
        const RegressionProblem problem = MakeRegression(sizes, Norm::kNone, examples);
        // A linear output may be close to its target: its error then has a digit less.
        CheckSquaredError(problem.shape, problem.Evaluation(activation.value, true), {}, 5e-6F);
      }
    }
  }
}

TEST_CASE("The squared error of targets agrees with the plain loops with norms") {
  for (const Norm norm : {Norm::kLayer, Norm::kBatch}) {
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{8, 32, 1}, {25, 40, 20, 17}, {16, 4}}) {
      for (const int64_t examples : {5, 33, 300, 600}) {
        for (const bool train : {true, false}) {
          CAPTURE(ToString(sizes));
          CAPTURE(examples);
          CAPTURE(train);
          const RegressionProblem problem = MakeRegression(sizes, norm, examples);
          CheckSquaredError(problem.shape, problem.Evaluation(Activation::kTanh, train),
                            problem.statistics, 5e-6F);
        }
      }
    }
  }
}

struct EvaluatedTable {
  float loss = 0;
  std::vector<float> gradient;
  std::vector<float> aux;
};

EvaluatedTable EvaluateTable(const TableMlp& task, const std::vector<float>& params,
                             const std::vector<int32_t>& examples) {
  EvaluatedTable out{.gradient = std::vector<float>(params.size()),
                     .aux = std::vector<float>(task.aux_layout().size())};
  Workspace scratch;
  task.Evaluate({.params = params,
                 .examples = examples,
                 .losses = {&out.loss, 1},
                 .gradients = out.gradient,
                 .aux = out.aux},
                scratch);
  return out;
}

TEST_CASE("Regression with params of zero has the mean square of the targets") {
  const TableMlpOptions options{.table = {.rows = 50, .inputs = 5, .outputs = 3}, .hidden = {4}};
  const TableMlp task = Task(options);
  CHECK(task.params_layout().size() == 6 * 4 + 5 * 3);
  CHECK(task.parts().classes == 0);
  CHECK(task.aux_layout().size() == 0);
  const std::vector<int32_t> examples = {3, 1, 4, 1, 6049};
  const EvaluatedTable out =
      EvaluateTable(task, std::vector<float>(task.params_layout().size()), examples);
  const std::shared_ptr<const TableData> table = Table(options.table);
  double square = 0;
  std::vector<double> means(3);
  for (const int32_t example : examples) {
    const float* targets = RowOfTable(*table, example) + table->targets_at();
    for (size_t k = 0; k < 3; ++k) {
      square += double{targets[k]} * targets[k] / 15;
      means[k] += double{targets[k]} / 5;
    }
  }
  CHECK(out.loss == doctest::Approx(square).epsilon(1e-6));
  const size_t last_bias = out.gradient.size() - 3;
  for (size_t k = 0; k < 3; ++k) {
    CHECK(out.gradient[last_bias + k] == doctest::Approx(-2 * means[k] / 3).epsilon(1e-5));
  }
  CHECK(std::all_of(out.gradient.begin(), out.gradient.begin() + static_cast<int64_t>(last_bias),
                    [](float g) { return g == 0; }));
}

TEST_CASE("Classes with params of zero have the loss ln K") {
  const TableMlpOptions options{.table = {.rows = 50, .classes = 4}, .hidden = {}};
  const TableMlp task = Task(options);
  CHECK(task.parts().classes == 4);
  CHECK(*task.NormalizerMaximum() == doctest::Approx(100 * std::log(4)));
  std::vector<int32_t> examples(50);
  std::iota(examples.begin(), examples.end(), 0);
  const EvaluatedTable out =
      EvaluateTable(task, std::vector<float>(task.params_layout().size()), examples);
  CHECK(out.loss == doctest::Approx(std::log(4)).epsilon(1e-6));
  std::vector<float> shares(4);
  const std::shared_ptr<const TableData> table = Table(options.table);
  for (const int32_t example : examples) shares[table->labels()[example]] += 1.0F / 50;
  CHECK(out.aux.at(0) == doctest::Approx(shares[0]));
  for (size_t k = 0; k < 4; ++k) {
    CHECK(out.gradient[8 * 4 + k] == doctest::Approx(0.25 - shares[k]).epsilon(1e-5));
  }
}

TEST_CASE("Meta-losses of regression are cut to 100 times the variance of targets") {
  CHECK(*Task({}).NormalizerMaximum() == 100);
  CHECK(*Task({.table = {.noise = 2}}).NormalizerMaximum() == 500);
}

TEST_CASE("Right answers have mean 0 and variance 1 over the rows of a table") {
  for (const double complexity : {0.001, 1.0, 30.0}) {
    CAPTURE(complexity);
    const TableOptions options{
        .rows = 77, .inputs = 2, .categories = {3}, .outputs = 4, .complexity = complexity};
    const TableData table(options);
    for (int64_t k = 0; k < 4; ++k) {
      const MomentsOfRows of = Moments(77 + kHeldOutRows, [&](int64_t row) {
        return RowOfTable(table, row)[table.targets_at() + k];
      });
      // Targets are rounded to float32.
      CHECK(std::abs(of.mean) < 1e-7);
      CHECK(of.variance() == doctest::Approx(1).epsilon(1e-6));
    }
  }
}

TEST_CASE("How much of the right answers is linear in the inputs is known") {
  constexpr int64_t kFunctions = 100;  // outputs, each with a function of its own
  constexpr int64_t kInputs = 8;
  constexpr int64_t kRows = 100 + kHeldOutRows;
  for (const double complexity : {0.1, 1.0, 3.0}) {
    CAPTURE(complexity);
    const TableData table(
        {.rows = 100, .inputs = kInputs, .outputs = kFunctions, .complexity = complexity});
    double share = 0;  // sum of squared correlations with the inputs, which are independent
    for (int64_t k = 0; k < kFunctions; ++k) {
      for (int64_t i = 0; i < kInputs; ++i) {
        const double correlation = Moments(kRows, [&](int64_t row) {
                                     const float* of = RowOfTable(table, row);
                                     return double{of[i]} * of[table.targets_at() + k];
                                   }).mean;
        share += correlation * correlation / kFunctions;
      }
    }
    // A wave of slope s has s^2 exp(-s^2) / 2 of its variance (1 - exp(-s^2)) / 2 along its slope;
    // kInputs s^2 / complexity^2 is chi-squared with kInputs degrees of freedom.
    const double grow = 1 + 2 * complexity * complexity / kInputs;
    const double wanted = complexity * complexity * std::pow(grow, -kInputs / 2.0 - 1) /
                          (1 - std::pow(grow, -kInputs / 2.0));
    // Roundings of correlations over rows; and four standard deviations of a mean over functions,
    // each of which is at most .2 from the mean.
    CHECK(std::abs(share - wanted) < 0.01 + 4 * 0.2 / std::sqrt(kFunctions));
  }
}

TEST_CASE("Inputs are standard normal in units of their own, which the answers do not feel") {
  const TableOptions plain{.rows = 20000, .inputs = 6};
  TableOptions scaled = plain;
  scaled.unit_range = 50;
  const TableData a(plain);
  const TableData b(scaled);
  const int64_t rows = 20000 + kHeldOutRows;
  std::vector<float> factors;
  for (int64_t i = 0; i < 6; ++i) {
    const MomentsOfRows of = Moments(rows, [&](int64_t row) { return RowOfTable(a, row)[i]; });
    CHECK(std::abs(of.mean) < 4 / std::sqrt(rows));
    CHECK(std::abs(of.variance() - 1) < 4 * std::sqrt(2.0 / static_cast<double>(rows)));
    factors.push_back(RowOfTable(b, 0)[i] / RowOfTable(a, 0)[i]);
    CHECK(factors.back() >= 0.02F);
    CHECK(factors.back() < 50);
    for (int64_t row = 0; row < rows; row += 7) {
      REQUIRE(RowOfTable(b, row)[i] ==
              doctest::Approx(factors.back() * RowOfTable(a, row)[i]).epsilon(1e-6));
    }
  }
  CHECK(std::ranges::max(factors) > 3 * std::ranges::min(factors));
  for (int64_t row = 0; row < rows; ++row) {
    REQUIRE(RowOfTable(a, row)[a.targets_at()] == RowOfTable(b, row)[b.targets_at()]);
  }
}

TEST_CASE("Noise adds its variance to the right answers and changes nothing else") {
  const TableOptions quiet{.rows = 1000, .inputs = 3, .categories = {2}, .outputs = 4};
  TableOptions noisy = quiet;
  noisy.noise = 0.5;
  const TableData a(quiet);
  const TableData b(noisy);
  constexpr int64_t kRows = 1000 + kHeldOutRows;
  const MomentsOfRows of = Moments(4 * kRows, [&](int64_t i) {
    return double{RowOfTable(b, i / 4)[b.targets_at() + i % 4]} -
           RowOfTable(a, i / 4)[a.targets_at() + i % 4];
  });
  CHECK(std::abs(of.mean) < 4 * 0.5 / std::sqrt(4 * kRows));
  CHECK(std::abs(of.variance() - 0.25) < 4 * 0.25 * std::sqrt(2.0 / (4 * kRows)));
  for (int64_t row = 0; row < kRows; ++row) {
    REQUIRE(std::equal(RowOfTable(a, row), RowOfTable(a, row) + 5, RowOfTable(b, row)));
  }
}

TEST_CASE("A category is one number for each value, drawn in proportion to 1 / (v + 1)") {
  const TableData table({.rows = 20000, .inputs = 0, .categories = {5, 2}});
  constexpr double kRows = 20000 + kHeldOutRows;
  CHECK(table.features() == 7);
  std::vector<double> counts(7);
  std::vector<float> answers(10, NAN);
  for (int64_t row = 0; row < 20000 + kHeldOutRows; ++row) {
    const float* numbers = RowOfTable(table, row);
    const auto value = std::max_element(numbers, numbers + 5) - numbers;
    const auto other = std::max_element(numbers + 5, numbers + 7) - numbers;
    for (int64_t i = 0; i < 16; ++i) {
      REQUIRE(numbers[i] == (i == value || i == other ? 1.0F : 0.0F));
    }
    counts[value] += 1;
    counts[other] += 1;
    // The right answer is a function of the values.
    float& answer = answers[5 * (other - 5) + value];
    if (std::isnan(answer)) answer = numbers[table.targets_at()];
    REQUIRE(numbers[table.targets_at()] == answer);
  }
  const auto check = [&](double count, double share) {
    CHECK(std::abs(count / kRows - share) < 4 * std::sqrt(share * (1 - share) / kRows));
  };
  constexpr double kAll = 1 + 1 / 2.0 + 1 / 3.0 + 1 / 4.0 + 1 / 5.0;
  for (int v = 0; v < 5; ++v) check(counts[v], 1 / (v + 1.0) / kAll);
  check(counts[5], 2 / 3.0);
  check(counts[6], 1 / 3.0);
  std::ranges::sort(answers);
  CHECK(std::ranges::adjacent_find(answers) == answers.end());
}

TEST_CASE("The class of a row is the largest of as many answers, noise and all") {
  TableOptions options{.rows = 300, .outputs = 5, .noise = 0.7};
  const TableData answers(options);
  options.outputs = 1;
  options.classes = 5;
  const TableData classes(options);
  CHECK(classes.outputs() == 5);
  CHECK(classes.stride() == classes.targets_at());
  std::vector<int64_t> counts(5);
  for (int64_t row = 0; row < 300 + kHeldOutRows; ++row) {
    const float* targets = RowOfTable(answers, row) + answers.targets_at();
    REQUIRE(classes.labels()[row] == std::max_element(targets, targets + 5) - targets);
    ++counts[classes.labels()[row]];
  }
  CHECK(std::ranges::min(counts) > 0);
}

TEST_CASE("Splits follow each other; those held out have 2,000 rows each") {
  const TableMlp task =
      Task({.table = {.rows = 123}, .batch_size = 7, .sampling = Sampling::kEpoch});
  using Range = std::pair<int64_t, int64_t>;
  CHECK(task.ExampleRange(Split::kTrain) == Range(0, 123));
  CHECK(task.ExampleRange(Split::kInnerValid) == Range(123, 2123));
  CHECK(task.ExampleRange(Split::kOuterValid) == Range(2123, 4123));
  CHECK(task.ExampleRange(Split::kTest) == Range(4123, 6123));
  CHECK(task.parts().data.batch_size == 7);
  CHECK(task.parts().data.sampling == Sampling::kEpoch);
}

TEST_CASE("A table of more rows trains on none that a smaller one holds out") {
  const TableData few({.rows = 50, .noise = 0.5});
  const TableData many({.rows = 9000, .noise = 0.5});
  const auto inputs = [](const TableData& table, int64_t row) {
    const float* first = table.rows() + row * table.stride();
    return std::vector<float>(first, first + table.features());
  };
  const int64_t held_out = 3 * TableData::kHeldOut;
  for (const int64_t row : {int64_t{0}, int64_t{1999}, held_out - 1}) {
    CHECK(inputs(few, 50 + row) == inputs(many, 9000 + row));
  }
  for (const int64_t row : {0, 1, 49}) CHECK(inputs(few, row) == inputs(many, row));
  std::set<std::vector<float>> trained_on;
  for (int64_t row = 0; row < 9000; ++row) trained_on.insert(inputs(many, row));
  CHECK(trained_on.size() == 9000);
  for (int64_t row = 0; row < held_out; ++row) CHECK(!trained_on.contains(inputs(few, 50 + row)));
}

TEST_CASE("Tables of equal options are the same, once a run; those of other seeds are not") {
  const TableOptions options{.rows = 20, .inputs = 2, .categories = {3}, .table_seed = 4};
  const TaskResources resources("");
  const std::shared_ptr<const TableData> table = GetTable(options, resources);
  CHECK(GetTable(options, resources) == table);
  const auto numbers = [](const TableData& of) {
    return std::vector<float>(of.rows(), of.rows() + (20 + kHeldOutRows) * of.stride());
  };
  CHECK(numbers(*Table(options)) == numbers(*table));
  TableOptions other = options;
  other.table_seed = 5;
  CHECK(GetTable(other, resources) != table);
  CHECK(numbers(*GetTable(other, resources)) != numbers(*table));
  other = options;
  other.complexity = 1.0000000000000002;  // the next number
  CHECK(GetTable(other, resources) != table);
}

TEST_CASE("Batch norm has running statistics, which start at mean 0 and variance 1") {
  const TableMlp task = Task({.hidden = {5, 3}, .norm = Norm::kBatch});
  CHECK(task.params_layout().size() == 9 * 5 + 6 * 3 + 4 * 1 + 2 * 8);
  std::vector<float> params(task.params_layout().size());
  std::vector<float> state(task.model_state_layout().size(), 7);
  task.Init({}, KeyFromSeed(1), params, state);
  const LayoutEntry& variance = task.model_state_layout().Find("mlp/batch_norm_1/variance");
  CHECK(state[variance.offset] == 1);
  CHECK(std::accumulate(state.begin(), state.end(), 0.0F) == 8);
}

TEST_CASE("init_scale multiplies initial weights and nothing else") {
  const auto start = [](double init_scale) {
    const TableMlp task = Task({.hidden = {5}, .norm = Norm::kLayer, .init_scale = init_scale});
    std::vector<float> params(task.params_layout().size());
    task.Init({}, KeyFromSeed(1), params, {});
    return std::pair(params, task.params_layout());
  };
  const auto [plain, layout] = start(1);
  std::vector<float> small = start(0.125).first;
  CHECK(small != plain);
  for (const char* const name : {"mlp/linear_0/w", "mlp/linear_1/w"}) {
    const LayoutEntry& entry = layout.Find(name);
    for (int64_t i = 0; i < entry.size; ++i) small[entry.offset + i] *= 8;
  }
  CHECK(small == plain);
}

TEST_CASE("Adam takes regression to the noise, and without noise far below") {
  const TableMlp noisy = Task({.table = {.rows = 20000, .complexity = 0.3, .noise = 0.3}});
  AdamTraining to_noise(noisy, 0.01, KeyFromSeed(1));
  to_noise.Train(0, 2000, 2500);
  const double at_noise = to_noise.Train(2000, 2500, 2500);
  CHECK(at_noise > 0.95 * 0.09);
  CHECK(at_noise < 1.1 * 0.09);

  const TableMlp exact =
      Task({.table = {.rows = 20000, .complexity = 0.3}, .activation = Activation::kTanh});
  AdamTraining training(exact, 0.01, KeyFromSeed(1));
  training.Train(0, 4800, 5000);
  CHECK(training.Train(4800, 5000, 5000) < 1e-3);
}

TEST_CASE("Adam learns the classes of a table with categories") {
  const TableMlp task = Task(
      {.table = {
           .rows = 20000, .inputs = 4, .categories = {3, 6}, .classes = 4, .complexity = 0.5}});
  AdamTraining training(task, 0.01, KeyFromSeed(1));
  CHECK(training.Accuracy(Split::kTest) < 0.6);
  training.Train(0, 2000, 2000);
  CHECK(training.Accuracy(Split::kTest) > 0.9);
}

TEST_CASE("Wrong options of tables are errors") {
  const auto error = [](const TableMlpOptions& options) { return ErrorOf([&] { Task(options); }); };
  CHECK(error({.table = {.inputs = 0}}) == "table: wanted inputs or categories, got none");
  CHECK(error({.table = {.classes = 1}}) ==
        "table: classes must be 0 for regression or at least 2, got 1");
  CHECK(error({.table = {.outputs = 2, .classes = 3}}) ==
        "table: outputs are for regression, wanted 1 with classes 3, got 2");
  CHECK(error({.table = {.rows = 0}}) == "table: rows must be in [1, 10000000], got 0");
  CHECK(error({.table = {.categories = {3, 1}}}) ==
        "table: categories[1] must be in [2, 100000], got 1");
  CHECK(error({.table = {.complexity = 0}}) == "table: complexity must be in [0.001, 1000], got 0");
  CHECK(error({.table = {.noise = -1}}) == "table: noise must be in [0, 1000], got -1");
  CHECK(error({.table = {.unit_range = 0.5}}) ==
        "table: unit_range must be in [1, 1000000], got 0.5");
  CHECK(error({.table = {.rows = 10000000, .inputs = 100}}) ==
        "table: 10006000 rows, held out ones among them, of 129 numbers each are more than "
        "268435456 numbers");
  CHECK(error({.table = {.rows = 1, .inputs = 0, .categories = {39000}, .classes = 256}}) ==
        "table: 39000 features for 256 outputs or classes are more than 8388608 pairs");
  CHECK(error({.hidden = {0}}) == "TableMLP: hidden[0] must be in [1, 100000], got 0");
  CHECK(error({.init_scale = 0}) == "TableMLP: init_scale must be in [1e-06, 1000000], got 0");
  CHECK(error({.batch_size = 0}) == "TableMLP: batch_size must be in [1, 1000000], got 0");
  CHECK(ErrorOf([] { TableMlp(TableMlpOptions{}, Table({.table_seed = 1})); }) ==
        "TableMLP: the table was drawn with other options");
}

}  // namespace
}  // namespace lopt
