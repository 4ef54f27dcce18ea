#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/tools/report/curves.h"
#include "lopt/tools/report/files.h"
#include "lopt/tools/report/html.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {

namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

FinishedProcess Lopt(const Words& arguments) {
  Words words = {BuildPath("lopt")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words);
}

// The page that `lopt report` writes about these directories; it must succeed.
std::string Page(const TempDirectory& scratch, Words directories, std::string* errors = nullptr) {
  directories.insert(directories.begin(), "report");
  directories.insert(directories.end(), {"--out", scratch / "page.html"});
  const FinishedProcess finished = Lopt(directories);
  CHECK_EQ(finished.exit_code, 0);
  CHECK_EQ(finished.output, scratch / "page.html\n");
  if (errors != nullptr) {
    *errors = finished.errors;
  } else {
    CHECK_EQ(finished.errors, "");
  }
  return ReadTextFile(scratch / "page.html");
}

std::vector<std::string> PartsBetween(const std::string& text, std::string_view begin,
                                      std::string_view end) {
  std::vector<std::string> parts;
  for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    const size_t stop = text.find(end, at + begin.size());
    REQUIRE(stop != std::string::npos);
    parts.push_back(text.substr(at, stop + end.size() - at));
    at = stop;
  }
  return parts;
}

// What is wrong with a piece of XML, by its tags, quotes and entities; empty if nothing is.
std::string XmlFault(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = 0; at < xml.size();) {
    if (xml[at] == '>') return "a > outside of a tag";
    if (xml[at] == '&') {
      const size_t end = xml.find(';', at);
      if (end == std::string::npos || end > at + 8) return "a bare &";
    }
    if (xml[at] != '<') {
      ++at;
      continue;
    }
    size_t end = at + 1;
    for (char quote = 0; end < xml.size() && (quote != 0 || xml[end] != '>'); ++end) {
      if (xml[end] == '<') return "a < inside of a tag";
      if (quote == 0 && (xml[end] == '"' || xml[end] == '\'')) {
        quote = xml[end];
      } else if (xml[end] == quote) {
        quote = 0;
      }
    }
    if (end >= xml.size()) return "a tag that does not end";
    const std::string tag = xml.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" \n\t/", tag[0] == '/' ? 1 : 0));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != name) return "an end that fits no start: " + tag;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end + 1;
  }
  return open.empty() ? "" : "without an end: " + open.back();
}

// What holds for every page: it is complete, its plots are XML and it names nothing outside of it.
void CheckPage(const std::string& page) {
  CHECK(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
  CHECK(page.ends_with("</body>\n</html>\n"));
  for (const std::string& svg : PartsBetween(page, "<svg", "</svg>")) CHECK_EQ(XmlFault(svg), "");
  CHECK_EQ(PartsBetween(page, "<script", ">"), Words{"<script>"});
  CHECK_FALSE(Has(page, "<link"));
  CHECK_FALSE(Has(page, "<img"));
  CHECK_FALSE(Has(page, " src="));
  CHECK_FALSE(Has(page, "url("));
  CHECK_FALSE(Has(page, "http"));
  std::set<std::string> ids;
  for (const std::string& id : PartsBetween(page, " id=\"", "\"")) CHECK(ids.insert(id).second);
}

// A finished run of 80 updates with two estimators, written by hand.
std::string MakeRun(const TempDirectory& scratch, const std::string& name, double scale = 1) {
  const std::string directory = scratch / name;
  fs::create_directories(directory);
  WriteTextFile(directory + "/config.json", R"({"name": "by <hand>", "seed": 5})");
  WriteTextFile(directory + "/manifest.json",
                R"({"format": "lopt run 1", "status": "finished", "updates": 80,
                    "version": "1.2.3", "isa": "avx3", "device": "NVIDIA H100",
                    "seed": 5, "threads": 2})");
  std::ofstream lines(directory + "/metrics.jsonl");
  for (int step = 0; step < 80; ++step) {
    lines << fmt::format(R"({{"step":{},"gradient_norm":{},"learning_rate":{},"meta_loss":{})"
                         R"(,"skipped_updates":0)",
                         step, scale * (1 + step % 3), 1.0 / (1 + step), scale * (90 - step));
    for (const char* estimator : {"0_Quadratic", "1_ImageMLP"}) {
      lines << fmt::format(
          R"(,"accumulator_norm_0-9/{0}":0,"accumulator_norm_10-19/{0}":0.5,"gradient_norm/{0}":{1})"
          R"(,"gradient_snr/{0}":1.5,"loss_at_0-9/{0}":{2},"loss_at_10-19/{0}":{1})"
          R"(,"loss_difference/{0}":0.01,"loss_resolution/{0}":1e-7,"meta_loss/{0}":{2})"
          R"(,"non_finite/{0}":{3},"used_steps/{0}":{4})",
          estimator, scale * (2 + step % 5), scale * (90 - step), step / 40, 40 * (step + 1));
    }
    lines << "}\n";
  }
  WriteTextFile(directory + "/throughput.jsonl",
                "{\"step\":40,\"inner_steps_per_second\":900,\"seconds\":2,\"updates_per_second\":"
                "20}\n{\"step\":80,\"inner_steps_per_second\":800,\"seconds\":4.5,"
                "\"updates_per_second\":16}\n");
  return directory;
}

