#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lopt/tools/report/axis.h"
#include "lopt/tools/report/plot.h"
#include "tests/text_parts.h"

namespace lopt {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::string> Labels(const Axis& axis, int most) {
  std::vector<std::string> labels;
  for (const Axis::Tick& tick : axis.Ticks(most)) labels.push_back(tick.label);
  return labels;
}

// What lies between `begin` and `end`, the first after `after`.
std::string Between(const std::string& text, const std::string& after, const std::string& begin,
                    const std::string& end) {
  const size_t from = text.find(begin, text.find(after));
  REQUIRE_NE(from, std::string::npos);
  const size_t first = from + begin.size();
  return text.substr(first, text.find(end, first) - first);
}

// The row of a forest plot, by its label.
std::string RowOf(const std::string& html, const std::string& label) {
  return Between(html, "<title>" + label + ":", "</title>", "</g>");
}

// The numbers of a path, two for each point.
std::vector<double> Numbers(std::string path) {
  std::ranges::replace(path, 'M', ' ');
  std::vector<double> numbers;
  size_t read = 0;
  for (size_t at = 0; at < path.size(); at += read) {
    numbers.push_back(std::stod(path.substr(at), &read));
  }
  return numbers;
}

}  // namespace

TEST_CASE("Ticks are round numbers, few enough and within the axis") {
  CHECK_EQ(Labels({.low = 0, .high = 199}, 5), std::vector<std::string>{"0", "50", "100", "150"});
  CHECK_EQ(Labels({.low = -0.3, .high = 0.31}, 5), std::vector<std::string>{"-0.2", "0", "0.2"});
  CHECK_EQ(Labels({.low = 0, .high = 100000}, 5), std::vector<std::string>{"0", "50k", "100k"});
  CHECK_EQ(Labels({.low = 123456, .high = 123459}, 5),
           std::vector<std::string>{"123.456k", "123.457k", "123.458k", "123.459k"});
  CHECK_EQ(Labels({.low = 0.05, .high = 30, .logarithmic = true}, 6),
           std::vector<std::string>{"0.1", "0.3", "1", "3", "10", "30"});
  CHECK_EQ(Labels({.low = 0.88, .high = 3.2, .logarithmic = true}, 4),  // not 0.9 beside 1
           std::vector<std::string>{"1", "2"});
  CHECK_EQ(Labels({.low = 1e-7, .high = 1e9, .logarithmic = true}, 5),
           std::vector<std::string>{"0.0001", "1", "10k", "100M"});
  CHECK_EQ(Labels({.low = 0.9, .high = 1.13, .logarithmic = true}, 5),
           std::vector<std::string>{"0.9", "0.95", "1", "1.05", "1.1"});
  // Not 10 alone.
  CHECK_EQ(Labels({.low = 6, .high = 14}, 4), std::vector<std::string>{"8", "12"});
  CHECK_EQ(Labels({.low = 0.6, .high = 1.4}, 4), std::vector<std::string>{"0.8", "1.2"});
  const Axis axis{.low = 1, .high = 100, .logarithmic = true};
  CHECK_EQ(axis.At(10), doctest::Approx(0.5));
  CHECK(std::isnan(axis.At(0)));
  CHECK(std::isnan(axis.At(kInfinity)));
}

