#include <fmt/core.h>

#include <boost/program_options.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "base/isa.h"
#include "base/parallel.h"
#include "tools/bench/bench_peak.h"
#include "tools/bench/bench_workload.h"
#include "tools/bench/bench_workloads.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/cores.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

constexpr const char* kBenchSynopsis = "lopt bench [OPTIONS]";
constexpr const char* kBenchExamples =
    "Examples:\n"
    "  lopt bench\n"
    "  lopt bench --filter 'inner_step/.*' --threads 2\n"
    "  lopt bench --json > bench.json\n";

struct Machine {
  std::string cpu;
  std::string isa;
  int threads = 1;
  double peak_gflops_1 = 0;
  double peak_gflops_all = 0;
};

std::string CpuName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (line.starts_with("model name")) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown";
}

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
  fmt::print("{}, {}, FMA peak {:.1f} GFLOP/s on one thread, {:.1f} on {}\n\n", machine.cpu,
             machine.isa, machine.peak_gflops_1, machine.peak_gflops_all, machine.threads);
  fmt::print("{:<28} {:>7} {:>12} {:>10} {:>9} {:>7} {:>12} {:<12} {:>8}\n", "workload", "threads",
             "seconds", "MFLOP", "GFLOP/s", "of peak", "per second", "", "memory");
}

void PrintResult(const BenchResult& r) {
  const std::string fraction = r.flop > 0 ? fmt::format("{:.1f} %", 100 * r.fraction_of_peak) : "";
  const std::string gflops = r.flop > 0 ? fmt::format("{:.1f}", r.gflops) : "";
  const std::string flop = r.flop > 0 ? fmt::format("{:.4g}", r.flop / 1e6) : "";
  fmt::print("{:<28} {:>7} {:>12.4g} {:>10} {:>9} {:>7} {:>12.6g} {:<12} {:>5.0f} MB\n", r.name,
             r.threads, r.seconds, flop, gflops, fraction, r.per_second, r.unit,
             static_cast<double>(r.peak_memory_bytes) / 1e6);
}

nlohmann::ordered_json ToJson(const Machine& machine, const std::vector<BenchResult>& results) {
  nlohmann::ordered_json workloads = nlohmann::ordered_json::array();
  for (const BenchResult& r : results) {
    workloads.push_back({{"name", r.name},
                         {"threads", r.threads},
                         {"seconds", r.seconds},
                         {"flop", r.flop},
                         {"gflops", r.gflops},
                         {"fraction_of_peak", r.fraction_of_peak},
                         {"per_second", r.per_second},
                         {"unit", r.unit},
                         {"peak_memory_bytes", r.peak_memory_bytes}});
  }
  return {{"machine",
           {{"cpu", machine.cpu},
            {"isa", machine.isa},
            {"threads", machine.threads},
            {"peak_gflops_1", machine.peak_gflops_1},
            {"peak_gflops_all", machine.peak_gflops_all}}},
          {"workloads", workloads}};
}

}  // namespace

int BenchCommand(const std::vector<std::string>& arguments) {
  po::options_description options("Options");
  auto add = options.add_options();
  add("filter", po::value<std::string>()->default_value(".*"),
      "Only workloads whose whole name matches this regular expression.");
  add("threads", po::value<int>(), "Default: one for each core that the process may use.");
  add("isa", po::value<std::string>(), "Instruction set of the kernels. Default: the best.");
  add("repeats", po::value<int>()->default_value(7),
      "Timed repeats of each workload; the median counts.");
  add("short", "Two short repeats: a check of results and output, not a measurement.");
  add("json", "Print one JSON object instead of a table.");
  const auto values = ParseCommandLine(arguments, options, "", 0, kBenchSynopsis, kBenchExamples);
  if (!values) {
    return kExitDone;
  }
  BenchOptions bench{.threads = AvailableCores(), .repeats = (*values)["repeats"].as<int>()};
  if (values->contains("threads")) {
    bench.threads = (*values)["threads"].as<int>();
  }
  if (bench.threads < 1 || bench.repeats < 1) {
    throw UsageError("bench: --threads and --repeats must be at least 1");
  }
  if (values->contains("short")) {
    bench.repeats = 2;
    bench.seconds = 0.01;
  }
  if (values->contains("isa")) {
    PinIsa((*values)["isa"].as<std::string>());
  }
  const std::string pattern = (*values)["filter"].as<std::string>();
  std::vector<WorkloadMaker> chosen;
  try {
    const std::regex filter(pattern);
    for (WorkloadMaker& maker : Workloads(bench.threads)) {
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
    for (const WorkloadMaker& maker : Workloads(bench.threads)) {
      names += (names.empty() ? "" : ", ") + maker.name;
    }
    throw UsageError(fmt::format("bench: no workload matches '{}'; there are: {}", pattern, names));
  }

  const Machine machine = {.cpu = CpuName(),
                           .isa = CurrentIsa(),
                           .threads = bench.threads,
                           .peak_gflops_1 = Peak(1),
                           .peak_gflops_all = Peak(bench.threads)};
  const bool json = values->contains("json");
  if (!json) {
    PrintMachine(machine);
  }
  std::vector<BenchResult> results;
  for (const WorkloadMaker& maker : chosen) {
    results.push_back(RunWorkload(maker, bench));
    if (!json) {
      PrintResult(results.back());
      std::fflush(stdout);
    }
  }
  if (json) {
    fmt::print("{}\n", ToJson(machine, results).dump(2));
  }
  return kExitDone;
}

}  // namespace lopt
