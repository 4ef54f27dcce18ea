#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/file.h"
#include "lopt/base/safetensors.h"
#include "lopt/base/utf8.h"
#include "lopt/learner/elastic/grpc_connections.h"
#include "lopt/tools/shell.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

namespace lopt {

namespace {

// Runs "lopt WORDS" in a shell; the words may redirect its outputs.
FinishedProcess Shell(const std::string& words) {
  return RunProcess({"/bin/sh", "-c", "exec '" + BuildPath("lopt") + "' " + words});
}

const std::string kFull = "standard output cannot be written: No space left on device";

// A meta-training with `words` that may start so many threads.
void CheckWithFewThreads(int threads, const std::string& words) {
  const TempDirectory directory;
  INFO(words << ", " << threads);
  const FinishedProcess finished = RunProcess(
      {"/bin/sh", "-c",
       "export LOPT_TEST_THREADS=" + std::to_string(threads) +
           " LD_PRELOAD=" + BuildPath("tests/few_threads.so") + "; exec '" + BuildPath("lopt") +
           "' meta-train --preset smoke --threads 2 --overwrite --out '" + directory.path() +
           "/run'" + words});
  INFO(finished.errors);
  CHECK(finished.exit_code == 1);
  CHECK(finished.errors.find("no more threads or processes can be started") != std::string::npos);
}

}  // namespace

TEST_CASE("An error whose message cannot be written ends the program with its status") {
  for (const char* lost : {"2>/dev/full", "2>&-", ">/dev/full 2>/dev/full", ">&- 2>&- <&-"}) {
    INFO(lost);
    CHECK(Shell(std::string("no-such-command ") + lost).exit_code == 2);
    CHECK(Shell(std::string("meta-train --no-such-option ") + lost).exit_code == 2);
    CHECK(Shell(std::string("inspect /no/such/file ") + lost).exit_code == 1);
    CHECK(Shell(std::string("eval --theta /no/such/file ") + lost).exit_code == 1);
    CHECK(Shell(std::string("check --task NoSuchTask ") + lost).exit_code == 1);
    CHECK(Shell(std::string("launch ") + lost).exit_code == 2);
  }
}

TEST_CASE("Output that is lost is an error at the end, and says so") {
  const std::vector<std::string> commands = {
      "version",          "describe",
      "describe MLPLOpt", "completion bash",
      "--help",           "meta-train --help",
      "check --list",     "inspect '" + SourcePath("trained/fast.safetensors") + "'"};
  for (const std::string& words : commands) {
    INFO(words);
    const FinishedProcess full = Shell(words + " >/dev/full");
    CHECK(full.exit_code == 1);
    CHECK(full.errors.find(kFull) != std::string::npos);
    const FinishedProcess closed = Shell(words + " >&-");
    CHECK(closed.exit_code == 1);
    CHECK(closed.errors.find("standard output cannot be written: Bad file descriptor") !=
          std::string::npos);
  }
}

TEST_CASE("A run whose outputs are lost does all the rest") {
  const TempDirectory directory;
  const std::string run = "meta-train --preset smoke --threads 1 --out ";
  const auto path = [&](const std::string& name) { return directory.path() + "/" + name; };
  const auto theta = [&](const std::string& name) {
    return ReadTextFile(path(name) + "/theta.safetensors");
  };
  const auto files = [&](const std::string& name) {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::recursive_directory_iterator(path(name))) {
      ++count;
    }
    return count;
  };
  REQUIRE(Shell(run + ShellQuoted(path("whole"))).exit_code == 0);
  struct Lost {
    std::string name, words;
    int exit_code;
  };
  for (const Lost& lost :
       {Lost{"out", " >/dev/full", 1}, Lost{"both", " >/dev/full 2>/dev/full", 1},
        Lost{"errors", " 2>/dev/full", 0}, Lost{"closed", " 2>&-", 0},
        Lost{"all", " <&- >&- 2>&-", 1}}) {
    INFO(lost.name);
    CHECK(Shell(run + ShellQuoted(path(lost.name)) + lost.words).exit_code == lost.exit_code);
    // No message has gone into a file that took the number of a closed stream.
    CHECK(theta(lost.name) == theta("whole"));
    CHECK(files(lost.name) == files("whole"));
  }
  WriteTextFile(path("tasks.json"), R"({"tasks": {"bowl": {"task": {"type": "QuadraticTask"}}}})");
  const std::string eval = "eval --baselines none --steps 2 --seeds 1 --tasks " +
                           ShellQuoted(path("tasks.json")) + " --theta " +
                           ShellQuoted(path("whole/theta.safetensors")) + " --out ";
  CHECK(Shell(eval + ShellQuoted(path("eval")) + " >/dev/full 2>&1").exit_code == 1);
  CHECK(std::filesystem::exists(path("eval") + "/table.md"));
}

