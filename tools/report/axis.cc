#include "lopt/tools/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lopt {

namespace {

constexpr double kLargest = 1e100;
constexpr double kSlack = 1e-9;    // of the axis, within which a tick is still on it
constexpr double kLeastGap = 0.5;  // between ticks, of what equal ones would have

// Multiples of a round step.
std::vector<double> LinearTicks(double low, double high, int most) {
  double step = std::pow(10, std::floor(std::log10((high - low) / most)));
  const double slack = kSlack * (high - low);
  const auto count = [&](double of) {
    return std::floor((high + slack) / of) - std::ceil((low - slack) / of) + 1;
  };
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (count(step) > most && count(step * factor) >= 2) step *= factor;
  }
  std::vector<double> ticks;
  for (double k = std::ceil((low - slack) / step); k * step <= high + slack; ++k) {
    ticks.push_back(k == 0 ? 0 : k * step);
  }
  return ticks;
}

// Powers of ten times each of the factors.
std::vector<double> PowerTicks(double low, double high, const std::vector<double>& factors,
                               int every = 1) {
  std::vector<double> ticks;
  const auto first = static_cast<int>(std::floor(std::log10(low)));
  for (int power = first; std::pow(10, power) <= high * (1 + kSlack); ++power) {
    if (power % every != 0) continue;
    for (const double factor : factors) {
      const double tick = factor * std::pow(10, power);
      if (tick >= low * (1 - kSlack) && tick <= high * (1 + kSlack)) ticks.push_back(tick);
    }
  }
  return ticks;
}

// The densest that are few enough and not too near to each other.
std::vector<double> LogarithmicTicks(double low, double high, int most) {
  const double least = kLeastGap / most * std::log(high / low);
  const auto fits = [&](const std::vector<double>& ticks) {
    for (size_t i = 1; i < ticks.size(); ++i) {
      if (std::log(ticks[i] / ticks[i - 1]) < least) return false;
    }
    return ticks.size() >= 2 && ticks.size() <= static_cast<size_t>(most);
  };
  if (high < 3 * low) {
    std::vector<double> ticks = LinearTicks(low, high, most);
    if (fits(ticks)) return ticks;
  }
  for (const std::vector<double>& factors :
       {std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5}, {1, 3}, {1}}) {
    std::vector<double> ticks = PowerTicks(low, high, factors);
    if (fits(ticks)) return ticks;
  }
  for (int every = 2; every <= 200; ++every) {
    std::vector<double> ticks = PowerTicks(low, high, {1}, every);
    if (fits(ticks)) return ticks;
  }
  return {low, high};
}

}  // namespace

bool Drawable(double value) { return std::abs(value) <= kLargest; }

void Extent::Add(double value) {
  if (!Drawable(value)) return;
  low = empty ? value : std::min(low, value);
  high = empty ? value : std::max(high, value);
  empty = false;
}

void Extent::AddAll(const std::vector<double>& values) {
  for (const double value : values) Add(value);
}

bool Extent::AsksForLogarithms(double from) const { return !empty && low > 0 && high > from * low; }

double Axis::At(double value) const {
  if (!Drawable(value) || (logarithmic && value <= 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

std::vector<Axis::Tick> Axis::Ticks(int most) const {
  const std::vector<double> values =
      logarithmic ? LogarithmicTicks(low, high, most) : LinearTicks(low, high, most);
  const double size = std::max(std::abs(values.front()), std::abs(values.back()));
  const double step = values.size() > 1 ? values[1] - values[0] : size;
  const int digits = logarithmic ? 4 : 2 + static_cast<int>(std::ceil(std::log10(size / step)));
  std::vector<Tick> ticks;
  for (const double value : values) {
    ticks.push_back({.at = At(value), .label = ShortTick(value, std::max(4, digits))});
  }
  return ticks;
}

std::string ShortTick(double value, int digits) {
  const double size = std::abs(value);
  for (const auto& [unit, suffix] :
       {std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (size < unit || size >= 1e12 || (unit == 1e3 && size < 1e4)) continue;
    return fmt::format("{:.{}g}{}", value / unit, digits, suffix);
  }
  return fmt::format("{:.{}g}", value, digits);
}

}  // namespace lopt