// One training of 60 steps.
RunResult Training(const std::string& optimizer, int64_t seed, float rate) {
  RunResult run;
  run.task = "small <task>";
  run.optimizer = optimizer;
  run.seed = seed;
  run.steps = {60};
  for (int step = 0; step < 60; ++step) {
    run.train_loss.push_back(2 / (1 + rate * static_cast<float>(step)) +
                             0.01F * static_cast<float>(seed));
  }
  run.final_train_loss = {run.train_loss.back()};
  run.mean_train_loss = {0.5};
  run.final_train_accuracy = {0.75};
  run.test_loss = {run.train_loss.back() * 1.1};
  run.test_accuracy = {0.7};
  run.seconds = {0.25};
  run.blew_up = {optimizer == "mine" && seed == 0};
  if (optimizer == "Adam") {
    run.learning_rate = {0.01};
    run.at_edge = {false};
    run.tuning_loss = {0.2};
    run.trials = 5;
  }
  return run;
}

std::string MakeEvaluation(const TempDirectory& scratch, const std::string& name, float rate) {
  const std::string directory = scratch / name;
  fs::create_directories(directory);
  WriteTextFile(directory + "/config.json", R"({"name": "judged"})");
  WriteTextFile(directory + "/manifest.json",
                R"({"format": "lopt evaluation 1", "status": "finished", "seconds": 3.5,
                    "version": "1.2.3", "isa": "avx3", "threads": 2, "optimizers": [
                      {"name": "mine", "trained_on": {"small <task>": [60]}}],
                    "command": "lopt eval --theta 'my theta.safetensors' --seeds 8"})");
  std::ofstream lines(directory + "/results.jsonl");
  for (const char* optimizer : {"Adam", "mine"}) {
    for (int64_t seed = 0; seed < 8; ++seed) {
      const float own = std::string(optimizer) == "mine" ? rate : 0.1F;
      lines << ResultLine(Training(optimizer, seed, own)) << '\n';
    }
  }
  return directory;
}

}  // namespace

