#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <atomic>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "lopt/base/device.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/parallel.h"
#include "lopt/base/platform.h"
#include "lopt/base/print.h"
#include "lopt/base/record.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/worker.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/bench/bench_peak.h"
#include "lopt/tools/bench/bench_tiles.h"
#include "lopt/tools/bench/bench_transport.h"
#include "lopt/tools/bench/bench_workload.h"
#include "lopt/tools/bench/bench_workloads.h"
#include "lopt/tools/bench/estimator_bench.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/device/device_bench.h"
#include "lopt/tools/stop_signal.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

constexpr const char* kBenchSynopsis = "lopt bench [OPTIONS]";
constexpr const char* kBenchExamples =
    "Examples:\n"
    "  lopt bench\n"
    "  lopt bench --filter 'inner_step/.*' --threads 2\n"
    "  lopt bench --json > bench.json\n"
    "  lopt bench --device cuda\n"
    "  lopt bench --estimators config.json --theta theta.safetensors --out DIR\n"
    "\nlopt bench growth [--filter, --isa, --threads, --repeats, --short, --json] times more "
    "replicas, wider networks and larger images.\n"
    "lopt bench tiles [--filter, --isa, --repeats, --short, --json] times the shapes of tiles.\n"
    "lopt bench transport --help explains another bench: a job whose workers compute nothing.\n";

// Standard output for one JSON object: while it lives, all else that this process writes there (log
// lines) goes to standard error.
class JsonOutput {
 public:
  JsonOutput() : output_(dup(STDOUT_FILENO)) { Redirect(STDERR_FILENO); }
  ~JsonOutput() {
    Redirect(output_);
    close(output_);
  }
  JsonOutput(const JsonOutput&) = delete;
  JsonOutput& operator=(const JsonOutput&) = delete;

  // Writes the object, or a part of it, at once.
  void Write(const std::string& text) const {
    Redirect(output_);
    PrintOut("{}\n", text);
    Redirect(STDERR_FILENO);
  }

 private:
  static void Redirect(int to) {
    std::fflush(stdout);
    dup2(to, STDOUT_FILENO);
  }

  int output_;
};

std::string WithInterval(const Measured& measured) {
  return fmt::format("{:.4g} [{:.3g}, {:.3g}]", measured.value, measured.low, measured.high);
}

void PrintEstimators(const EstimatorBench& bench) {
  PrintOut(
      "Theta {}, {} runs; in brackets 95 % intervals. Bias relative to the exact gradient; "
      "variance "
      "of one estimate and at equal compute.\n\n",
      bench.theta, bench.runs);
  PrintOut("{:<24} {:<14} {:>6} {:>8} {:>9} {:<10} {:>26} {:>26} {:>26} {:>11} {:>11}\n",
           "estimator", "type", "window", "steps", "seconds", "exact", "bias", "cosine", "variance",
           "/1000 steps", "/second");
  for (const EstimatorQuality& row : bench.estimators) {
    const bool known = row.reference != "none";
    PrintOut(
        "{:<24} {:<14} {:>6} {:>8.6g} {:>9.3g} {:<10} {:>26} {:>26} {:>26} {:>11.4g} "
        "{:>11.4g}\n",
        row.estimator, row.type, row.window ? std::to_string(*row.window) : "all", row.inner_steps,
        row.seconds, row.reference, known ? WithInterval(row.bias) : "",
        known ? WithInterval(row.cosine) : "", WithInterval(row.variance),
        row.VariancePer1000Steps().value, row.VariancePerSecond().value);
  }
  for (const EstimatorQuality& row : bench.estimators) {
    if (!row.window && row.inexact) {
      PrintOut("\n{}: no exact gradient: {}\n", row.estimator, *row.inexact);
    }
  }
}

