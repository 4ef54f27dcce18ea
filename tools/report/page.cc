#include "lopt/tools/report/page.h"

#include <fmt/format.h>

#include "lopt/tools/report/html.h"

namespace lopt {

namespace {

constexpr const char* kStyle = R"(
:root {
  color-scheme: light dark;
  --back: #ffffff; --card: #f6f7f9; --text: #1d2126; --pale: #5a626d; --line: #d5d9df;
  --grid: #00000018; --link: #0b5cad; --notice: #fff3d6; --notice-line: #d99a00;
  --better: #00795a; --worse: #b3403a;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5559b; --c4: #c08a00; --c5: #3fa7dd;
  --c6: #6b6f76; --c7: #8a5a2b;
  --s0: #6a4fb3; --s1: #3b6fc4; --s2: #1b93b0; --s3: #1f9d74; --s4: #6f9d1f; --s5: #bd8f00;
  --s6: #d7691b; --s7: #c2334d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171b; --card: #1c2026; --text: #e4e7eb; --pale: #9aa3af; --line: #343a43;
    --grid: #ffffff1c; --link: #7db9f2; --notice: #3a2f12; --notice-line: #d9a520;
    --better: #4cc9a0; --worse: #f08a80;
    --c0: #4aa8e8; --c1: #f5803e; --c2: #2fc596; --c3: #e08fca; --c4: #e8b93c; --c5: #8fd0f7;
    --c6: #a9afb8; --c7: #c79a6b;
    --s0: #a48df0; --s1: #6f9ff0; --s2: #45bcd8; --s3: #40c99a; --s4: #a4cc48; --s5: #e8be3a;
    --s6: #f79450; --s7: #f0687e;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem; max-width: 84rem; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.6rem; margin: 0; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 1.6rem 0 .5rem; }
h4 { font-size: .97rem; margin: 0 0 .3rem; }
a { color: var(--link); }
p { margin: .5rem 0; max-width: 60rem; }
.subtitle, figcaption, .empty { color: var(--pale); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0;
  margin: .8rem 0 0; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr));
  gap: 1rem; margin: .8rem 0; }
figure { margin: 0; padding: .8rem .9rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; }
figure > svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .84rem; line-height: 1.4; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: 0 0 .3rem;
  padding: 0; font-size: .87rem; }
.legend li { display: flex; align-items: center; gap: .4rem; overflow-wrap: anywhere; }
.swatch { width: 26px; height: 8px; flex: none; }
.gridline { stroke-opacity: 1; }
.scroll { overflow-x: auto; }
.scroll + h4 { margin-top: 1.3rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  margin: .5rem 0; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--pale); font-weight: 600; vertical-align: bottom; }
th.number, td.number { text-align: right; }
td { white-space: nowrap; }
.pale { color: var(--pale); }
.better { color: var(--better); }
.worse { color: var(--worse); }
.notice { background: var(--notice); border-left: 4px solid var(--notice-line);
  padding: .5rem .8rem; margin: .6rem 0; border-radius: 3px; overflow-wrap: anywhere; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .7rem .9rem; overflow-x: auto; font-size: .84rem; line-height: 1.45; }
summary { cursor: pointer; color: var(--link); }
)";

}  // namespace

void ReportPage::Section(const std::string& title) {
  AddHtml(fmt::format("<h2 id=\"s{}\">{}</h2>\n", sections_.size(), EscapeHtml(title)));
  sections_.push_back(title);
}

void ReportPage::Subsection(const std::string& title) {
  AddHtml("<h3>" + EscapeHtml(title) + "</h3>\n");
}

void ReportPage::AddHtml(const std::string& html) {
  blocks_.push_back({.html = html, .is_figure = false});
}

void ReportPage::AddParagraph(const std::string& text) {
  AddHtml("<p>" + EscapeHtml(text) + "</p>\n");
}

void ReportPage::AddNotice(const std::string& text) {
  AddHtml("<p class=\"notice\">" + EscapeHtml(text) + "</p>\n");
}

void ReportPage::AddDetails(const std::string& summary, const std::string& text) {
  AddHtml(fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n",
                      EscapeHtml(summary), EscapeHtml(text)));
}

void ReportPage::AddFigure(Figure figure) {
  figures_.push_back(std::move(figure));
  blocks_.push_back({.html = "", .is_figure = true});
}

std::string ReportPage::Render(const std::string& title, const std::string& subtitle) const {
  const std::vector<std::string> drawn = DrawFigures(figures_);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<header>\n<h1>{0}</h1>\n"
      "<div class=\"subtitle\">{2}</div>\n<nav><ul>",
      EscapeHtml(title), kStyle, EscapeHtml(subtitle));
  for (size_t i = 0; i < sections_.size(); ++i) {
    page += fmt::format("<li><a href=\"#s{}\">{}</a></li>", i, EscapeHtml(sections_[i]));
  }
  page += "</ul></nav>\n</header>\n";
  // The mark that gnuplot's points refer to, once for all figures.
  page +=
      "<svg width=\"0\" height=\"0\" style=\"position:absolute\" "
      "aria-hidden=\"true\"><defs><circle "
      "id=\"gpPt6\" r=\"1\" fill=\"currentColor\"/></defs></svg>\n";
  size_t figure = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i].is_figure) {
      page += blocks_[i].html;
      continue;
    }
    if (i == 0 || !blocks_[i - 1].is_figure) page += "<div class=\"figures\">\n";
    page += drawn[figure++];
    if (i + 1 == blocks_.size() || !blocks_[i + 1].is_figure) page += "</div>\n";
  }
  return page + "</body>\n</html>\n";
}

}  // namespace lopt