TEST_CASE("The report of a run shows its plots, counts, config and how to reproduce it") {
  const TempDirectory scratch;
  const std::string page = Page(scratch, {MakeRun(scratch, "first")});
  CheckPage(page);
  for (const std::string& part : Words{"Meta-training: first",
                                       "Meta-loss, 0_Quadratic",
                                       "Meta-loss, 1_ImageMLP",
                                       "Gradient norm",
                                       "Signal-to-noise ratio of the gradient",
                                       "Loss difference of the pairs, 1_ImageMLP",
                                       "float32 resolution",
                                       "Loss by inner step, 0_Quadratic",
                                       "PES accumulator by episode age, 0_Quadratic",
                                       "inner steps 10-19",
                                       "Inner steps with a loss that was not finite",
                                       "Ledger",
                                       "3,200 <span class=\"pale\">(100 %)</span>",
                                       "Updates of theta",
                                       "updates / s",
                                       "running mean over 3 records",
                                       "by &lt;hand&gt;",
                                       "1.2.3",
                                       "finished",
                                       "0:05",
                                       "first/config.json --out ",
                                       "NVIDIA H100",
                                       " --isa avx3"}) {
    CAPTURE(part);
    CHECK(Has(page, part));
  }
  CHECK_FALSE(Has(page, "class=\"notice\""));
  CHECK_FALSE(Has(page, "Held-out"));
  CHECK(PartsBetween(page, "<figure", "</figure>").size() == 14);
}

TEST_CASE("A run of the program itself can be reported, while it runs too") {
  const TempDirectory scratch;
  const std::string out = scratch / "run";
  REQUIRE_EQ(Lopt({"meta-train", "--preset", "smoke", "--steps", "4", "--out", out, "--set",
                   "eval_every=2", "--set", "eval_steps=10", "--set", "eval_seeds=2"})
                 .exit_code,
             0);
  CHECK_EQ(Lopt({"report", out + "/"}).output, out + "/report.html\n");
  std::string page = ReadTextFile(out + "/report.html");
  CheckPage(page);
  CHECK(Has(page, "Held-out loss (eval_loss)"));
  CHECK(Has(page, "All losses were finite and no update was skipped."));
  CHECK(Has(page, "Signal-to-noise"));

  std::string manifest = ReadTextFile(out + "/manifest.json");
  manifest.replace(manifest.find("finished"), 8, "running");
  WriteTextFile(out + "/manifest.json", manifest);
  page = Page(scratch, {out});
  CHECK(Has(page, "run: the run is running; this is what it has written so far."));
  CHECK(Has(page, "4 so far"));

  WriteTextFile(out + "/metrics.jsonl", "");
  page = Page(scratch, {out});
  CheckPage(page);
  CHECK(Has(page, "metrics.jsonl holds no record yet, so there is no plot."));
}

TEST_CASE("The report of a training of the program shows its losses and how to reproduce it") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "config.json", R"({
    "task": {"type": "ImageMLP", "image_size": 8, "hidden": [4], "batch_size": 8, "data": "glyphs"},
    "optimizer": {"type": "Adam", "learning_rate": 0.01}, "steps": 6, "eval_every": 3
  })");
  const std::string out = scratch / "model";
  REQUIRE_EQ(Lopt({"train", scratch / "config.json", "--out", out}).exit_code, 0);
  const std::string page = Page(scratch, {out});
  CheckPage(page);
  for (const std::string& part :
       Words{"Training: model", "Training: loss", "Training: accuracy", "outer_valid",
             "updates of the params", "last batch&#39;s loss", "lopt train ",
             "The same config and seed give the same params"}) {
    CAPTURE(part);
    CHECK(Has(page, part));
  }
  CHECK_FALSE(Has(page, "Meta-"));
  for (const char* split : {"outer_valid", "test"}) {
    CAPTURE(split);
    const std::string judged = scratch / split;
    REQUIRE_EQ(Lopt({"train", scratch / "config.json", "--set", std::string("eval_split=") + split,
                     "--out", judged})
                   .exit_code,
               0);
    const std::string said = Page(scratch, {judged});
    CHECK(Has(said, std::string("The held-out loss on ") + split + " "));
    CHECK(Has(said, "last held-out loss"));
    CHECK_FALSE(Has(said, "has no held-out losses"));
  }
}

