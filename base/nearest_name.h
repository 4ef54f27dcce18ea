#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// The one of `names` that is `name` but for its case or few edits (insertions, deletions,
// replacements, swaps of neighbours), else the first that it abbreviates ("lr"); null if there is
// none.
const std::string* NearestName(std::string_view name, const std::vector<std::string>& names);

// "; did you mean 'std'?" with the nearest name, or "". For the end of a message.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& names);

}  // namespace lopt
