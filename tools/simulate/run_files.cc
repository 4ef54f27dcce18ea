#include "lopt/tools/simulate/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/event_records.h"
#include "lopt/base/file.h"
#include "lopt/base/strict_json.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/worker_files.h"
#include "lopt/lopt/theta_file.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

struct Masked {
  std::string_view file;   // the entries that begin so
  std::string_view field;  // the members that begin so; empty: what the file says
};

// All that a run may say otherwise than the undisturbed one.
constexpr Masked kMasked[] = {
    // Clocks. A line of throughput.jsonl is written when a second has gone by, so which updates
    // have one is the clock's, too.
    {"events", "wall_time"},
    {"throughput.jsonl", "seconds"},
    {"throughput.jsonl", "updates_per_second"},
    {"throughput.jsonl", "inner_steps_per_second"},
    {"status/rank-0.json", "time_seconds"},
    // Names of processes.
    {"status/rank-0.json", "host"},
    {"status/rank-0.json", "pid"},
    // What a seed draws, and may change at a resume.
    {"config.json", "mode"},
    {"config.json", "checkpoint_steps"},
    {"config.json", "keep_last"},
    {"config.json", "gather_checkpoints"},
    {"config.json", "worker_timeout_seconds"},
    // Windows that were lost with processes. The ledger is compared with the windows that began.
    {"metrics.jsonl", "lost_steps/"},
    {"events", "lost_steps/"},
    {"checkpoints/", "ledger/"},
    {"checkpoints/", "journal_position"},
    {"windows.bin", ""},
};

bool IsMasked(std::string_view file, std::string_view field) {
  return std::ranges::any_of(kMasked, [&](const Masked& masked) {
    return file.starts_with(masked.file) && field.starts_with(masked.field);
  });
}

std::string Unmasked(std::string_view file, const Json& object) {
  Json left = Json::object();
  for (const auto& [key, value] : object.items()) {
    if (!IsMasked(file, key)) left[key] = value;
  }
  return left.dump();
}

std::vector<Json> LinesOf(const std::string& text, const std::string& name) {
  std::vector<Json> lines;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    Require(end != std::string::npos, "{} ends in the middle of a line", name);
    lines.push_back(ParseStrictJson(std::string_view(text).substr(at, end - at), name, false));
    at = end + 1;
  }
  return lines;
}

std::string Joined(std::string_view file, const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += Unmasked(file, line) + "\n";
  return text;
}

// A field of a message as protobuf writes it.
struct WireField {
  uint64_t number = 0;
  uint64_t value = 0;           // of a number; of a float or double its bits
  std::string_view bytes = {};  // of text or a message
};

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view left) : left_(left) {}

  // None at the end.
  std::optional<WireField> Next() {
    if (left_.empty()) return std::nullopt;
    const uint64_t tag = Varint();
    WireField field{.number = tag >> 3};
    switch (tag & 7) {
      case 0:
        field.value = Varint();
        break;
      case 1:
        field.value = Fixed(8);
        break;
      case 2:
        field.bytes = Take(Varint());
        break;
      case 5:
        field.value = Fixed(4);
        break;
      default:
        Fail("a message has a field of kind {}", tag & 7);
    }
    return field;
  }

 private:
  std::string_view Take(size_t count) {
    Require(count <= left_.size(), "a message ends too early");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(Take(1)[0]);
      value |= uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
  }
  uint64_t Fixed(size_t count) {
    uint64_t value = 0;
    const std::string_view bytes = Take(count);
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }

  std::string_view left_;
};

// The numbers of an event (base/tensorboard_event.proto).
Json EventLine(std::string_view message) {
  Json line = {{"step", 0}};
  ProtobufReader event(message);
  while (const std::optional<WireField> field = event.Next()) {
    if (field->number == 1) line["wall_time"] = std::bit_cast<double>(field->value);
    if (field->number == 2) line["step"] = field->value;
    if (field->number == 3) line["file_version"] = std::string(field->bytes);
    ProtobufReader summary(field->number == 5 ? field->bytes : "");
    while (const std::optional<WireField> value = summary.Next()) {
      std::string tag;
      ProtobufReader entry(value->bytes);
      while (const std::optional<WireField> part = entry.Next()) {
        if (part->number == 1) tag = part->bytes;
        if (part->number == 2) line[tag] = std::bit_cast<float>(static_cast<uint32_t>(part->value));
      }
    }
  }
  return line;
}