TEST_CASE("A training without records is a training, one of theta a meta-training") {
  const TempDirectory scratch;
  for (const auto& [name, config, heading] :
       {std::tuple("model", R"({"task": {"type": "Quadratic"}, "steps": 6})", "Training: model"),
        std::tuple("theta", R"({"estimators": [], "meta_steps": 6})", "Meta-training: theta")}) {
    CAPTURE(name);
    const std::string run = scratch / name;
    fs::create_directories(run);
    WriteTextFile(run + "/config.json", config);
    WriteTextFile(run + "/manifest.json",
                  R"({"format": "lopt run 1", "status": "running", "updates": 0,
                      "version": "1.2.3", "isa": "avx3", "seed": 5, "threads": 2})");
    WriteTextFile(run + "/metrics.jsonl", "");
    const std::string page = Page(scratch, {run});
    CheckPage(page);
    CHECK(Has(page, std::string("\">") + heading + "</h2>"));
  }
}

TEST_CASE("The report of an evaluation shows tables and learning curves") {
  const TempDirectory scratch;
  const std::string evaluation = MakeEvaluation(scratch, "judged", 0.3F);
  std::ofstream lines(evaluation + "/results.jsonl", std::ios::app);
  for (int64_t seed = 0; seed < 8; ++seed) lines << ResultLine(Training("yours", seed, 1)) << '\n';
  lines.close();
  const std::string page = Page(scratch, {evaluation});
  CheckPage(page);
  for (const std::string& part :
       Words{"Evaluation: judged", "small &lt;task&gt;, 60 steps", "All tasks; losses as fractions",
             "speed-up in steps", "<tr class=\"ours\"><th scope=\"row\">mine +</th>",
             "<span class=\"better\">better</span>", "<td class=\"number\">0 / 0 of 8</td>",
             "<td class=\"number\">0 / 1 of 8</td>", "blown up", "seconds to Adam",
             "Median over 8 seeds of the batch losses&#39; running mean over 1 steps",
             "lopt eval --theta &#39;my theta.safetensors&#39; --seeds 8", "0:04",
             "A task without a data set has no such split"}) {
    CAPTURE(part);
    CHECK(Has(page, part));
  }
  CHECK_FALSE(Has(page, "class=\"notice\""));
}

TEST_CASE("Several runs and evaluations are overlaid, with a legend") {
  const TempDirectory scratch;
  const std::string page =
      Page(scratch, {MakeRun(scratch, "a/run"), MakeEvaluation(scratch, "low", 0.2F),
                     MakeRun(scratch, "b/run", 100), MakeEvaluation(scratch, "high", 0.4F)});
  CheckPage(page);
  const auto legends = PartsBetween(page, "<ul class=\"legend\">", "</ul>");
  // Adam is the same in both evaluations.
  CHECK(Has(legends.at(0), "</svg>mine (low)</button></li>"));
  CHECK(Has(legends.at(0), "</svg>mine (high)</button></li>"));
  CHECK(Has(legends.at(0), "</svg>Adam</button></li>"));
  // Directories of one name go by their paths.
  CHECK(Has(legends.at(1), "</svg>" + (scratch / "a/run</button></li>")));
  CHECK(Has(legends.at(1), "</svg>" + (scratch / "b/run</button></li>")));
  CHECK(Has(page, "Gradient norm, 1_ImageMLP"));
  CHECK(Has(page, "<h4>Learning rate</h4>"));
}

TEST_CASE("What is damaged is told in the report and on standard error, and the rest is shown") {
  const TempDirectory scratch;
  const std::string run = MakeRun(scratch, "run");
  std::string lines = ReadTextFile(run + "/metrics.jsonl");
  lines.replace(lines.find("{\"step\":2,"), 10, "{\"step\":!,");
  lines.replace(lines.find("{\"step\":7,"), 10, "{\"stop\":7,");
  lines.resize(lines.size() - 100);
  WriteTextFile(run + "/metrics.jsonl", lines);
  fs::remove(run + "/config.json");
  std::string errors;
  const std::string page = Page(scratch, {run}, &errors);
  CheckPage(page);
  for (const std::string& part :
       Words{"metrics.jsonl: line 3 is damaged (it is not JSON from byte 9 on); it is left out",
             "metrics.jsonl: line 8 is damaged (it has no integer 'step'); it is left out",
             "metrics.jsonl: line 80, the last one, is cut off after ",
             "config.json is missing: how to reproduce the run is unknown"}) {
    CAPTURE(part);
    CHECK(Has(errors, part));
    CHECK(Has(page, EscapeHtml(part)));
  }
  CHECK(Has(page, "Meta-loss, 1_ImageMLP"));

  const std::string evaluation = MakeEvaluation(scratch, "eval", 0.3F);
  std::string results = ReadTextFile(evaluation + "/results.jsonl");
  results.resize(results.size() - 20);
  WriteTextFile(evaluation + "/results.jsonl", results);
  const std::string judged = Page(scratch, {evaluation}, &errors);
  CHECK(Has(errors, "results.jsonl"));
  CHECK(Has(judged, "<p class=\"notice\">"));
  CHECK(Has(judged, "0 / 1 of 7"));
}