int BenchEstimatorsCommand(const po::variables_map& values, int threads) {
  const auto config =
      ReadOptions<MetaTrainConfig>(Config::Load(values["estimators"].as<std::string>()));
  const auto theta_option = TextOption(values, "theta");
  const std::string file = theta_option ? ThetaPath(*theta_option) : config.init_theta;
  const Eigen::VectorXf theta =
      file.empty() ? OptimizerRegistry()
                         .Make(config.learned_optimizer)
                         ->InitTheta(ThetaKey(KeyFromSeed(static_cast<uint64_t>(config.seed))))
                   : ReadThetaFile(file, config.learned_optimizer).theta;
  EstimatorBenchOptions options;
  options.runs = values["runs"].as<int64_t>();
  if (values.contains("windows")) options.windows = values["windows"].as<int64_t>();
  if (options.runs < 3 || options.windows.value_or(1) < 1) {
    throw UsageError("bench: --runs must be at least 3 and --windows at least 1");
  }
  const auto directory = TextOption(values, "out");
  if (directory) MakeOutputDirectory(*directory);  // an error of it costs no bench
  std::optional<JsonOutput> output;
  if (values.contains("json")) output.emplace();
  EstimatorBench bench;
  ThreadPool(threads).Run([&] { bench = BenchEstimators(config, theta, options); });
  bench.theta = file.empty() ? "as initialised" : file;
  if (directory) WriteRecordFile(*directory + "/" + kEstimatorBenchFile, bench);
  if (output) {
    output->Write(RecordText(bench, 2));
  } else {
    PrintEstimators(bench);
  }
  return kExitDone;
}

int BenchDeviceCommand(const po::variables_map& values, const BenchOptions& options) {
  const Device* device = FindDevice(values["device"].as<std::string>());
  if (device == nullptr) {
    throw UsageError(
        "bench: --device 'cpu' is what is timed without it; choose cuda, cuda:<number of a GPU> or "
        "emulated");
  }
  std::optional<JsonOutput> output;
  if (values.contains("json")) output.emplace();
  const bool measured = device->kind() == Device::Kind::kCuda;
  const DeviceSpeed speed = measured ? MeasureCudaSpeed(*device) : DeviceSpeed();
  if (!output) {
    PrintOut("{}: {}\n", device->name(), device->description());
    if (measured) {
      PrintOut("FMA peak {:.0f} GFLOP/s, copies {:.0f} GB/s, an empty launch {:.1f} us\n",
               speed.gflops, speed.gigabytes, 1e6 * speed.launch_seconds);
    }
    PrintOut("\n{:<30} {:>8} {:>6} {:>10} {:>12} {:>9} {:>8} {:>8} {:>9}\n", "workload", "replicas",
             "steps", "window, s", "steps/s", "GFLOP/s", "of peak", "launch", "a block");
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto share = [measured](double part, double whole) {
    return measured ? fmt::format("{:.1f} %", 100 * part / whole) : std::string();
  };
  ThreadPool(options.threads).Run([&] {
    BenchDevice(*device, options.repeats, [&](const DeviceBenchResult& r) {
      if (!r.left_out.empty()) {
        if (output) {
          rows.push_back({{"name", r.name}, {"left_out", r.left_out}});
        } else {
          PrintOut("{:<30} left out: {}\n", r.name, r.left_out);
        }
        return;
      }
      if (output) {
        rows.push_back({{"name", r.name},
                        {"replicas", r.replicas},
                        {"steps", r.steps},
                        {"launches", r.launches},
                        {"window_seconds", r.window_seconds},
                        {"steps_per_second", r.steps_per_second},
                        {"gflops", r.gflops},
                        {"shared_bytes", r.shared_bytes},
                        {"resident", r.resident}});
        return;
      }
      PrintOut("{:<30} {:>8} {:>6} {:>10.4g} {:>12.6g} {:>9.4g} {:>8} {:>8} {:>6} KB{}\n", r.name,
               r.replicas, r.steps, r.window_seconds, r.steps_per_second, r.gflops,
               share(r.gflops, speed.gflops),
               share(static_cast<double>(r.launches) * speed.launch_seconds, r.window_seconds),
               r.shared_bytes / 1024, r.resident ? "" : ", state outside");
      std::fflush(stdout);
    });
  });
  if (output) {
    nlohmann::ordered_json json = {
        {"device", {{"name", device->name()}, {"description", device->description()}}}};
    if (measured) {
      json["device"]["gflops"] = speed.gflops;
      json["device"]["gigabytes_per_second"] = speed.gigabytes;
      json["device"]["launch_seconds"] = speed.launch_seconds;
    }
    json["workloads"] = rows;
    output->Write(json.dump(2));
  }
  return kExitDone;
}

struct Machine {
  std::string cpu;
  std::string isa;
  int threads = 1;
  double peak_gflops_1 = 0;
  double peak_gflops_all = 0;
};

double Peak(int threads) {
  ThreadPool pool(threads);
  double best = 0;
  pool.Run([&] {
    for (int i = 0; i < 20; ++i) {
      best = std::max(best,
                      MeasurePeakGflops(threads == 1 ? BenchClock::kProcessor : BenchClock::kWall));
    }
  });
  return best;
}

void PrintMachine(const Machine& machine) {
  PrintOut("{}, {}, FMA peak {:.1f} GFLOP/s on one thread, {:.1f} on {}\n\n", machine.cpu,
           machine.isa, machine.peak_gflops_1, machine.peak_gflops_all, machine.threads);
  PrintOut("{:<28} {:>7} {:>12} {:>10} {:>9} {:>7} {:>12} {:<12} {:>8}\n", "workload", "threads",
           "seconds", "MFLOP", "GFLOP/s", "of peak", "per second", "", "memory");
}

void PrintResult(const BenchResult& r) {
  if (!r.skipped.empty() || !r.failed.empty()) {
    PrintOut("{:<28} {}: {}\n", r.name, r.failed.empty() ? "skipped" : "failed",
             r.failed.empty() ? r.skipped : r.failed);
    return;
  }
  const std::string fraction = r.flop > 0 ? fmt::format("{:.1f} %", 100 * r.fraction_of_peak) : "";
  const std::string gflops = r.flop > 0 ? fmt::format("{:.1f}", r.gflops) : "";
  const std::string flop = r.flop > 0 ? fmt::format("{:.4g}", r.flop / 1e6) : "";
  const std::string memory =
      r.peak_memory_bytes
          ? fmt::format("{:.0f} MB", static_cast<double>(*r.peak_memory_bytes) / 1e6)
          : "";
  PrintOut("{:<28} {:>7} {:>12.4g} {:>10} {:>9} {:>7} {:>12.6g} {:<12} {:>8}\n", r.name, r.threads,
           r.seconds, flop, gflops, fraction, r.per_second, r.unit, memory);
}

nlohmann::ordered_json ToJson(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"isa", machine.isa},
          {"threads", machine.threads},
          {"peak_gflops_1", machine.peak_gflops_1},
          {"peak_gflops_all", machine.peak_gflops_all}};
}

