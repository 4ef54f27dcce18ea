#pragma once

#include <string>

namespace lopt {

// Who calls this library, so in whose words messages name options.
enum class Caller {
  kCommandLine,  // --allow-isa-change
  kPython        // allow_isa_change=True
};

// Of the process, from now on; a command line at first.
void SetCaller(Caller caller);

// Who it is.
Caller CurrentCaller();

// What the caller writes to set an option, which has the command line's name here. One without a
// value: "--resume", "resume=True".
std::string FlagWords(const std::string& option);
// One with a value: "--from STEP", "from_step=STEP"; without `value` "--out", "out=".
std::string OptionWords(const std::string& option, const std::string& value = "");
// One that sets a key of the config: "data_dir, --data-dir"; in Python the key alone, "data_dir".
std::string KeyWords(const std::string& key);

}  // namespace lopt
