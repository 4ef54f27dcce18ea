#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/paths.h"

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// The folders that each folder may include, besides itself.
const std::map<std::string, Names>& AllowedFolders() {
  static const std::map<std::string, Names> allowed = {
      {"base", {}},
      {"tasks", {"base"}},
      {"lopt", {"base"}},
      {"torch", {"base", "tasks", "lopt"}},
      {"estimators", {"base", "tasks", "lopt"}},
      {"evaluation", {"base", "tasks", "lopt"}},
      {"learner", {"base", "tasks", "lopt", "estimators", "evaluation"}},
      {"tools", {"base", "tasks", "lopt", "estimators", "learner", "evaluation"}},
  };
  return allowed;
}

std::string FirstPart(const std::string& path) { return path.substr(0, path.find('/')); }

bool StartsWith(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// Whether a name between quotes is of the project, "lopt/FOLDER/...".
bool Own(const std::string& name) {
  return StartsWith(name, "lopt/") && AllowedFolders().contains(FirstPart(name.substr(5)));
}

// The file that an include line names, in angle brackets or, for quotes, as it is but for the
// "lopt/" of the project's own; empty for other lines.
std::string IncludedFile(const std::string& line) {
  const size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line[hash] != '#') return "";
  const size_t word = line.find_first_not_of(" \t", hash + 1);
  if (word == std::string::npos || line.compare(word, 7, "include") != 0) return "";
  const size_t open = line.find_first_of("\"<", word);
  if (open == std::string::npos) return "";
  const size_t close = line.find_first_of("\">", open + 1);
  if (close == std::string::npos) return "";
  const std::string name = line.substr(open + 1, close - open - 1);
  if (line[open] == '<') return '<' + name + '>';
  return Own(name) ? name.substr(5) : name;
}

// Whether `file` (path from the repository root) must not include `included`, and why; empty if it
// may.
std::string Objection(const std::string& file, const std::string& included) {
  const bool is_header = fs::path(file).extension() == ".h";
  const std::string from = FirstPart(file);
  const std::string to = FirstPart(included);
  const auto& allowed = AllowedFolders();
  if (allowed.contains(from) && allowed.contains(to) && from != to &&
      !allowed.at(from).contains(to)) {
    return file + " includes " + included + ": " + from + "/ may not know " + to + "/";
  }
  if ((to == "<torch" || to == "<ATen" || to == "<c10") && allowed.contains(from) &&
      from != "torch") {
    return file + " includes " + included + ": LibTorch belongs in torch/";
  }
  if (included == "<mpi.h>" && file != "learner/transport/mpi_transport.cc") {
    return file + " includes mpi.h: MPI belongs in learner/transport/mpi_transport.cc";
  }
  if (StartsWith(included, "<grpc") && !StartsWith(file, "learner/elastic/grpc/")) {
    return file + " includes gRPC, which belongs in learner/elastic/grpc/";
  }
  if (included == "base/instances.h" && file != "base/instances.cc") {
    return file + " includes " + included + ": it is precompiled";
  }
  if (to == "<nlohmann" && is_header && included != "<nlohmann/json_fwd.hpp>" &&
      file != "base/instances.h") {
    return file + " includes " + included + ": a header may include nlohmann/json_fwd.hpp only";
  }
  if (StartsWith(included, "tests/") && allowed.contains(from)) {
    return file + " includes " + included + ": " + from + "/ may not know tests/";
  }
  return "";
}

// What of the system a line names that belongs in base/platform.cc; empty if nothing.
std::string SystemName(const std::string& line) {
  for (const char* name :
       {"prctl", "signalfd", "eventfd", "memfd_create", "/proc/", "\"/proc\"", "pipe2", "accept4",
        "malloc_trim", "SOCK_NONBLOCK", "epoll", "TCP_INFO", "SO_BUF_LOCK", "sched_getaffinity",
        "cpu_set_t", "dladdr1", "<link.h>", "st_mtim"}) {
    if (line.find(name) != std::string::npos) return name;
  }
  return "";
}

