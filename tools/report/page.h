#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lopt/tools/report/plot.h"

namespace lopt {

// A page under construction: text and figures in the order in which they were added.
class ReportPage {
 public:
  // A heading; of several there is a table of contents. `title` is plain text.
  void Section(const std::string& title);
  // A heading inside a section.
  void Subsection(const std::string& title);
  void AddHtml(const std::string& html);
  // A paragraph of plain text.
  void AddParagraph(const std::string& text);
  // What all else is about, in a sentence of plain text.
  void AddVerdict(const std::string& text);
  // Something that the reader must not miss, in plain text.
  void AddNotice(const std::string& text);
  // Text that is folded away under `summary`; both plain.
  void AddDetails(const std::string& summary, const std::string& text);
  // Figures stand side by side where there is room.
  void AddFigure(Figure figure);

  // The complete HTML document: it needs no other file and no network.
  std::string Render(const std::string& title, const std::string& subtitle) const;

 private:
  struct Block {
    std::string html = {};
    bool is_figure = false;  // the next of figures_
  };

  std::vector<Block> blocks_;
  std::vector<Figure> figures_;
  std::vector<std::string> sections_;
};

}  // namespace lopt