// The records of an event file but its first, as lines.
void AddEvents(const std::string& bytes, const std::string& name, std::vector<Json>* lines) {
  constexpr size_t kAround = 16;  // of a message: its length and two checksums
  size_t at = 0;
  while (at < bytes.size()) {
    Require(bytes.size() - at >= kAround, "{} ends in the middle of a record", name);
    const auto byte = [&](size_t i) { return size_t{static_cast<unsigned char>(bytes[at + i])}; };
    const size_t length = byte(0) + (byte(1) << 8) + (byte(2) << 16);
    Require(bytes.size() - at >= length + kAround, "{} ends in the middle of a record", name);
    const std::string message = bytes.substr(at + 12, length);
    Require(EventRecord(message) == bytes.substr(at, length + kAround),
            "{} has a damaged record at byte {}", name, at);
    Json line = EventLine(message);
    Require((at == 0) == line.contains("file_version"),
            "{}: the first record, and no other, is to be its version", name);
    if (at > 0) lines->push_back(std::move(line));
    at += length + kAround;
  }
}

// A line of metrics.jsonl as the event files have it.
std::string AsEvent(const Json& line) {
  Json event = Json::object();
  for (const auto& [key, value] : line.items()) {
    if (key == "step") {
      event[key] = value;
    } else if (value.is_string()) {
      event[key] = Json(std::stof(value.get<std::string>()));
    } else {
      event[key] = value.get<float>();
    }
  }
  return event.dump();
}

void CheckEvents(const std::vector<Json>& metrics, std::vector<Json> events) {
  Require(metrics.size() == events.size(), "metrics.jsonl has {} lines, the event files have {}",
          metrics.size(), events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    events[i].erase("wall_time");
    Require(AsEvent(metrics[i]) == events[i].dump(),
            "line {} of metrics.jsonl is {}, in the event files it is {}", i, metrics[i].dump(),
            events[i].dump());
  }
}

// Each line is of a later step and a later time than the one before.
void CheckOrder(const std::vector<Json>& lines, std::string_view clock, const std::string& name) {
  double step = -1;
  double seconds = -1;
  for (const Json& line : lines) {
    const double next = line.at("step").get<double>();
    Require(next > step, "{} has step {} after step {}", name, next, step);
    step = next;
    if (clock.empty()) continue;
    const double time = line.at(clock).get<double>();
    Require(time > seconds, "{} has {} s after {} s", name, time, seconds);
    seconds = time;
  }
}

// `of_all`: no line of metrics.jsonl may have a lower loss.
void CheckBest(const Json& best, int64_t updates_of_theta, const std::vector<Json>& metrics,
               bool of_all) {
  const auto updates = best.at("updates").get<int64_t>();
  Require(updates == updates_of_theta,
          "best.json tells of a theta of {} updates, theta_best.safetensors is of {}", updates,
          updates_of_theta);
  const double loss = best.at("eval_loss").get<double>();
  bool has_line = false;
  for (const Json& line : metrics) {
    if (!line.contains("eval_loss")) continue;
    const auto step = line.at("step").get<int64_t>();
    const double seen = line.at("eval_loss").get<double>();
    Require(!of_all || seen >= loss,
            "best.json has the loss {}, metrics.jsonl at step {} a lower one, {}", loss, step,
            seen);
    has_line = has_line || (step == updates && seen == loss);
  }
  Require(has_line, "best.json has the loss {} after {} updates, no line of metrics.jsonl has it",
          loss, updates);
}

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of a file of arrays, whose metadata may hold the run's config.
std::string TextOfArrays(const std::string& path, const std::string& name) {
  ArrayFile file = ReadArrayFile(path);
  ArrayFile left{.arrays = {}, .metadata = std::move(file.metadata)};
  for (const auto& [array, value] : file.arrays) {
    if (!IsMasked(name, array)) left.arrays.Set(array, value);
  }
  std::string& config = left.metadata["config"];
  config = Unmasked("config.json", ParseStrictJson(config, name, false));
  return TextOf(SerializeArrayFile(left));
}

