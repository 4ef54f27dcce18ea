#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/safetensors.h"
#include "tests/csv_digits.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/replace_in_file.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

using Words = std::vector<std::string>;

FinishedProcess Lopt(Words words) {
  words.insert(words.begin(), BuildPath("lopt"));
  return RunProcess(words);
}
FinishedProcess Predict(const std::string& run, Words more = {}) {
  more.insert(more.begin(), {"predict", run});
  return Lopt(more);
}
// Checks that it ends with this exit code, and returns what it says.
std::string Fails(int exit_code, const std::string& run, const Words& more = {}) {
  const FinishedProcess finished = Predict(run, more);
  CHECK(finished.exit_code == exit_code);
  return finished.errors;
}

constexpr const char* kDigits =
    R"({"type": "ImageMLP", "data": "csv", "image_size": 0, "hidden": [], "batch_size": 4})";

// A training of 3 steps in `directory`/run on the digits in `directory`/data.
class Run {
 public:
  explicit Run(std::string task = kDigits, const std::string& more = "",
               const std::string& name = "run")
      : run(directory_ / name) {
    MakeDirectories(data());
    WriteCsvDigits(data(), 1);
    const std::string dir = Has(task, "csv") ? R"("data_dir": ")" + data() + "\", " : "";
    WriteTextFile(directory_ / "config.json",
                  "{" + dir + more +
                      R"("seed": 4, "steps": 3, "eval_every": 3, "eval_split": "test",
                  "optimizer": {"type": "Adam", "learning_rate": 0.01}, "task": )" +
                      task + "}");
    trained = Lopt({"train", directory_ / "config.json", "--out", run, "--threads", "1"});
  }
  std::string data() const { return directory_ / "data"; }
  std::string operator/(const std::string& file) const { return directory_ / file; }

 private:
  TempDirectory directory_;

 public:
  std::string run;
  FinishedProcess trained;
};

// Makes the model one without weights, whose biases are these.
void SetBiases(const std::string& run, const std::vector<float>& biases) {
  ArrayFile model = ReadArrayFile(run + "/model.safetensors");
  std::ranges::fill(model.arrays.At("params/mlp/linear_0/w").As<float>(), 0.0F);
  std::ranges::copy(biases, model.arrays.At("params/mlp/linear_0/b").As<float>().begin());
  WriteArrayFile(run + "/model.safetensors", model);
}

TEST_CASE("A model predicts what it is made to, in a table, CSV, JSON and a picture") {
  const Run run;
  REQUIRE(run.trained.exit_code == 0);
  SetBiases(run.run, {0, 0, 0, std::log(6.0F), 0});  // shares 0.1, 0.1, 0.1, 0.6, 0.1
  const FinishedProcess json = Predict(run.run, {"--json"});
  CHECK(json.exit_code == 0);
  const auto all = nlohmann::json::parse(json.output);
  const int64_t count = all["rows"];
  REQUIRE(all["predictions"].size() == static_cast<size_t>(count));
  int64_t threes = 0;
  for (const auto& row : all["predictions"]) {
    CHECK(row["class"] == 3);
    CHECK(row["logits"][3].get<double>() == doctest::Approx(std::log(6.0)).epsilon(1e-6));
    CHECK(row["probabilities"][3].get<double>() == doctest::Approx(0.6).epsilon(1e-6));
    threes += row["label"] == 3 ? 1 : 0;
  }
  CHECK(all["accuracy"].get<double>() == doctest::Approx(double(threes) / double(count)));
  CHECK(all["confusion"][3][3] == threes);
  const double others = static_cast<double>(count - threes) / static_cast<double>(count);
  CHECK(all["loss"].get<double>() ==
        doctest::Approx(-(1 - others) * std::log(0.6) - others * std::log(0.1)).epsilon(1e-6));

  const FinishedProcess text =
      Predict(run.run, {"--out", run / "rows.csv", "--picture", run / "rows.png"});
  CHECK(text.errors == "");
  CHECK(Has(text.output, "on test: "));
  CHECK(Has(text.output, "    3: 0.6000    0: 0.1000"));
  std::istringstream lines(text.output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("Written") && !line.starts_with('[')) CHECK(line.size() <= 80);
  }
  const std::string csv = ReadTextFile(run / "rows.csv");
  CHECK(csv.starts_with("row,label,class,p0,p1,p2,p3,p4\n0,"));
  CHECK(std::ranges::count(csv, '\n') == count + 1);
  CHECK(std::stod(csv.substr(csv.rfind(",3,") + 3)) == doctest::Approx(0.1).epsilon(1e-6));
  CHECK(ReadTextFile(run / "rows.png").starts_with("\x89PNG"));
  CHECK(Has(Fails(1, run.run, {"--out", run.run + "/model.safetensors"}), "--out is the model"));
}

