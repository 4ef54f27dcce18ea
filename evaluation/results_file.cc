#include "lopt/evaluation/results_file.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"

namespace lopt {
namespace {

using Json = nlohmann::json;

// JSON readers take numbers as doubles. Of all floats this is the only one (with its negative)
// whose shortest digits, 7.038531e-26, as a double round to another float.
constexpr float kNotThroughDouble = 0x1.5c87fap-84f;

// Appends values as JSON.
class Writer {
 public:
  explicit Writer(std::string* out) : out_(out) {}

  void Write(const std::string& text) const {
    try {
      *out_ += Json(text).dump();
    } catch (const Json::exception&) {
      Fail("results: the name '{}' is not UTF-8", text);
    }
  }
  void Write(int64_t number) const { Append(number); }
  void Write(const std::vector<int64_t>& numbers) const {
    WriteList(numbers, [&](int64_t number) {
      if (number == 0) {
        *out_ += "null";
      } else {
        Append(number);
      }
    });
  }
  void Write(const std::vector<float>& numbers) const { WriteNumbers(numbers); }
  void Write(const std::vector<double>& numbers) const { WriteNumbers(numbers); }
  void Write(const std::vector<bool>& flags) const {
    WriteList(flags, [&](bool flag) { *out_ += flag ? "true" : "false"; });
  }
  void Write(const std::map<std::string, std::vector<double>>& lists) const {
    *out_ += '{';
    for (bool first = true; const auto& [name, numbers] : lists) {
      if (!std::exchange(first, false)) *out_ += ',';
      Write(name);
      *out_ += ':';
      Write(numbers);
    }
    *out_ += '}';
  }

 private:
  void Append(int64_t number) const { fmt::format_to(std::back_inserter(*out_), "{}", number); }

  // Each number as the shortest text that reads back as the same number of its type.
  template <class Numbers>
  void WriteNumbers(const Numbers& numbers) const {
    WriteList(numbers, [&](auto number) {
      if (number == 0) {
        *out_ += std::signbit(number) ? "-0.0" : "0";  // readers take "-0" for an integer
      } else if (std::abs(static_cast<double>(number)) == kNotThroughDouble) {
        fmt::format_to(std::back_inserter(*out_), "{}", static_cast<double>(number));
      } else if (std::isfinite(number)) {
        fmt::format_to(std::back_inserter(*out_), "{}", number);
      } else {
        *out_ += std::isnan(number) ? R"("nan")" : number > 0 ? R"("inf")" : R"("-inf")";
      }
    });
  }

  template <class List, class WriteElement>
  void WriteList(const List& list, const WriteElement& write) const {
    *out_ += '[';
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) *out_ += ',';
      write(list[i]);
    }
    *out_ += ']';
  }

  std::string* out_;
};

// Reads one member; errors say which.
class Reader {
 public:
  Reader(const char* member, const Json& value) : member_(member), value_(value) {}

  void Read(std::string* text) const {
    Require(value_.is_string(), "{} must be text, got {}", member_, Shown(value_));
    *text = value_.get<std::string>();
  }
  void Read(int64_t* number) const { *number = Integer(value_); }
  void Read(std::vector<int64_t>* numbers) const {
    ReadList(numbers, [&](const Json& value) { return value.is_null() ? 0 : Integer(value); });
  }
  void Read(std::vector<float>* numbers) const {
    ReadList(numbers, [&](const Json& value) { return static_cast<float>(Number(value)); });
  }
  void Read(std::vector<double>* numbers) const {
    ReadList(numbers, [&](const Json& value) { return Number(value); });
  }
  void Read(std::vector<bool>* flags) const {
    ReadList(flags, [&](const Json& value) {
      Require(value.is_boolean(), "{} must be true or false, got {}", member_, Shown(value));
      return value.get<bool>();
    });
  }
  void Read(std::map<std::string, std::vector<double>>* lists) const {
    Require(value_.is_object(), "{} must be an object, got {}", member_, Shown(value_));
    for (const auto& [name, value] : value_.items()) {
      Reader(name.c_str(), value).Read(&(*lists)[name]);
    }
  }