// A checkpoint, whose manifest and checksums are checked as it is read.
std::string TextOfCheckpoint(const std::string& path, const std::string& name) {
  const Checkpoint checkpoint = ReadCheckpoint(path);
  for (const std::string& file : ListDirectory(path)) {
    Require(file == "manifest.json" || file == "learner.safetensors" || WorkersOfFile(file),
            "{} has a file {}", name, file);
  }
  std::string text = TextOfArrays(path + "/learner.safetensors", name);
  PackWorkers(0, checkpoint.workers, [&](const WorkerBlock&, const std::vector<std::byte>& bytes) {
    text += TextOf(bytes);
  });
  for (int64_t worker = 0; worker < checkpoint.ledger.workers(); ++worker) {
    const StepShares shares = checkpoint.ledger.OfWorker(worker);
    text += fmt::format("\nworker {}: {} steps used", worker, shares[Outcome::kUsed]);
  }
  return text;
}

// Files and checkpoints, with the directory of a run that they are in.
std::vector<std::string> NamesOf(const std::string& directory) {
  std::vector<std::string> names;
  for (const std::string& name : ListDirectory(directory)) {
    if (name != "checkpoints" && name != "status") {
      names.push_back(name);
      continue;
    }
    for (const std::string& inner : ListDirectory(fmt::format("{}/{}", directory, name))) {
      names.push_back(fmt::format("{}/{}", name, inner));
    }
  }
  return names;
}

bool IsIgnored(const std::string& name, const IgnoredFiles& ignored) {
  return std::ranges::any_of(ignored, [&](const std::string& part) {
    return part.starts_with('.') || part.starts_with('/') ? name.find(part) != std::string::npos
                                                          : name.starts_with(part);
  });
}

}  // namespace

RunFiles ReadRunFiles(const std::string& directory, const IgnoredFiles& ignored, bool best_of_all) {
  RunFiles files;
  std::vector<Json> metrics;
  std::vector<Json> events;
  for (const std::string& name : NamesOf(directory)) {
    if (IsIgnored(name, ignored)) continue;
    const std::string path = fmt::format("{}/{}", directory, name);
    const auto json = [&] { return ParseStrictJson(ReadTextFile(path), name, false); };
    if (name.starts_with("checkpoints/")) {
      files[name] = TextOfCheckpoint(path, name);
    } else if (name.starts_with("events.out.tfevents.")) {
      AddEvents(ReadTextFile(path), name, &events);
    } else if (name == "metrics.jsonl") {
      metrics = LinesOf(ReadTextFile(path), name);
      CheckOrder(metrics, "", name);
      files[name] = Joined(name, metrics);
    } else if (name == "throughput.jsonl") {
      const std::vector<Json> lines = LinesOf(ReadTextFile(path), name);
      CheckOrder(lines, "seconds", name);
      files[name] = lines.empty() ? "" : Unmasked(name, lines.back());
    } else if (name.ends_with(".json")) {
      files[name] = Unmasked(name, json());
    } else if (name.ends_with(".safetensors")) {
      files[name] = TextOfArrays(path, name);
    } else {
      files[name] = IsMasked(name, "") ? "" : ReadTextFile(path);
    }
  }
  CheckEvents(metrics, events);
  files["events"] = Joined("events", events);
  if (files.contains("best.json")) {
    const ThetaFile theta = ReadThetaFile(directory + "/theta_best.safetensors");
    CheckBest(ParseStrictJson(files["best.json"], "best.json", false), theta.meta_steps, metrics,
              best_of_all);
  }
  return files;
}

void RequireSameFiles(const RunFiles& run, const RunFiles& undisturbed,
                      const IgnoredFiles& ignored) {
  for (const auto& [name, text] : run) {
    if (IsIgnored(name, ignored)) continue;
    const auto other = undisturbed.find(name);
    Require(other != undisturbed.end(), "the undisturbed run has no {}", name);
    if (text == other->second) continue;
    const auto at =
        static_cast<size_t>(std::ranges::mismatch(text, other->second).in1 - text.begin());
    Fail("{} is not that of the undisturbed run: from byte {} on it is '{}' and not '{}'", name, at,
         text.substr(at, 60), other->second.substr(std::min(at, other->second.size()), 60));
  }
  std::string last;
  for (const auto& [name, text] : undisturbed) {
    if (name.starts_with("checkpoints/")) last = name;
  }
  for (const auto& [name, text] : undisturbed) {
    const bool may_be_gone = name.starts_with("checkpoints/") && name != last;
    Require(may_be_gone || IsIgnored(name, ignored) || run.contains(name),
            "{} is missing, which the undisturbed run has", name);
  }
}

}  // namespace lopt
