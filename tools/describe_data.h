#pragma once

#include <string>

namespace lopt {

// Prints what data are, for people: shapes, splits, the range of the values, classes with their
// counts, and some of the images drawn with characters, 80 columns wide. `place` is a data
// directory or, for text, a file. `data` is empty, the name of an image source, or a JSON object of
// the image tasks' keys about data ({"data": "csv", "csv_white": 16}); without it all sources of
// which the directory has files are described. What the readers warn of is logged. Throws Error as
// they do, and where nothing of what a reader looks for is there.
void DescribeData(const std::string& place, const std::string& data);

}  // namespace lopt