nlohmann::ordered_json ToJson(const BenchResult& r) {
  if (!r.skipped.empty()) return {{"name", r.name}, {"skipped", r.skipped}};
  if (!r.failed.empty()) return {{"name", r.name}, {"failed", r.failed}};
  return {{"name", r.name},
          {"threads", r.threads},
          {"seconds", r.seconds},
          {"flop", r.flop},
          {"gflops", r.gflops},
          {"fraction_of_peak", r.fraction_of_peak},
          {"per_second", r.per_second},
          {"unit", r.unit},
          {"peak_memory_bytes",
           r.peak_memory_bytes ? nlohmann::ordered_json(*r.peak_memory_bytes) : nullptr}};
}

}  // namespace

int BenchCommand(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "transport") {
    return BenchTransport({arguments.begin() + 1, arguments.end()});
  }
  const bool tiles = !arguments.empty() && arguments[0] == "tiles";
  const bool growth = !arguments.empty() && arguments[0] == "growth";
  const std::vector<std::string> words(arguments.begin() + (tiles || growth ? 1 : 0),
                                       arguments.end());
  po::options_description options("Options");
  auto add = options.add_options();
  add("filter", po::value<std::string>()->value_name("REGEX")->default_value(".*"),
      "Only workloads whose whole name matches this regular expression.");
  add("threads", po::value<int>()->value_name("N"),
      "Default: one for each core that the process may use.");
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set of the kernels. Default: the best.");
  add("repeats", po::value<int>()->value_name("N")->default_value(7),
      "Timed repeats of each workload; the median counts.");
  add("short", "Two short repeats: a check of results and output, not a measurement.");
  add("json", "Print one JSON object instead of a table.");
  add("device", po::value<std::string>()->value_name("NAME"),
      "Time windows on a device (cuda, cuda:<number of a GPU>, emulated) instead, beside what it "
      "can do at most.");
  add("estimators", po::value<std::string>()->value_name("CONFIG"),
      "Compare the estimators of a config of meta-training with the exact gradient instead.");
  add("theta", po::value<std::string>()->value_name("FILE"),
      fmt::format("With --estimators: the theta, {}. Default: init_theta of the config, or a fresh "
                  "one.",
                  kThetaNames)
          .c_str());
  add("runs", po::value<int64_t>()->value_name("N")->default_value(200),
      "With --estimators: runs of each.");
  add("windows", po::value<int64_t>()->value_name("N"),
      "With --estimators: windows of a run. Default: those of one episode, at most 20.");
  add("out", po::value<std::string>()->value_name("DIR"),
      "With --estimators: write the result there, for lopt report.");
  const auto values = ParseCommandLine(words, options, "", 0, kBenchSynopsis, kBenchExamples);
  if (!values) {
    return kExitDone;
  }
  BenchOptions bench{.threads = ThreadsOption(*values), .repeats = (*values)["repeats"].as<int>()};
  if (bench.repeats < 1) {
    throw UsageError(fmt::format("bench: --repeats must be at least 1, got {}", bench.repeats));
  }
  if (values->contains("short")) {
    bench.repeats = 2;
    bench.seconds = 0.01;
  }
  if (values->contains("isa")) {
    PinIsa((*values)["isa"].as<std::string>());
  }
  const auto refuse = [&](const std::vector<const char*>& given, const std::string& with) {
    for (const char* option : given) {
      if (values->contains(option) && !(*values)[option].defaulted()) {
        throw UsageError(fmt::format("bench: --{} does not go with {}", option, with));
      }
    }
  };
  if (tiles) refuse({"estimators", "device", "threads"}, arguments[0]);
  if (growth) refuse({"estimators", "device"}, arguments[0]);
  if (values->contains("estimators")) {
    refuse({"device", "filter", "repeats", "short"}, "--estimators");
    return BenchEstimatorsCommand(*values, bench.threads);
  }
  for (const char* option : {"theta", "runs", "windows", "out"}) {
    if (values->contains(option) && !(*values)[option].defaulted()) {
      throw UsageError(fmt::format("bench: --{} goes with --estimators", option));
    }
  }
  if (values->contains("device")) {
    refuse({"filter"}, "--device");
    return BenchDeviceCommand(*values, bench);
  }
  const std::string pattern = (*values)["filter"].as<std::string>();
  std::vector<WorkloadMaker> chosen;
  const auto workloads = [&] {
    return tiles ? TileWorkloads() : growth ? GrowthWorkloads() : Workloads(bench.threads);
  };
  try {
    const std::regex filter(pattern);
    for (WorkloadMaker& maker : workloads()) {
      if (std::regex_match(maker.name, filter)) {
        chosen.push_back(std::move(maker));
      }
    }
  } catch (const std::regex_error& error) {
    throw UsageError(
        fmt::format("bench: --filter '{}' is not a regular expression: {}", pattern, error.what()));
  }
  if (chosen.empty()) {
    std::string names;
    for (const WorkloadMaker& maker : workloads()) {
      names += (names.empty() ? "" : ", ") + maker.name;
    }
    throw UsageError(fmt::format("bench: no workload matches '{}'; there are: {}", pattern, names));
  }

  const std::atomic<bool>* stop = StopOnSignals("this workload");  // which removes what it wrote
  std::optional<JsonOutput> output;
  if (values->contains("json")) output.emplace();
  const Machine machine = {.cpu = ProcessorName(),
                           .isa = CurrentIsa(),
                           .threads = bench.threads,
                           .peak_gflops_1 = Peak(1),
                           .peak_gflops_all = Peak(bench.threads)};
  // Every row is written as it ends, so that what ends the program early costs no row before.
  if (output) {
    output->Write(fmt::format("{{\"machine\": {},\n \"workloads\": [", ToJson(machine).dump()));
  } else {
    PrintMachine(machine);
  }
  std::vector<std::string> failed;
  size_t i = 0;
  for (; i < chosen.size() && !*stop; ++i) {
    const BenchResult result = RunWorkload(chosen[i], bench);
    if (!result.failed.empty()) {
      if (*stop) break;  // what it had started was stopped as well
      failed.push_back(result.name);
    }
    if (output) {
      output->Write((i > 0 ? ", " : "  ") + ToJson(result).dump());
    } else {
      PrintResult(result);
      std::fflush(stdout);
    }
  }
  if (output) output->Write("]}");
  Require(failed.empty(), "bench: {} of {} workloads failed, as their rows say: {}", failed.size(),
          chosen.size(), fmt::join(failed, ", "));
  return i < chosen.size() ? kExitInterrupted : kExitDone;
}

}  // namespace lopt
