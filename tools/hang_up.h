#pragma once

namespace lopt {

// Whether the program was started with SIGHUP ignored, as nohup does: it is to go on then when its
// terminal goes.
bool HangUpIsIgnored();

}  // namespace lopt