TEST_CASE("A projection has a line of features and of labels for each of the rows") {
  const Run run;
  const std::string directory = run / "deep/projector";
  CHECK(Predict(run.run, {"--projector", directory, "--rows", "3"}).exit_code == 0);
  const std::string tensors = ReadTextFile(directory + "/tensors.tsv");
  CHECK(std::ranges::count(tensors, '\n') == 3);
  CHECK(std::ranges::count(tensors, '\t') == 3 * 3);  // of 4 pixels
  CHECK(ReadTextFile(directory + "/metadata.tsv").starts_with("label\tclass\tright\trow\n"));
  CHECK(ReadTextFile(directory + "/projector_config.pbtxt") ==
        "embeddings {\n"
        "  tensor_name: \"ImageMLP test\"\n"
        "  tensor_shape: 3\n"
        "  tensor_shape: 4\n"
        "  tensor_path: \"tensors.tsv\"\n"
        "  metadata_path: \"metadata.tsv\"\n"
        "  sprite {\n"
        "    image_path: \"sprite.png\"\n"
        "    single_image_dim: 2\n"
        "    single_image_dim: 2\n"
        "  }\n"
        "}\n");
  CHECK(ReadTextFile(directory + "/sprite.png").starts_with("\x89PNG"));
  // Again, of more rows: the files are replaced.
  CHECK(Predict(run.run, {"--projector", directory}).exit_code == 0);
  CHECK(std::ranges::count(ReadTextFile(directory + "/tensors.tsv"), '\n') > 3);
  const std::string file = run / "config.json";
  CHECK(Has(Fails(1, run.run, {"--projector", file}), file));
}

TEST_CASE("Loss and accuracy are those that the training has measured at its end") {
  const Run run(
      R"({"type": "ImageConv", "image_size": 8, "channels": [3], "strides": [1], "batch_size": 20,
                    "data": "glyphs"})");
  REQUIRE(run.trained.exit_code == 0);
  const auto all = nlohmann::json::parse(Predict(run.run, {"--json", "--rows", "5:7"}).output);
  REQUIRE(all["predictions"].size() == 2);
  CHECK(all["predictions"][1]["row"] == 6);
  std::istringstream metrics(ReadTextFile(run.run + "/metrics.jsonl"));
  nlohmann::json last;
  for (std::string line; std::getline(metrics, line);) last = nlohmann::json::parse(line);
  CHECK(all["loss"].get<float>() == last["loss/test"].get<float>());
  CHECK(all["accuracy"].get<double>() ==
        doctest::Approx(last["accuracy/test"].get<double>()).epsilon(1e-6));
}

TEST_CASE("Ranges of rows that there are not, and splits, are errors that say what there is") {
  const Run run;
  const std::string range = "--rows must be FIRST:LAST (rows FIRST to LAST - 1) or a count, got ";
  for (const char* bad : {"x", "1:", ":3", "1:2:3", "-1", "1.5", "99999999999999999999"}) {
    CHECK(Fails(2, run.run, {"--rows", bad}) == "lopt: " + range + "'" + bad + "'\n");
  }
  for (const char* outside : {"0", "3:3", "4:2", "0:100000", "100000"}) {
    CHECK(Has(Fails(1, run.run, {"--rows", outside}), ": wanted at least one of the rows 0:"));
  }
  CHECK(Fails(2, run.run, {"--split", "tset"}) ==
        "lopt: There is no split 'tset'; choices: train, inner_valid, outer_valid, test; did you "
        "mean "
        "'test'?\n");
  CHECK(Has(Lopt({"predict"}).errors, "RUN is missing; usage: lopt predict RUN"));
  CHECK(Predict(run.run, {"--split", "train", "--rows", "1"}).exit_code == 0);
}

TEST_CASE("Of what is no finished training with classes, an error says what there is instead") {
  const Run run;
  CHECK(Fails(1, run / "none") ==
        "lopt: " + (run / "none") + ": there is no such directory; wanted that of a lopt train\n");
  CHECK(Fails(1, run.data()) ==
        "lopt: " + run.data() + " holds no run; wanted one of lopt train\n");
  ReplaceInFile(run.run + "/manifest.json", "\"finished\"", "\"interrupted\"");
  CHECK(Fails(1, run.run) ==
        "lopt: " + run.run +
            " has no model yet: its training is interrupted (3 updates), and its "
            "newest checkpoint is " +
            run.run + "/checkpoints/step-00000003; lopt train resumes it (--resume)\n");
  ReplaceInFile(run.run + "/manifest.json", "\"interrupted\"", "\"finished\"");
  CHECK(Predict(run.run).exit_code == 0);
  std::filesystem::remove(run.run + "/model.safetensors");
  CHECK(Has(Fails(1, run.run), "/model.safetensors is gone, but its training is finished"));

  const Run quadratic(R"({"type": "FixedDimQuadraticFamily", "dim": 3})");
  REQUIRE(quadratic.trained.exit_code == 0);
  CHECK(Has(Fails(1, quadratic.run), " (FixedDimQuadraticFamily): the task has no classes"));
  WriteTextFile(quadratic.run + "/theta.safetensors", "");
  CHECK(Has(Fails(1, quadratic.run), " holds a meta-training run, which has a theta"));
}

