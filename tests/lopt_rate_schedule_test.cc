#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/lopt/rate_schedule.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

struct Scheduled {
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v) { VisitSchedule(v, &schedule); }
};

// Of a schedule as a config has it.
RateSchedule Read(const std::string& schedule) {
  return ReadOptions<Scheduled>(Config::Parse(R"({"schedule": )" + schedule + "}", "test"))
      .schedule;
}

double Scale(const std::string& schedule, int64_t updates, int64_t num_steps = 0) {
  return ScheduleFactor(Read(schedule), {.step = updates, .num_steps = num_steps});
}

std::string ErrorOfSchedule(const std::string& schedule) {
  return ErrorOf([&] { Read(schedule); });
}

TEST_CASE("Warmup rises linearly from start_scale to 1 and stays") {
  const std::string plain = R"({"type": "Warmup", "warmup_steps": 4})";
  CHECK(Scale(plain, 0) == 0);
  CHECK(Scale(plain, 1) == 0.25);
  CHECK(Scale(plain, 4) == 1);
  CHECK(Scale(plain, 1000) == 1);
  const std::string from = R"({"type": "Warmup", "warmup_steps": 4, "start_scale": 0.5})";
  CHECK(Scale(from, 0) == 0.5);
  CHECK(Scale(from, 2) == 0.75);
}

TEST_CASE("WarmupCosine falls along half a cosine to final_scale") {
  const std::string schedule =
      R"({"type": "WarmupCosine", "warmup_steps": 100, "total_steps": 300, "final_scale": 0.2})";
  CHECK(Scale(schedule, 0) == 0);
  CHECK(Scale(schedule, 50) == doctest::Approx(0.5));
  CHECK(Scale(schedule, 100) == doctest::Approx(1));
  CHECK(Scale(schedule, 150) == doctest::Approx(0.2 + 0.8 * (1 + std::numbers::sqrt2 / 2) / 2));
  CHECK(Scale(schedule, 200) == doctest::Approx(0.6));
  CHECK(Scale(schedule, 300) == doctest::Approx(0.2));
  CHECK(Scale(schedule, 5000) == doctest::Approx(0.2));
}

TEST_CASE("Piecewise changes at its boundaries") {
  const std::string schedule =
      R"({"type": "Piecewise", "boundaries": [10, 20], "scales": [1, 0.5, 0.1]})";
  CHECK(Scale(schedule, 0) == 1);
  CHECK(Scale(schedule, 9) == 1);
  CHECK(Scale(schedule, 10) == 0.5);
  CHECK(Scale(schedule, 19) == 0.5);
  CHECK(Scale(schedule, 20) == 0.1);
}

TEST_CASE("Schedules of the run's length fall over it, or over total_steps, and stay there") {
  for (const char* of_the_run : {R"("linear")", R"({"type": "Linear"})"}) {
    CHECK(Scale(of_the_run, 0, 8) == 1);
    CHECK(Scale(of_the_run, 2, 8) == 0.75);
  }
  CHECK(Scale(R"({"type": "Linear", "total_steps": 4})", 1, 8) == 0.75);
  CHECK(Scale(R"({"type": "Linear", "total_steps": 4})", 9) == 0);
  for (const char* of_the_run : {R"("cosine")", R"({"type": "Cosine"})"}) {
    CHECK(Scale(of_the_run, 2, 8) == doctest::Approx((1 + std::numbers::sqrt2 / 2) / 2));
    CHECK(Scale(of_the_run, 4, 8) == doctest::Approx(0.5));
  }
  CHECK(Scale(R"({"type": "Cosine", "total_steps": 4})", 2) == doctest::Approx(0.5));
  CHECK(std::abs(Scale(R"({"type": "Cosine", "total_steps": 4})", 9)) < 1e-15);
}

TEST_CASE("warmup-cosine is short for a rise at once over the first tenth and a cosine") {
  const std::string spelled_out =
      R"({"type": "WarmupCosine", "warmup_fraction": 0.1, "rises_at_once": true})";
  CHECK(Read(R"("warmup-cosine")") == Read(spelled_out));
  for (const std::string& schedule : {std::string(R"("warmup-cosine")"), spelled_out}) {
    CHECK(Scale(schedule, 0, 20) == 0.5);
    CHECK(Scale(schedule, 1, 20) == 1);
    CHECK(Scale(schedule, 2, 20) == doctest::Approx(1));
    CHECK(Scale(schedule, 11, 20) == doctest::Approx(0.5));
    // The rise may end between two steps.
    CHECK(Scale(schedule, 2, 25) == 1);
    CHECK(Scale(schedule, 1, 25) == doctest::Approx(0.8));
  }
}