// Paths from the repository root of the project's C++ sources.
std::vector<std::string> SourceFiles() {
  const fs::path root = lopt::SourcePath("");
  std::vector<std::string> files;
  std::vector<std::string> folders = {"tests", "examples"};
  for (const auto& [folder, unused] : AllowedFolders()) folders.push_back(folder);
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc" || extension == ".cu") {
        files.push_back(fs::relative(entry.path(), root));
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("Every include follows an allowed arrow between folders") {
  const std::vector<std::string> files = SourceFiles();
  REQUIRE(files.size() > 20);
  for (const std::string& file : files) {
    std::ifstream stream(lopt::SourcePath(file));
    REQUIRE(stream.good());
    std::string line;
    while (std::getline(stream, line)) {
      const std::string included = IncludedFile(line);
      if (!included.empty()) CHECK_EQ(Objection(file, included), "");
    }
  }
}

namespace {

// A program's own "base/error.h" must not stand in for ours.
bool IsIncludedWithoutLopt(const std::string& line) {
  const std::string name = IncludedFile(line);
  return AllowedFolders().contains(FirstPart(name)) && name.find('/') != std::string::npos &&
         line.find("\"lopt/" + name) == std::string::npos;
}

// What includes of its folders it names, by file: those of the project.
std::vector<std::string> IncludedByFile(const std::string& file) {
  std::vector<std::string> names;
  std::ifstream stream(lopt::SourcePath(file));
  std::string line;
  while (std::getline(stream, line)) {
    const std::string name = IncludedFile(line);
    if (AllowedFolders().contains(FirstPart(name))) names.push_back(name);
  }
  return names;
}

// The lines of cmake/public_headers.list.
Names PublicHeaders() {
  Names headers;
  std::ifstream list(lopt::SourcePath("cmake/public_headers.list"));
  REQUIRE(list.good());
  std::string line;
  while (std::getline(list, line)) {
    if (!line.empty() && line[0] != '#') headers.insert(line);
  }
  return headers;
}

// What the pages of the reference describe.
Names HeadersOfTheReference() {
  Names headers;
  const std::string start = "```{doxygenfile} ";
  for (const auto& page : fs::directory_iterator(lopt::SourcePath("docs/reference"))) {
    std::ifstream stream(page.path());
    std::string line;
    while (std::getline(stream, line)) {
      if (StartsWith(line, start)) headers.insert(line.substr(start.size()));
    }
  }
  return headers;
}

}  // namespace

TEST_CASE("Includes of the project begin with lopt/, so that no file of a program stands in") {
  for (const std::string& file : SourceFiles()) {
    std::ifstream stream(lopt::SourcePath(file));
    std::string line;
    while (std::getline(stream, line)) {
      // Generated by protoc, which names it so.
      if (line == "#include \"learner/elastic/elastic.grpc.pb.h\"") continue;
      CHECK_MESSAGE(!IsIncludedWithoutLopt(line), file, ": ", line);
    }
  }
  CHECK(IsIncludedWithoutLopt("#include \"base/key.h\""));
  CHECK_FALSE(IsIncludedWithoutLopt("#include \"lopt/base/key.h\""));
  CHECK_FALSE(IsIncludedWithoutLopt("#include \"rosenbrock.h\""));
  CHECK_FALSE(IsIncludedWithoutLopt("#include <torch/torch.h>"));
}

TEST_CASE("Public headers are those of the reference and of examples, with what they include") {
  const Names headers = PublicHeaders();
  for (const std::string& header : headers) {
    CHECK_MESSAGE(fs::exists(lopt::SourcePath(header)), header);
    for (const std::string& included : IncludedByFile(header)) {
      if (included == "base/headers_hash.h") continue;  // generated, installed as well
      CHECK_MESSAGE(headers.contains(included), header, " is public and includes ", included);
    }
  }
  const Names described = HeadersOfTheReference();
  REQUIRE(described.size() > 20);
  for (const std::string& header : described) CHECK_MESSAGE(headers.contains(header), header);
  for (const std::string& file : SourceFiles()) {
    if (FirstPart(file) != "examples") continue;
    for (const std::string& included : IncludedByFile(file)) {
      CHECK_MESSAGE(headers.contains(included), file, " includes ", included);
    }
  }
}

TEST_CASE("The check objects to each kind of forbidden include") {
  CHECK_NE(Objection("base/key.cc", "tasks/task_family.h"), "");
  CHECK_NE(Objection("tasks/quadratic/quadratic.cc", "lopt/mlp/mlp_lopt.h"), "");
  CHECK_NE(Objection("lopt/mlp/mlp_lopt.cc", "tasks/quadratic/quadratic.h"), "");
  CHECK_NE(Objection("estimators/pes.cc", "learner/worker.h"), "");
  CHECK_NE(Objection("evaluation/held_out.h", "learner/meta_train_config.h"), "");
  CHECK_NE(Objection("learner/worker.cc", "tools/commands.h"), "");
  CHECK_NE(Objection("lopt/mlp/mlp_lopt.cc", "<torch/torch.h>"), "");
  CHECK_NE(Objection("learner/worker.cc", "torch/torch_task.h"), "");
  CHECK_NE(Objection("torch/torch_task.cc", "estimators/persistent_gradient.h"), "");
  CHECK_NE(Objection("tools/version.cc", "<mpi.h>"), "");
  CHECK_NE(Objection("base/config.h", "<nlohmann/json.hpp>"), "");
  CHECK_NE(Objection("base/config.cc", "base/instances.h"), "");
  CHECK_NE(Objection("base/key.cc", "tests/golden_dir.h"), "");

  CHECK_EQ(Objection("torch/torch_task.cc", "<torch/torch.h>"), "");
  CHECK_EQ(Objection("torch/learned_optimizer.cc", "lopt/mlp/mlp_lopt.h"), "");
  CHECK_EQ(Objection("learner/transport/mpi_transport.cc", "<mpi.h>"), "");
  CHECK_NE(Objection("learner/elastic/frame.h", "<grpcpp/grpcpp.h>"), "");
  CHECK_EQ(Objection("learner/elastic/grpc/grpc_stream.h", "<grpcpp/grpcpp.h>"), "");
  CHECK_EQ(Objection("learner/job/learner_role.h", "evaluation/held_out.h"), "");
  CHECK_EQ(Objection("base/config.cc", "<nlohmann/json.hpp>"), "");
  CHECK_EQ(Objection("base/config.h", "<nlohmann/json_fwd.hpp>"), "");
  CHECK_EQ(Objection("tools/lopt.cc", "learner/job/meta_trainer.h"), "");
  CHECK_EQ(Objection("tests/tasks_quadratic_test.cc", "lopt/mlp/mlp_lopt.h"), "");
}

TEST_CASE("What only Linux has is named in base/platform alone") {
  bool found = false;
  for (const std::string& file : SourceFiles()) {
    if (!AllowedFolders().contains(FirstPart(file))) continue;
    std::ifstream stream(lopt::SourcePath(file));
    std::string line;
    while (std::getline(stream, line)) {
      const std::string name = SystemName(line);
      if (name.empty()) continue;
      found = true;
      CHECK_MESSAGE(fs::path(file).replace_extension() == "base/platform", file, " names ", name,
                    ", which belongs in base/platform.cc: ", line);
    }
  }
  CHECK(found);
}

TEST_CASE("Functions of std::filesystem that throw errors in its words are not called") {
  // The project's own (base/file.h) say what was to be done. These take an error_code, or throw.
  const std::regex call(
      R"((?:fs|filesystem)::(?:exists|is_directory|is_regular_file|is_empty|file_size|absolute|)"
      R"(canonical|create_\w+|(?:recursive_)?directory_iterator|remove\w*|rename|copy\w*|)"
      R"(equivalent|temp_directory_path|current_path|read_symlink|last_write_time|status|relative)\()");
  const std::regex error(R"(\b(?:error|ignored|none)\))");
  size_t calls = 0;
  for (const std::string& file : SourceFiles()) {
    if (!AllowedFolders().contains(FirstPart(file))) continue;
    std::ifstream stream(lopt::SourcePath(file));
    for (std::string line; std::getline(stream, line);) {
      if (!std::regex_search(line, call)) continue;
      ++calls;
      CHECK_MESSAGE(std::regex_search(line, error), file, ": ", line);
    }
  }
  CHECK(calls > 5);
}

// Why a statement of a test passes where it should not; empty if it does not.
std::string PassesWrongly(const std::string& statement) {
  static const std::regex forgets(
      R"(\b\S*(?:worst|apart|distance|difference|error|off)\S* = (?:std::)?f?max\(\{?\S*\w, |)"
      R"(= (?:std::)?f?max\(\{?[^,()]+, (?:std::)?f?abs\(.* - )");
  static const std::regex replaces(R"(if \(!\((\S+) <=? (\S+)\)\) \{? ?\2 = \1)");
  static const std::regex compares(
      R"((?:CHECK|REQUIRE)_[LG][TE]\(.*\.r?find\(|\.r?find\([^<>]*\) [<>] \S+\.r?find\()");
  if (statement.find("max(") != std::string::npos && std::regex_search(statement, forgets)) {
    return "std::max drops NaN: tests/farthest.h has Farther";
  }
  if (statement.find("if (!(") != std::string::npos && std::regex_search(statement, replaces)) {
    return "the next number replaces NaN: tests/farthest.h has Farther";
  }
  if (statement.find("find(") != std::string::npos && std::regex_search(statement, compares)) {
    return "a part that is missing is behind all others: tests/text_parts.h has At";
  }
  return "";
}

// The statements of a file, each in one line.
std::vector<std::string> Statements(const std::string& file) {
  std::vector<std::string> statements = {""};
  std::ifstream stream(lopt::SourcePath(file));
  for (std::string word; stream >> word;) {
    statements.back() += (statements.back().empty() ? "" : " ") + word;
    if (word.ends_with(';') || word == "}") statements.emplace_back();
  }
  return statements;
}

TEST_CASE("Tests find a NaN among distances, and a text that is missing") {
  for (const std::string& file : SourceFiles()) {
    if (FirstPart(file) != "tests" || file == "tests/layering_test.cc") continue;
    for (const std::string& statement : Statements(file)) {
      const std::string why = PassesWrongly(statement);
      CHECK_MESSAGE(why.empty(), file, ": ", why, ": ", statement);
    }
  }
  CHECK_NE(PassesWrongly("worst = std::max(worst, Difference(a, b));"), "");
  CHECK_NE(PassesWrongly("{ largest = std::max(largest, std::abs(double{a[i]} - b[i]));"), "");
  CHECK_NE(PassesWrongly("worst = std::max({worst, std::abs(a[i] - b[i]), c});"), "");
  CHECK_NE(PassesWrongly("if (!(here <= worst)) worst = here;"), "");
  CHECK_NE(PassesWrongly("CHECK_LT(text.find(\"a\"), text.find(\"b\"));"), "");
  CHECK_NE(PassesWrongly("CHECK(text.find(\"a\") < text.find(\"b\"));"), "");
  CHECK_EQ(PassesWrongly("largest = std::max(largest, std::abs(a[i]));"), "");
  CHECK_EQ(PassesWrongly("CHECK(text.find(\"a\") == 3);"), "");
}

// Whether a text of the line has an option of a command line: "resume it (--resume)".
bool SaysOption(const std::string& line) {
  static const std::regex text(R"re("[^"]*--[a-z][^"]*")re");
  return std::regex_search(line.substr(0, line.find("//")), text);
}

TEST_CASE("Libraries call options in the words of whoever calls") {
  for (const std::string& file : SourceFiles()) {
    const std::string folder = FirstPart(file);
    if (!AllowedFolders().contains(folder) || folder == "tools") continue;
    // What the program alone has: plug-ins, and workers that join a job.
    if (file == "base/registry.h" || StartsWith(file, "learner/elastic/")) continue;
    std::ifstream stream(lopt::SourcePath(file));
    for (std::string line; std::getline(stream, line);) {
      if (line.find("cmake --") != std::string::npos) continue;  // not an option of lopt
      CHECK_MESSAGE(!SaysOption(line), file, ": base/option_words.h knows the words: ", line);
    }
  }
  CHECK(SaysOption("  Fail(\"it is there: replace it (--overwrite)\");"));
  CHECK_FALSE(SaysOption("  Fail(\"{} is there\", --i);"));
  CHECK_FALSE(SaysOption("// \"--overwrite\""));
}

// The pages of the project, but for the history, which names files as they were.
std::vector<std::string> Pages() {
  std::vector<std::string> pages = {"README.md", "CONTRIBUTING.md"};
  const fs::path root = lopt::SourcePath("");
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(fs::relative(entry.path(), root));
  }
  return pages;
}