TEST_CASE("A forest plot has its points, intervals and reference where the logarithms put them") {
  ForestPlot forest;
  forest.rows = {
      {.label = "mine", .ratio = 0.5, .low = 0.25, .high = 1, .bold = true, .word = "unclear"},
      {.label = "unit", .ratio = 1, .low = 1, .high = 1},
      {.label = "SGD", .ratio = 2, .low = 1.5, .high = 4, .word = "worse"},
      {.label = "alone", .ratio = 1.5, .low = kNan, .high = kNan},
      {.label = "far", .ratio = 40, .low = 30, .high = 50, .word = "worse"},
      {.label = "lost", .ratio = kInfinity, .low = 3, .high = kInfinity, .word = "worse"},
      {.label = "none", .ratio = kNan, .low = kNan, .high = kNan}};
  const std::string html = DrawFigure({.title = "t", .x_label = "ratio", .forest = forest}, 3);
  // From the low end of mine to 5, the farthest of what is not bold, and 4 % more.
  const double low = 0.25 / 1.04;
  const double range = std::log(5 * 1.04 / low);
  const auto at = [&](double ratio) {
    return fmt::format("{:.6g}", std::round(1e4 * std::log(ratio / low) / range) / 10);
  };
  CHECK(Has(html, "viewBox=\"0 0 1000 140\""));
  CHECK(Has(html, fmt::format("<path class=\"reference\" d=\"M{} 0V140\"/>", at(1))));
  CHECK(Has(RowOf(html, "mine"),
            fmt::format("<path class=\"line\" d=\"M{} 10H{}\"/><path class=\"dots\" d=\"M{} "
                        "10h0\"/>",
                        at(0.25), at(1), at(0.5))));
  CHECK_FALSE(Has(RowOf(html, "unit"), "class=\"line\""));
  CHECK(Has(RowOf(html, "unit"), fmt::format("d=\"M{} 30h0\"", at(1))));
  CHECK(Has(RowOf(html, "SGD"), fmt::format("d=\"M{} 50H{}\"", at(1.5), at(4))));
  CHECK_FALSE(Has(RowOf(html, "alone"), "class=\"line\""));
  CHECK(Has(RowOf(html, "alone"), fmt::format("d=\"M{} 70h0\"", at(1.5))));
  // Dashes lead to what lies beyond the edge.
  CHECK(Has(RowOf(html, "far"), "<path class=\"edge\" d=\"M880 90H1000\"/>"));
  CHECK_FALSE(Has(RowOf(html, "far"), "class=\"dots\""));
  CHECK(Has(RowOf(html, "lost"), fmt::format("d=\"M{} 110H1000\"", at(3))));
  CHECK(Has(RowOf(html, "lost"), "<path class=\"edge\" d=\"M880 110H1000\"/>"));
  CHECK_FALSE(Has(html, "<title>none:"));
  // Whose ratios they are, and ours.
  CHECK(Has(html, "<title>mine: 0.500 [0.250, 1.00], unclear</title>"));
  CHECK(Has(html, "<g class=\"row ours\"><title>mine:"));
  CHECK(Has(html, "<ol class=\"names\"><li class=\"ours\">mine</li><li>unit</li>"));
  CHECK(Has(html, "<li><span class=\"worse\">&#9650; 2.00</span></li>"));
  CHECK(Has(html, "<li>-</li></ol>"));
}

TEST_CASE("A script reads the values of curves off their coordinates and the ends of the axes") {
  const std::vector<double> losses = {2.5, 0.5, 0.0125, 0.05};
  const std::string html = DrawFigure(
      {.title = "t",
       .x_label = "inner steps",
       .curves =
           {{.label = "mine", .x = {0, 10, 15, 20}, .y = losses, .style = Curve::Style::kThick}}},
      0);
  CHECK_EQ(Between(html, "<figure", "data-x=\"", "\""), "0 20");
  CHECK_EQ(Between(html, "<figure", "data-y=\"", "\""),
           fmt::format("{:.9g} {:.9g} log", 0.0125 / 1.06, 2.5 * 1.06));
  const std::vector<double> numbers =
      Numbers(Between(html, "<g class=\"curve thick\"", "class=\"line\" d=\"", "\""));
  REQUIRE_EQ(numbers.size(), 8);
  const double low = 0.0125 / 1.06;
  const double high = 2.5 * 1.06;
  for (size_t i = 0; i < losses.size(); ++i) {
    CHECK_EQ(numbers[2 * i] / 1000 * 20, std::vector<double>{0, 10, 15, 20}[i]);
    // A tenth of a coordinate, of which the axis has a thousand.
    const double loss = low * std::pow(high / low, 1 - numbers[2 * i + 1] / 1000);
    CHECK_LE(std::abs(std::log(loss / losses[i])), 0.05 / 1000 * std::log(high / low) * 1.001);
  }
  CHECK(Has(html, "<g class=\"curve thick\" style=\"--c:var(--c0)\"><title>mine</title>"));
}