TEST_CASE("A config is resolved to the short name where there is one") {
  const auto resolved = [](const std::string& schedule) {
    return WriteOptions("", Scheduled{Read(schedule)}).json()["schedule"].dump();
  };
  for (const char* name : {R"("constant")", R"("linear")", R"("cosine")", R"("warmup-cosine")"}) {
    CHECK(resolved(name) == name);
  }
  CHECK(resolved(R"({"type": "Constant"})") == R"("constant")");
  CHECK(resolved(R"({"type": "Linear", "total_steps": null})") == R"("linear")");
  CHECK(resolved(R"({"type": "Cosine", "total_steps": 5})") ==
        R"({"type":"Cosine","total_steps":5})");
  CHECK(resolved(R"({"type": "Piecewise", "boundaries": [5], "scales": [1, 0.5]})") ==
        R"({"type":"Piecewise","boundaries":[5],"scales":[1.0,0.5]})");
}

TEST_CASE("What makes an optimizer need the length of the run is named as in its config") {
  CHECK(NeedOfNumSteps("Lion", Read(R"("constant")")).empty());
  CHECK(NeedOfNumSteps("Lion", Read(R"({"type": "Warmup"})")).empty());
  CHECK(NeedOfNumSteps("Lion", Read(R"({"type": "Cosine", "total_steps": 5})")).empty());
  CHECK(NeedOfNumSteps("Lion", Read(R"("warmup-cosine")")) == "Lion with schedule 'warmup-cosine'");
  CHECK(NeedOfNumSteps("Lion", Read(R"({"type": "WarmupCosine"})")) ==
        "Lion with schedule 'WarmupCosine'");
}

TEST_CASE("Schedules that do not go together, and names that there are not, are errors") {
  CHECK(ErrorOfSchedule(R"({"type": "Piecewise", "boundaries": [5]})") ==
        "config: 'schedule.scales' must have one number more than boundaries, which has 1, got 1");
  CHECK(ErrorOfSchedule(R"({"type": "Piecewise", "boundaries": [5, 5], "scales": [1, 1, 1]})") ==
        "config: 'schedule.boundaries' must be ascending, got 5 before 5");
  CHECK(ErrorOfSchedule(
            R"({"type": "Piecewise", "boundaries": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17],
                "scales": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})") ==
        "config: 'schedule.boundaries' must have up to 16 numbers, got 17");
  CHECK(ErrorOfSchedule(R"({"type": "WarmupCosine", "total_steps": 100})") ==
        "config: 'schedule.total_steps' must be above the warm-up's 100 updates, got 100");
  CHECK(ErrorOfSchedule(R"({"type": "WarmupCosine", "total_steps": 100, "warmup_steps": 10,
                            "warmup_fraction": 0.1})") ==
        "config: 'schedule.warmup_fraction' must not be given beside warmup_steps, 10, got 0.1");
  CHECK(ErrorOf([] {
          CheckOptions(
              "Lion",
              Scheduled{{.type = RateType::kWarmupCosine, .warmup_steps = 5, .total_steps = 3}});
        }) == "Lion: schedule.total_steps must be above the warm-up's 5 updates, got 3");
  const std::string valid =
      "valid types of schedule: Constant, Linear, Cosine, Warmup, WarmupCosine, Piecewise; in "
      "short: \"constant\", \"linear\", \"cosine\", \"warmup-cosine\"";
  CHECK(ErrorOfSchedule(R"("square")") ==
        "config: 'schedule' must be a short name or an object with a \"type\", got \"square\"; " +
            valid);
  CHECK(ErrorOfSchedule(R"({"type": "Square"})") ==
        "config: 'schedule.type' is 'Square'; " + valid);
  CHECK(ErrorOfSchedule(R"({"type": "Warmup", "start_scale": 2})") ==
        "config: 'schedule.start_scale' must be a number in [0, 1], got 2");
}

}  // namespace
}  // namespace lopt
