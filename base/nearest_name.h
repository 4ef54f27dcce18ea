#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// "; did you mean 'std'?" if one of `names` is `name` but for its case or few edits (insertions,
// deletions, replacements, swaps of neighbours), else "". For the end of a message.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& names);

}  // namespace lopt