TEST_CASE("A last task of which results are missing is left out, with a notice") {
  const TempDirectory scratch;
  const std::string evaluation = MakeEvaluation(scratch, "eval", 0.3F);
  WriteTextFile(evaluation + "/config.json", R"({"name": "judged", "seeds": 4})");
  const auto write = [&](int64_t of_last) {
    std::ofstream lines(evaluation + "/results.jsonl");
    for (const std::string task : {"whole", "last"}) {
      for (const std::string optimizer : {"Adam", "mine"}) {
        for (int64_t seed = 0; seed < (task == "last" && optimizer == "mine" ? of_last : 4);
             ++seed) {
          RunResult run = Training(optimizer, seed, 0.1F);
          run.task = task;
          lines << ResultLine(run) << '\n';
        }
      }
    }
  };
  for (const int64_t there : {0, 1, 3}) {
    CAPTURE(there);
    write(there);
    const std::string damage = fmt::format(
        "{}/results.jsonl: the last task, last, has {} of 4 results of mine; it is left out",
        evaluation, there);
    std::string errors;
    const std::string page = Page(scratch, {evaluation}, &errors);
    CHECK_EQ(errors, "lopt: " + damage + "\n");
    CHECK(Has(page, EscapeHtml(damage)));
    CHECK(Has(page, "whole: learning curves"));
    CHECK_FALSE(Has(page, "last: learning curves"));
  }
  write(4);
  CHECK(Has(Page(scratch, {evaluation}), "last: learning curves"));
}

TEST_CASE("A directory with nothing to report is an error that says what was looked for") {
  const TempDirectory scratch;
  const auto error_of = [](const Words& directories) {
    Words words = {"report"};
    words.insert(words.end(), directories.begin(), directories.end());
    const FinishedProcess finished = Lopt(words);
    CHECK_EQ(finished.exit_code, directories.empty() ? 2 : 1);
    return finished.errors;
  };
  const std::string what =
      ": it holds neither a meta-training run (manifest.json, metrics.jsonl) nor an evaluation "
      "(results.jsonl) nor a bench of estimators (estimators.json)\n";
  fs::create_directory(scratch / "empty");
  CHECK_EQ(error_of({scratch / "empty"}), "lopt: " + (scratch / "empty is empty") + what);
  WriteTextFile(scratch / "notes.txt", "");
  CHECK_EQ(error_of({scratch.path()}), "lopt: " + scratch.path() + " cannot be reported" + what);
  CHECK_EQ(error_of({scratch / "none"}), "lopt: there is no directory " + (scratch / "none\n"));
  CHECK_EQ(error_of({scratch / "notes.txt"}),
           "lopt: " + (scratch / "notes.txt is not a directory\n"));
  CHECK(error_of({}).starts_with("lopt: A directory is missing; usage: lopt report DIR..."));

  const std::string evaluation = MakeEvaluation(scratch, "eval", 0.3F);
  std::string results = ReadTextFile(evaluation + "/results.jsonl");
  results.replace(results.find('\n') + 1, 1, "?");
  WriteTextFile(evaluation + "/results.jsonl", results);
  CHECK(Has(error_of({evaluation}), "results.jsonl, line 2"));
}