TEST_CASE("Points far outside of the axes have coordinates that a script can read") {
  const std::string html = DrawFigure({.title = "t",
                                       .curves = {{.label = "mine", .x = {0, 1}, .y = {1, 2}},
                                                  {.label = "grey",
                                                   .x = {0, 0.5, 1},
                                                   .y = {1, 3e90, -4e12},
                                                   .style = Curve::Style::kGrey}},
                                       .linear = true},
                                      0);
  const std::vector<double> numbers =
      Numbers(Between(html, "<title>grey</title>", "class=\"line\" d=\"", "\""));
  REQUIRE_EQ(numbers.size(), 6);
  CHECK_LT(numbers[3], -10000);
  CHECK_GT(numbers[5], 10000);
  for (size_t at = 0; (at = html.find(" d=\"", at)) != std::string::npos; ++at) {
    CHECK_FALSE(Has(html.substr(at + 4, html.find('"', at + 4) - at - 4), "e"));
  }
}

TEST_CASE("What cannot be drawn interrupts lines and bands") {
  const std::string html = DrawFigure({.title = "t",
                                       .y_label = "loss",
                                       .curves = {{.x = {0, 1, 2, 3, 4},
                                                   .y = {0, 1, kNan, 1, 0},
                                                   .low = {0, 0, 0, kInfinity, 0},
                                                   .high = {1, 1, 1, 1, 1}}},
                                       .linear = true},
                                      0);
  // From 0 to 1 and 6 % more.
  CHECK_EQ(Between(html, "class=\"curve\"", "class=\"line\" d=\"", "\""),
           "M0 1000 250 56.6M750 56.6 1000 1000");
  CHECK_EQ(Between(html, "class=\"curve\"", "class=\"band\" d=\"", "\""),
           "M0 1000 250 1000 500 1000 500 56.6 250 56.6 0 56.6ZM1000 1000 1000 56.6Z");
  CHECK(Has(DrawFigure({.curves = {{.x = {0}, .y = {kNan}}}}, 0), "No numbers to show yet."));
}

TEST_CASE("Legends have a place for each curve, and one for all grey ones") {
  Figure figure{.title = "t"};
  const auto add = [&](const char* label, Curve::Style style) {
    figure.curves.push_back({.label = label, .x = {0, 1}, .y = {1, 2}, .style = style});
  };
  add("mine", Curve::Style::kThick);
  add("rival", Curve::Style::kLine);
  add("a", Curve::Style::kGrey);
  CHECK_FALSE(Has(DrawFigure(figure, 0), "data-greys"));
  add("b", Curve::Style::kGrey);
  add("", Curve::Style::kFaint);
  const std::string html = DrawFigure(figure, 0);
  CHECK(Has(Between(html, "<ul", "data-greys", "</ul>"), "2 others"));
  const std::string legend = Between(html, "<figure", "<ul class=\"legend\">", "</ul>");
  const std::string greys = Between(html, "<details", "<ul class=\"legend\">", "</ul>");
  for (const char* label : {"mine", "rival", "a", "b"}) {
    CAPTURE(label);
    const bool grey = std::string(label).size() == 1;
    CHECK(Has(grey ? greys : legend, fmt::format("</svg>{}</button>", label)));
  }
  // What is behind is drawn first, ours last.
  const size_t faint = At(html, "<g class=\"faint\"");
  const size_t grey = At(html, "<g class=\"curve grey\"");
  const size_t rival = At(html, "<g class=\"curve\"");
  CHECK_LT(faint, grey);
  CHECK_LT(grey, rival);
  CHECK_LT(rival, At(html, "<g class=\"curve thick\""));
}

TEST_CASE("The cells of a heat map have the shades of their values") {
  const HeatMap map{.x_edges = {0, 1, 2},
                    .rows = {"0-9", "10-19"},
                    .values = {{1, 2}, {kNan, 1}},
                    .label = "mean loss"};
  const std::string html = DrawFigure({.title = "t", .heat_map = map}, 0);
  // The darkest for 1, the brightest for 2, from the bottom up.
  CHECK(Has(html, "d=\"M0 500h500v500h-500zM500 0h500v500h-500z\"><title>about 1.01</title>"));
  CHECK(Has(html, "d=\"M500 500h500v500h-500z\"><title>about 1.99</title>"));
  CHECK(Has(html, "<span style=\"bottom:25%\">0-9</span>"));
}

}  // namespace lopt
