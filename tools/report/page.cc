#include "lopt/tools/report/page.h"

#include <fmt/format.h>

#include "lopt/tools/report/html.h"
#include "lopt/tools/report/page_text.h"

namespace lopt {

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

void ReportPage::AddVerdict(const std::string& text) {
  AddHtml("<p class=\"verdict\">" + EscapeHtml(text) + "</p>\n");
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
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<header>\n<h1>{0}</h1>\n"
      "<div class=\"subtitle\">{2}</div>\n",
      EscapeHtml(title), kPageStyle, EscapeHtml(subtitle));
  if (sections_.size() > 1) {
    page += "<nav><ul>";
    for (size_t i = 0; i < sections_.size(); ++i) {
      page += fmt::format("<li><a href=\"#s{}\">{}</a></li>", i, EscapeHtml(sections_[i]));
    }
    page += "</ul></nav>\n";
  }
  page += "</header>\n<main>\n";
  size_t figure = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i].is_figure) {
      page += blocks_[i].html;
      continue;
    }
    if (i == 0 || !blocks_[i - 1].is_figure) page += "<div class=\"figures\">\n";
    page += DrawFigure(figures_[figure], figure);
    ++figure;
    if (i + 1 == blocks_.size() || !blocks_[i + 1].is_figure) page += "</div>\n";
  }
  return page + "</main>\n<script>" + kPageScript + "</script>\n</body>\n</html>\n";
}

}  // namespace lopt