TEST_CASE("A page is drawn without any other program") {
  const TempDirectory scratch;
  const FinishedProcess finished =
      RunProcess({"/usr/bin/env", "PATH=" + scratch.path(), BuildPath("lopt"), "report",
                  MakeRun(scratch, "run")});
  CHECK_EQ(finished.errors, "");
  CHECK_EQ(finished.exit_code, 0);
  CheckPage(ReadTextFile(scratch / "run/report.html"));
}

TEST_CASE("An evaluation begins with the verdict; then come the table, best first, and ratios") {
  const TempDirectory scratch;
  const std::string page = Page(scratch, {MakeEvaluation(scratch, "judged", 0.3F)});
  size_t last = 0;
  for (const char* part :
       {"<h2 id=\"s0\">Evaluation: judged</h2>", "<p class=\"verdict\">mine is ahead of tuned Adam",
        "<caption><span>Test losses on small &lt;task&gt; after 60 steps, interquartile means over "
        "8 seeds. Learned optimizers are bold; ratio, verdict: against tuned "
        "Adam.</span></caption>",
        "<tr class=\"ours\"><th scope=\"row\">mine</th>", "<tr><th scope=\"row\">Adam</th>",
        "<div class=\"forest\">", "<li class=\"ours\">mine</li><li>Adam</li>", "<h3>By task</h3>",
        "<g class=\"curve\" style=\"--c:var(--c1)\"><title>Adam</title>",
        "<g class=\"curve thick\" style=\"--c:var(--c0)\"><title>mine</title>",
        "<h3>All figures</h3>", "<h3>The evaluation</h3>",
        "<h3>Config, and how to reproduce</h3>"}) {
    CAPTURE(part);
    const size_t at = page.find(part, last);
    REQUIRE_NE(at, std::string::npos);
    last = at;
  }
}

TEST_CASE("Of several tasks there is a forest plot of all and one of each, by the same unit") {
  const TempDirectory scratch;
  const std::string evaluation = MakeEvaluation(scratch, "judged", 0.3F);
  std::ofstream lines(evaluation + "/results.jsonl", std::ios::app);
  for (const std::string optimizer : {"Adam", "mine", "yours"}) {
    for (int64_t seed = 0; seed < 8; ++seed) {
      RunResult run = Training(optimizer, seed, optimizer == "Adam" ? 0.1F : 0.05F);
      if (optimizer == "yours") lines << ResultLine(run) << '\n';
      run.task = "other";
      lines << ResultLine(run) << '\n';
    }
  }
  lines.close();
  const std::string page = Page(scratch, {evaluation});
  CheckPage(page);
  CHECK_EQ(PartsBetween(page, "<div class=\"forest\">", "</ol>").size(), 3);
  CHECK(Has(page, "<h4>small &lt;task&gt;, 60 steps: ratios of test losses to tuned Adam</h4>"));
  CHECK(Has(page, "Performance profiles"));
  CHECK(Has(page, "Nothing tuned: test loss"));
  CHECK(Has(page, "Nothing tuned: steps to tuned Adam&#39;s loss"));
  CHECK_FALSE(Has(page, "Everything tuned"));  // Adam is alone
  // Won tasks come before lost ones.
  const auto cell = [&](const char* task) {
    return page.find(
        fmt::format("<th scope=\"row\">{}, 60 steps</th><td class=\"number\"><span "
                    "class=\"{}\">",
                    task, std::string(task) == "other" ? "worse" : "better"));
  };
  CHECK_NE(cell("other"), std::string::npos);
  CHECK_LT(cell("small &lt;task&gt;"), cell("other"));
}