TEST_CASE("A run says whether there are weights of a lowest held-out loss") {
  const TempDirectory directory;
  const auto run = [&](const std::string& words) {
    return Shell(
               "meta-train --preset smoke --threads 1 --overwrite --set eval_every=10 "
               "--set eval_steps=20 --set eval_seeds=1 --set 'eval_tasks=[{\"type\": "
               "\"QuadraticTask\"}]' --out " +
               ShellQuoted(directory / "run") + " " + words)
        .output;
  };
  CHECK(run("").find("The weights of the lowest held-out loss are in ") != std::string::npos);
  // Steps of some 1e30: no loss is finite.
  CHECK(run("--set learned_optimizer.exp_mult=1e30")
            .find("There are no weights of the lowest held-out loss: theta was not judged, or no "
                  "loss was a finite number\n") != std::string::npos);
}

TEST_CASE("A theta file is the same whether the first process gathers checkpoints or not") {
  const TempDirectory directory;
  const auto theta = [&](const std::string& gather) {
    const std::string out = directory.path() + "/" + gather;
    REQUIRE(Shell("meta-train --preset smoke --threads 1 --set gather_checkpoints=" + gather +
                  " --out " + ShellQuoted(out))
                .exit_code == 0);
    return ReadTextFile(out + "/theta.safetensors");
  };
  CHECK(theta("true") == theta("false"));
}

TEST_CASE("A limit of the size of files is an error that names the file") {
  const TempDirectory directory;
  const FinishedProcess finished = RunProcess(
      {"/bin/sh", "-c",
       "ulimit -f 1; exec '" + BuildPath("lopt") +
           "' meta-train --preset smoke --threads 1 --out '" + directory.path() + "/run'"});
  INFO(finished.errors);
  CHECK(finished.exit_code == 1);
  CHECK(finished.errors.find("cannot write " + directory.path() + "/run/") != std::string::npos);
  CHECK(finished.errors.find("File too large") != std::string::npos);
}