TEST_CASE("Damaged models, those of other programs and those of other data are errors") {
  const Run run;
  const std::string path = run.run + "/model.safetensors";
  const std::vector<std::byte> whole = ReadFile(path);
  WriteFile(path, std::span(whole).first(whole.size() - 4));
  CHECK(Has(Fails(1, run.run), "lopt: " + path + ": "));
  const auto changed = [&](const auto& change) {
    ArrayFile file = ParseArrayFile(whole, path);
    change(&file);
    WriteArrayFile(path, file);
    return Fails(1, run.run);
  };
  CHECK(Has(changed([](ArrayFile* file) { file->metadata.erase("config"); }),
            path + ": the metadata 'config' is missing"));
  CHECK(Has(changed([](ArrayFile* file) {
              file->metadata["version"] = "9.0";
              file->metadata["config"] = R"({"no_such_key": 1})";
            }),
            path + ": this program cannot read the config of the training, which lopt 9.0 wrote"));
  CHECK(Has(changed([](ArrayFile* file) {
              file->arrays.Set("params/mlp/linear_0/b", Array(DType::kFloat32, {4}));
            }),
            path + ": the file is of another model than that of ImageMLP: "));
  CHECK(Has(changed([](ArrayFile* file) {
              file->arrays.At("params/mlp/linear_0/b").As<float>()[2] = NAN;
            }),
            " (ImageMLP): row 0 has a logit of nan, so the model predicts nothing"));

  WriteFile(path, whole);
  WriteCsvDigits(run.data(), 2);
  const std::string other = Fails(1, run.run);
  CHECK(Has(other, path + " was trained on csv "));
  CHECK(Has(other, ", but the data are now csv "));
  // What a model of an earlier version does not say, its checkpoint does.
  CHECK(
      Has(changed([](ArrayFile* file) { file->metadata.erase("data"); }), " was trained on csv "));
  const std::string moved = run / "moved";
  MakeDirectories(moved);
  WriteCsvDigits(moved, 1);
  CHECK(Predict(run.run, {"--data-dir", moved}).exit_code == 0);
  std::filesystem::remove_all(run.data());
  CHECK(Has(Fails(1, run.run), run.data()));
}

TEST_CASE("Paths that are not ASCII are as good as others, and lost output is an error") {
  const Run run(kDigits, "", "Läufe ✓ 模型");
  REQUIRE(run.trained.exit_code == 0);
  const std::string csv = run / "Zeilen ✓.csv";
  CHECK(Predict(run.run, {"--out", csv, "--rows", "2"}).exit_code == 0);
  CHECK(std::ranges::count(ReadTextFile(csv), '\n') == 3);
  CHECK(nlohmann::json::parse(Predict(run.run, {"--json"}).output)["run"] == run.run);
  const auto shell = [&](const std::string& lost) {
    return RunProcess(
        {"/bin/sh", "-c", "exec '" + BuildPath("lopt") + "' predict '" + run.run + "' " + lost});
  };
  for (const char* lost : {">/dev/full", ">&-", "--json >/dev/full", "--json >&-"}) {
    const FinishedProcess finished = shell(lost);
    CHECK(finished.exit_code == 1);
    CHECK(Has(finished.errors, "standard output cannot be written"));
  }
  CHECK(shell("--out /dev/full/x").exit_code == 1);
  CHECK(shell("--picture '" + run.run + "'").exit_code == 1);
}

TEST_CASE("More classes than fit into 80 columns are listed by the pairs confused most often") {
  const Run run;
  std::string csv;
  for (int row = 0; row < 300; ++row)
    csv += fmt::format("{},{},7,9,{}\n", row % 250, row % 3, row % 100);
  WriteTextFile(run.data() + "/train.csv", csv);
  REQUIRE(Lopt({"train", run / "config.json", "--out", run.run, "--overwrite"}).exit_code == 0);
  std::vector<float> biases(100);
  biases[42] = 9;
  SetBiases(run.run, biases);
  const FinishedProcess finished = Predict(run.run);
  CHECK(finished.exit_code == 0);
  CHECK(Has(finished.output, "Most often confused, of 100 classes (--json has the whole matrix):"));
  CHECK(Has(finished.output, "     42\n"));
  std::istringstream lines(finished.output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('[')) CHECK(line.size() <= 80);
  }
}

TEST_CASE("A split whose rows have one label has one line of the confusion matrix") {
  const Run run;
  std::string csv;
  for (int row = 0; row < 9; ++row) csv += fmt::format("{},1,2,3,2\n", 20 * row);
  WriteTextFile(run.data() + "/test.csv", csv);
  REQUIRE(Lopt({"train", run / "config.json", "--out", run.run, "--overwrite"}).exit_code == 0);
  SetBiases(run.run, {0, 0, 1, 0, 0});
  const auto all = nlohmann::json::parse(Predict(run.run, {"--json"}).output);
  CHECK(all["rows"] == 9);
  CHECK(all["accuracy"] == 1);
  CHECK(all["confusion"] == nlohmann::json::parse("[[0,0,0,0,0],[0,0,0,0,0],[0,0,9,0,0],"
                                                  "[0,0,0,0,0],[0,0,0,0,0]]"));
}

}  // namespace
}  // namespace lopt