TEST_CASE("Each of several evaluations has its table of ratios, under its name") {
  const TempDirectory scratch;
  Words directories;
  for (const std::string name : {"left", "right"}) {
    const std::string evaluation = MakeEvaluation(scratch, name, 0.3F);
    std::ofstream lines(evaluation + "/results.jsonl");
    for (const std::string task : {"lost", "won"}) {
      for (const std::string& optimizer : {std::string("Adam"), name + "-theta"}) {
        for (int64_t seed = 0; seed < 8; ++seed) {
          RunResult run = Training(optimizer == "Adam" ? optimizer : "mine", seed,
                                   optimizer == "Adam" ? 0.1F
                                   : task == "won"     ? 0.3F
                                                       : 0.05F);
          run.task = task;
          run.optimizer = optimizer;
          lines << ResultLine(run) << '\n';
        }
      }
    }
    directories.push_back(evaluation);
  }
  const std::string page = Page(scratch, directories);
  CheckPage(page);
  for (const std::string name : {"left", "right"}) {
    CAPTURE(name);
    const size_t caption = page.find(name + ": Ratios of test losses to tuned Adam, sorted by " +
                                     name + "-theta&#39;s;");
    REQUIRE_NE(caption, std::string::npos);
    const std::string table = page.substr(caption, page.find("</table>", caption) - caption);
    CHECK_EQ(PartsBetween(table, "<th scope=\"col\"", "</th>").size(), 3);  // task, its own, Adam
    CHECK_FALSE(Has(table, name == "left" ? "right-theta" : "left-theta"));
    CHECK_LT(At(table, "won, 60 steps"), At(table, "lost, 60 steps"));
  }
}

TEST_CASE("Losses below 0 are compared without ratios") {
  const TempDirectory scratch;
  const std::string evaluation = MakeEvaluation(scratch, "judged", 0.3F);
  std::ofstream lines(evaluation + "/results.jsonl");
  for (const std::string task : {"below", "above"}) {
    for (const std::string optimizer : {"Adam", "mine"}) {
      for (int64_t seed = 0; seed < 8; ++seed) {
        RunResult run = Training(optimizer, seed, 0.1F);
        run.task = task;
        run.test_loss = {optimizer == "Adam" ? 1.0 : 0.5};
        if (task == "below") run.test_loss[0] -= 4;
        lines << ResultLine(run) << '\n';
      }
    }
  }
  lines.close();
  const std::string page = Page(scratch, {evaluation});
  CheckPage(page);
  CHECK(Has(page, "<h4>above, 60 steps: ratios of test losses to tuned Adam</h4>"));
  CHECK_FALSE(Has(page, "<h4>below, 60 steps: ratios of test losses to tuned Adam</h4>"));
  CHECK(Has(page,
            "<th scope=\"row\">below, 60 steps</th><td class=\"number\"><span "
            "class=\"better\">&#9660; -</span></td>"));
}

TEST_CASE("Names from files are text in the page, whatever is in them") {
  const TempDirectory scratch;
  const std::string run = MakeRun(scratch, "<b>'$0' `id` \"&");
  WriteTextFile(run + "/metrics.jsonl",
                "{\"step\":0,\"meta_loss\":1,\"meta_loss/<i>'x' & \\\\\":2,\"loss_at_0-9/<i>'x' & "
                "\\\\\":3,\"gradient_norm/\\u0007\\n\":\"nan\"}\n"
                "{\"step\":1,\"meta_loss\":\"inf\",\"meta_loss/<i>'x' & \\\\\":\"-inf\"}\n");
  const std::string page = Page(scratch, {run});
  CheckPage(page);
  CHECK_FALSE(Has(page, "<i>"));
  CHECK_FALSE(Has(page, "<b>"));
  CHECK(Has(page, "Meta-loss, &lt;i&gt;&#39;x&#39; &amp; \\"));
  CHECK(Has(page, "1 values that are not finite are not drawn."));
  CHECK(Has(page, "No numbers to show yet."));
}