TEST_CASE("A named pipe in the place of a file that is read is an error that names it") {
  const TempDirectory directory;
  const auto path = [&](const std::string& name) { return directory.path() + "/" + name; };
  REQUIRE(
      Shell("meta-train --preset smoke --threads 1 --out " + ShellQuoted(path("run"))).exit_code ==
      0);
  const auto names_the_pipe = [&](const std::string& words, const std::string& pipe) {
    INFO(words);
    const FinishedProcess finished = Shell(words);
    INFO(finished.errors);
    CHECK(finished.exit_code == 1);
    CHECK(finished.errors.find(pipe + ": it is a named pipe, wanted a file") != std::string::npos);
  };
  struct Read {
    std::string file, words;
  };
  for (const Read& read :
       {Read{"metrics.jsonl", "report "}, Read{"throughput.jsonl", "report "},
        Read{"config.json", "report "},
        Read{"metrics.jsonl", "meta-train --resume --steps 21 --out "},
        Read{"windows.bin", "meta-train --resume --steps 21 --out "},
        Read{"checkpoints/step-00000020/manifest.json", "meta-train --resume --out "}}) {
    const std::string file = path("run/" + read.file);
    std::filesystem::rename(file, path("kept"));
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    names_the_pipe(read.words + ShellQuoted(path("run")), file);
    std::filesystem::rename(path("kept"), file);
  }
  const std::string pipe = path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const char* words :
       {"meta-train ", "train ", "inspect ", "inspect --json ", "import --out /dev/null ",
        "eval --tasks ", "eval --out /dev/null --theta ", "export --format npz --out /dev/null ",
        "check --task ", "bench --estimators ", "describe --plugin ",
        "worker --join 127.0.0.1:1 --token-file "}) {
    names_the_pipe(words + ShellQuoted(pipe), pipe);
  }
  for (const auto& [format, name] :
       {std::pair("idx", "train-images-idx3-ubyte"), std::pair("idx", "train-images-idx3-ubyte.gz"),
        std::pair("cifar10", "data_batch_1.bin"), std::pair("csv", "train.csv"),
        std::pair("npz", "x.npz")}) {
    const std::string data = path(std::string("data-") + name);
    std::filesystem::create_directory(data);
    const std::string file = data + "/" + name;
    WriteTextFile(data + "/train-labels-idx1-ubyte", "labels of idx");
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    names_the_pipe(std::string("describe --data-dir ") + ShellQuoted(data) +
                       " --task '{\"type\": \"ImageMLP\", \"data\": \"" + format + "\"}'",
                   file);
  }
  // What a shell has open for the program is no such thing.
  const FinishedProcess config =
      RunProcess({"/bin/bash", "-c",
                  BuildPath("lopt") + " check --config <(echo '{') 2>&1; echo '{' | " +
                      BuildPath("lopt") + " check --config /dev/stdin 2>&1"});
  INFO(config.output);
  CHECK(config.output.find("named pipe") == std::string::npos);
  CHECK(config.output.find("lopt: /dev/fd/") != std::string::npos);
  CHECK(config.output.find("lopt: /dev/stdin: line 2") != std::string::npos);
}

TEST_CASE("A place that cannot be looked at is an error that names it and says why") {
  const TempDirectory directory;
  const std::string loop = directory.path() + "/loop";
  std::filesystem::create_symlink(loop, loop);
  const std::string reason = ": Too many levels of symbolic links";
  for (const char* words :
       {"report ", "inspect ", "eval --out /dev/null --theta ", "check --task ", "meta-train ",
        "meta-train --preset smoke --out ", "eval --resume --out ", "manual --out "}) {
    INFO(words);
    const FinishedProcess finished = Shell(words + ShellQuoted(loop));
    INFO(finished.errors);
    CHECK(finished.exit_code == 1);
    CHECK(finished.errors.find(loop) != std::string::npos);
    CHECK(finished.errors.find(reason) != std::string::npos);
    CHECK(finished.errors.find("filesystem error") == std::string::npos);
  }
}

TEST_CASE("Threads that cannot be started are an error") { CheckWithFewThreads(0, ""); }

TEST_CASE("Threads that cannot be started are an error also where a learner listens") {
  if (!FindModule(kGrpcModule)) {
    SkipTest("the grpc module is " + WhyNoModule(kGrpcModule));
    return;
  }
  for (const int threads : {0, 1, 3, 6}) {
    CheckWithFewThreads(threads, " --listen 127.0.0.1:0 --insecure");
  }
}