TEST_CASE("Sources that pages name are there") {
  std::string folders = "tests";
  for (const auto& [folder, unused] : AllowedFolders()) folders += "|" + folder;
  // "lopt/tasks/registry.h" as programs include it, "tasks/registry.{h,cc}".
  const std::regex source(R"((?:^|[^\w./-])(?:lopt/)?((?:)" + folders +
                          R"()/[a-z0-9_/-]+)\.(h|cc|cu|\{h,cc\})(?![\w.]))");
  size_t named = 0;
  for (const std::string& page : Pages()) {
    std::ifstream stream(lopt::SourcePath(page));
    for (std::string line; std::getline(stream, line);) {
      for (std::sregex_iterator found(line.begin(), line.end(), source), end; found != end;
           ++found) {
        const std::string name = (*found)[1];
        const std::string extension = (*found)[2];
        if (name == "torch/torch" || name == "torch/script") continue;  // LibTorch's
        ++named;
        for (const char* one : {"h", "cc", "cu"}) {
          if (extension != one && (extension != "{h,cc}" || one == std::string("cu"))) continue;
          const std::string file = name + "." + one;
          CHECK_MESSAGE((fs::exists(lopt::SourcePath(file)) ||
                         file == "base/headers_hash.h"),  // which is generated
                        page, " names ", file, ", which is not there");
        }
      }
    }
  }
  CHECK(named > 100);
}

TEST_CASE("Include lines are found with any spacing and either kind of quote") {
  CHECK_EQ(IncludedFile("#include \"lopt/base/key.h\""), "base/key.h");
  CHECK_EQ(IncludedFile("  #  include <mpi.h>  // why"), "<mpi.h>");
  CHECK_EQ(IncludedFile("// #include <mpi.h>"), "");
  CHECK_EQ(IncludedFile("int include = 0;"), "");
}