 private:
  static std::string Shown(const Json& value) {
    const std::string text = value.dump();
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  int64_t Integer(const Json& value) const {
    Require(value.is_number_integer(), "{} must be a whole number, got {}", member_, Shown(value));
    return value.get<int64_t>();
  }

  double Number(const Json& value) const {
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    Require(value == "-inf", R"({} must be a number, "nan", "inf" or "-inf", got {})", member_,
            Shown(value));
    return -std::numeric_limits<double>::infinity();
  }

  template <class List, class ReadElement>
  void ReadList(List* list, const ReadElement& read) const {
    Require(value_.is_array(), "{} must be a list, got {}", member_, Shown(value_));
    list->reserve(value_.size());
    for (const Json& value : value_) list->push_back(read(value));
  }

  const char* member_;
  const Json& value_;
};

void CheckSizes(const RunResult& result) {
  const std::vector<int64_t>& steps = result.steps;
  Require(!steps.empty(), "steps is empty");
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t before = i == 0 ? 0 : steps[i - 1];
    Require(steps[i] > before, "steps must be ascending from 1, got {} after {}", steps[i], before);
  }
  const auto check = [](const char* member, size_t got, size_t wanted) {
    Require(got == wanted, "{} has {} numbers, wanted {}", member, got, wanted);
  };
  check("train_loss", result.train_loss.size(), static_cast<size_t>(steps.back()));
  check("final_train_loss", result.final_train_loss.size(), steps.size());
  check("final_train_accuracy", result.final_train_accuracy.size(), steps.size());
  check("mean_train_loss", result.mean_train_loss.size(), steps.size());
  check("test_loss", result.test_loss.size(), steps.size());
  Require(result.test_part_loss.size() % steps.size() == 0,
          "test_part_loss has {} numbers, wanted as many for each of {} numbers of steps",
          result.test_part_loss.size(), steps.size());
  check("test_accuracy", result.test_accuracy.size(), steps.size());
  check("seconds", result.seconds.size(), steps.size());
  if (!result.steps_to_adam.empty()) {
    check("steps_to_adam", result.steps_to_adam.size(), steps.size());
  }
  if (!result.learning_rate.empty()) {
    check("learning_rate", result.learning_rate.size(), steps.size());
  }
  for (const auto& [name, numbers] : result.hyperparameters) {
    check(name.c_str(), numbers.size(), steps.size());
  }
  check("blew_up", result.blew_up.size(), steps.size());
  const size_t tuned = result.trials == 0 ? 0 : steps.size();
  check("at_edge", result.at_edge.size(), tuned);
  check("tuning_loss", result.tuning_loss.size(), tuned);
}

RunResult ResultFromJson(const Json& line) {
  Require(line.is_object(), "not a JSON object");
  RunResult result;
  std::vector<const char*> missing;
  VisitMembers(result, [&](const char* name, auto&) {
    if (!line.contains(name)) missing.push_back(name);
  });
  Require(missing.empty(), "missing: {}", fmt::join(missing, ", "));
  VisitMembers(result,
               [&](const char* name, auto& member) { Reader(name, line.at(name)).Read(&member); });
  CheckSizes(result);
  return result;
}

}  // namespace

std::string ResultLine(const RunResult& result) {
  std::string line;
  line.reserve(256 + 12 * result.train_loss.size());
  const Writer writer(&line);
  VisitMembers(result, [&](const char* name, const auto& member) {
    fmt::format_to(std::back_inserter(line), "{}\"{}\":", line.empty() ? '{' : ',', name);
    writer.Write(member);
  });
  std::vector<bool> diverged;
  for (size_t i = 0; i < result.steps.size(); ++i) diverged.push_back(result.Diverged(i));
  line += ",\"diverged\":";
  writer.Write(diverged);
  line += '}';
  return line;
}

Results ReadResults(const std::string& path) {
  const std::string text = ReadTextFile(path);
  Results results;
  int64_t number = 0;
  for (size_t start = 0; start < text.size();) {
    ++number;
    const size_t newline = text.find('\n', start);
    const bool ends = newline != std::string::npos;
    const std::string_view line =
        std::string_view(text).substr(start, ends ? newline - start : std::string::npos);
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded() && !ends) {
      results.damage =
          fmt::format("{}: line {}, the last, is cut off and left out ({} results are whole)", path,
                      number, results.runs.size());
      return results;
    }
    try {
      Require(!json.is_discarded(), "not JSON");
      results.runs.push_back(ResultFromJson(json));
    } catch (const Error& error) {
      Fail("{}, line {}: {}", path, number, error.what());
    }
    start = ends ? newline + 1 : text.size();
  }
  return results;
}

}  // namespace lopt
