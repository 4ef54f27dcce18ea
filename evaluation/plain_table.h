#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace lopt {

// A table for the terminal: columns with two spaces between them, all but the first aligned to the
// right.
class PlainTable {
 public:
  struct Column {
    std::string name = {};  // what stands above it
    size_t least = 0;       // characters that it is wide at least
  };

  // `mark` stands before the line of names.
  explicit PlainTable(std::vector<Column> columns, const std::string& mark = "");

  // A line of as many cells as there are columns; `mark` stands before it and is as long as that of
  // the names.
  void Add(std::vector<std::string> cells, const std::string& mark = "");

  // In lines of at most `width` characters. What is too long in the first column loses its middle,
  // down to ten characters; then the last columns are left out, and a line says which. The first
  // two are always there.
  std::string Text(size_t width = std::numeric_limits<size_t>::max()) const;

 private:
  std::vector<size_t> least_;
  std::vector<std::string> marks_;
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace lopt