TEST_CASE("Text is escaped for HTML, and what is not UTF-8 is replaced") {
  CHECK_EQ(EscapeHtml("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  CHECK_EQ(EscapeHtml("\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80\n"),
           "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80\n");
  const std::string lost = "\xEF\xBF\xBD";
  CHECK_EQ(EscapeHtml("\xC3 \x01 \xFF \xC0\xAF"),
           lost + " " + lost + " " + lost + " " + lost + lost);
  CHECK_EQ(EscapeHtml("\xED\xA0\x80"), lost + lost + lost);
}

TEST_CASE("Long series are thinned to means of groups, and smoothed over a window") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const Series series{.step = {0, 1, 2, 3, 4}, .value = {1, 3, nan, infinity, 7}};
  CHECK(Thinned(series, 5).value.size() == 5);
  const Series thinned = Thinned(series, 3);
  CHECK(thinned.step == std::vector<double>{0.5, 2.5, 4});
  CHECK(thinned.value[0] == 2);
  CHECK(std::isnan(thinned.value[1]));
  CHECK(thinned.value[2] == 7);
  CHECK(Smoothed(series, 3).value == std::vector<double>{2, 2, 3, 7, 7});
}

TEST_CASE("Each series of a figure is smoothed over a part of its own records") {
  const auto falling = [](size_t records, double by) {
    Series series;
    for (size_t i = 0; i < records; ++i) {
      series.step.push_back(by * static_cast<double>(i));
      series.value.push_back(static_cast<double>(records - i));
    }
    return series;
  };
  const auto caption = [](const std::vector<NamedSeries>& all) {
    return SeriesFigure({}, all).caption;
  };
  const Series train = falling(300, 1);
  const Series judged = falling(4, 100);
  const Figure figure = SeriesFigure({}, {{.series = &train}, {.series = &judged}});
  REQUIRE_EQ(figure.curves.size(), 3);  // the pale records of the long one come first
  CHECK_EQ(figure.curves[1].y[100], 200);
  CHECK_GT(figure.curves[1].y.back(), 1);  // its mean over 13 records
  CHECK_EQ(figure.curves[2].y, judged.value);
  CHECK_EQ(figure.curves[2].style, Curve::Style::kPoints);
  CHECK_EQ(figure.caption, "Smoothed line: running mean over 13 records; pale: every record.");

  const Series dense = falling(2000, 1);
  const Series sparse = falling(100, 20);
  const Figure both = SeriesFigure({}, {{.series = &dense}, {.series = &sparse}});
  REQUIRE_EQ(both.curves.size(), 4);
  CHECK_EQ(both.curves[3].y.front(), 99);  // the mean of 100, 99 and 98
  CHECK_EQ(both.curves[3].y[50], 50);
  CHECK_EQ(both.curves[3].y.back(), 2);
  CHECK_EQ(both.caption,
           "Line: running mean over 1/25 of its records; pale: mean of up to 5 records.");
  CHECK_EQ(caption({{.series = &dense}}),
           "Line: running mean over 81 records; pale: mean of each 5 records.");

  const Figure held_out =
      SeriesFigure({}, {{.series = &dense}, {.series = &sparse, .as_it_is = true}});
  CHECK_EQ(held_out.curves.back().y, sparse.value);
  CHECK_EQ(caption({{.series = &dense, .as_it_is = true}}), "Each point is the mean of 5 records.");
  CHECK_EQ(caption({{.series = &judged}}), "");
}

TEST_CASE("A long metrics file gives a page of bounded size with all of its steps") {
  const TempDirectory scratch;
  const std::string run = MakeRun(scratch, "run");
  {
    std::ofstream lines(run + "/metrics.jsonl");
    for (int step = 0; step < 5000; ++step) {
      lines << fmt::format("{{\"step\":{0},\"meta_loss\":{1},\"meta_loss/0_A\":{1}}}\n", step,
                           1 + 0.001 * (step % 17));
    }
  }
  const MetricsFile file = ReadMetricsFile(run + "/metrics.jsonl");
  CHECK(file.records == 5000);
  CHECK(file.damage.empty());
  CHECK(file.series.at("meta_loss/0_A").step.back() == 4999);
  const std::string page = Page(scratch, {run});
  CheckPage(page);
  CHECK(page.size() < 200000);
  CHECK(Has(page, "running mean over 201 records; pale: mean of each 13 records."));
}

}  // namespace lopt
