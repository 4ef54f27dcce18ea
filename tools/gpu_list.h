#pragma once

#include <string>
#include <vector>

namespace lopt {

// The numbers in "0,2", as --devices takes them. Throws UsageError if it is no such list.
std::vector<int> GpusOf(const std::string& list);

}  // namespace lopt