TEST_CASE("Names of files that are not UTF-8 are as good as others for every command") {
  const TempDirectory directory;
  const std::string place = directory.path() + "/\xff\xc3(";
  std::filesystem::create_directory(place);
  const auto good = [&](const std::string& words) {
    INFO(words);
    const FinishedProcess finished = Shell(words);
    INFO(finished.errors);
    CHECK(finished.exit_code == 0);
    return finished.output;
  };
  const auto in = [&](const std::string& name) { return "'" + place + "/" + name + "' "; };
  const std::string theta = in("run/theta.safetensors");
  good("meta-train --preset smoke --threads 1 --out " + in("run"));
  good("meta-train --resume --steps 22 --out " + in("run"));
  good("meta-train " + in("run/config.json") + "--steps 2 --threads 1 --out " + in("again"));
  good("inspect " + theta);
  good("inspect --json " + theta);
  good("export " + theta + "--format npz --out " + in("theta.npz"));
  WriteTextFile(place + "/\xff.json",
                R"({"tasks": {"bowl": {"task": {"type": "QuadraticTask"}}}})");
  const std::string eval = "eval --baselines none --steps 2 --seeds 2 --out " + in("eval");
  const std::string named =
      eval + "--tasks " + in("\xff.json") + "--theta " + theta + "--theta a=" + theta;
  good(named);
  CHECK(ReadTextFile(place + "/eval/manifest.json").find("\\\\xff\\\\xc3(") != std::string::npos);
  good(named + "--resume");
  good("report " + in("run") + in("eval") + "--out " + in("page.html"));
  WriteTextFile(
      place + "/train.json",
      R"({"task": {"type": "QuadraticTask"}, "optimizer": {"type": "SGD", "learning_rate": 0.1}, "steps": 3})");
  good("train " + in("train.json") + "--out " + in("trained"));
}

TEST_CASE("What a stranger has written does not drive the terminal by way of what is shown") {
  const TempDirectory directory;
  const auto shown = [&](const std::string& words) {
    INFO(words);
    const FinishedProcess finished = Shell(words);
    INFO(finished.errors);
    CHECK(finished.exit_code == 0);
    CHECK(HasPlainLines(finished.output));
    CHECK(HasPlainLines(finished.errors));
    return finished.output;
  };
  const std::string hostile = "\x1b[2J\x07\xc2\x9b\xe2\x80\xae";
  ArrayFile file;
  file.arrays.Set("name" + hostile, Array::Of<float>({1}, std::vector<float>{1}));
  file.metadata = {{"key" + hostile, "text" + hostile},
                   {"list", "[\"\xc2\x9b\"]"},
                   {"config", "{\"name\": \"\xc2\x9b\"}"}};
  WriteArrayFile(directory / "file.safetensors", file);
  WriteTextFile(directory / "notes.json", "{\"" + hostile + "\": 1}\n");
  const std::string path = "'" + directory.path() + "/file.safetensors'";
  CHECK(shown("inspect " + path).find("name\\x1b[2J") != std::string::npos);
  CHECK(shown("inspect --json " + path).find("name\\u001b[2J\\u0007\\u009b") != std::string::npos);
  CHECK(shown("inspect '" + directory.path() + "'").find("\\x1b[2J") != std::string::npos);

  WriteTextFile(directory / "tasks.json",
                R"({"tasks": {"bowl\u001b[2J\u009b": {"task": {"type": "QuadraticTask"}},
                    "other\u0007\nbowl": {"task": {"type": "QuadraticTask"}}}})");
  const std::string out =
      shown("eval --baselines Adam,SGD --trials 2 --steps 2 --seeds 3 --verbose --tasks '" +
            directory.path() + "/tasks.json' --out '" + directory.path() + "/out'");
  CHECK(out.find("bowl\\x1b[2J") != std::string::npos);   // in a line of the progress
  CHECK(out.find("## bowl \\[2J") != std::string::npos);  // in a table
}

TEST_CASE("A reader that has seen enough is no error") {
  const FinishedProcess head = RunProcess(
      {"/bin/sh", "-c", "{ '" + BuildPath("lopt") + "' describe; echo $? >&2; } | head -n 1"});
  CHECK(head.output == "# The config file\n");
  CHECK((head.errors == "0\n" || head.errors == "141\n"));  // 128 + SIGPIPE
}

}  // namespace lopt
