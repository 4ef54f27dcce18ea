#include "lopt/tools/report/files.h"

#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lopt/base/file.h"

namespace lopt {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kDamageShown = 5;

// Takes the numbers of one line. The keys of a line are mostly those of the line before, in the
// same order, so each is first looked for where it was then.
class LineReader : public nlohmann::json_sax<Json> {
 public:
  explicit LineReader(std::map<std::string, Series>* series) : series_(series) {}

  // Returns what is wrong with the line, empty if nothing is.
  std::string Read(std::string_view line) {
    numbers_.clear();
    error_.clear();
    depth_ = 0;
    has_step_ = false;
    if (!Json::sax_parse(line, this) && error_.empty()) error_ = "it is not JSON";
    if (error_.empty() && !has_step_) error_ = "it has no integer 'step'";
    if (!error_.empty()) return error_;
    for (const auto& [series, value] : numbers_) {
      series->step.push_back(step_);
      series->value.push_back(value);
    }
    return "";
  }

  bool key(string_t& name) override {
    is_step_ = name == "step";
    if (is_step_) return true;
    if (numbers_.size() < order_.size() && *order_[numbers_.size()].first == name) {
      current_ = order_[numbers_.size()].second;
      return true;
    }
    const auto at = series_->try_emplace(name).first;
    current_ = &at->second;
    order_.resize(numbers_.size());
    order_.emplace_back(&at->first, current_);
    return true;
  }
  bool number_integer(number_integer_t value) override { return Number(value, true); }
  bool number_unsigned(number_unsigned_t value) override { return Number(value, true); }
  bool number_float(number_float_t value, const string_t&) override { return Number(value, false); }
  bool string(string_t& text) override {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "nan") return Number(std::numeric_limits<double>::quiet_NaN(), false);
    if (text == "inf") return Number(kInfinity, false);
    if (text == "-inf") return Number(-kInfinity, false);
    return NotANumber();
  }
  bool start_object(size_t) override { return depth_++ == 0 || NotANumber(); }
  bool end_object() override { return true; }
  bool null() override { return NotANumber(); }
  bool boolean(bool) override { return NotANumber(); }
  bool binary(binary_t&) override { return NotANumber(); }
  bool start_array(size_t) override { return NotANumber(); }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    error_ = fmt::format("it is not JSON from byte {} on", position);
    return false;
  }

 private:
  bool NotANumber() {
    error_ = "it is not an object of numbers";
    return false;
  }
  template <class T>
  bool Number(T value, bool integer) {
    if (depth_ == 0) return NotANumber();
    if (!is_step_) {
      numbers_.emplace_back(current_, static_cast<double>(value));
    } else {
      has_step_ = integer;
      step_ = static_cast<double>(value);
    }
    return true;
  }

  std::map<std::string, Series>* series_;
  std::vector<std::pair<const std::string*, Series*>> order_;  // of the keys before
  std::vector<std::pair<Series*, double>> numbers_;            // of this line
  Series* current_ = nullptr;
  double step_ = 0;
  int depth_ = 0;
  bool is_step_ = false;
  bool has_step_ = false;
  std::string error_;
};

}  // namespace

MetricsFile ReadMetricsFile(const std::string& path) {
  MetricsFile file;
  if (!Exists(path)) {
    file.damage.push_back(path + " is missing");
    return file;
  }
  const std::string text = ReadTextFile(path);
  LineReader reader(&file.series);
  size_t damaged = 0;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const bool complete = end != std::string::npos;
    const std::string_view line =
        std::string_view(text).substr(at, complete ? end - at : std::string::npos);
    at = complete ? end + 1 : text.size();
    ++number;
    if (!complete) {
      file.damage.push_back(
          fmt::format("{}: line {}, the last one, is cut off after {} bytes; it is left out", path,
                      number, line.size()));
      continue;
    }
    const std::string error = reader.Read(line);
    if (error.empty()) {
      ++file.records;
    } else if (++damaged <= kDamageShown) {
      file.damage.push_back(
          fmt::format("{}: line {} is damaged ({}); it is left out", path, number, error));
    }
  }
  if (damaged > kDamageShown) {
    file.damage.push_back(
        fmt::format("{}: {} more damaged lines are left out", path, damaged - kDamageShown));
  }
  std::erase_if(file.series, [](const auto& entry) { return entry.second.step.empty(); });
  return file;
}

}  // namespace lopt
