#pragma once

#include <memory>

#include "lopt/lopt/rules/hand_designed.h"

namespace lopt {

// The rules of Muon and SOAP for one learning rate.
std::unique_ptr<UpdateRule> BindRule(const MuonOptions& options, const Layout& params,
                                     float learning_rate);
std::unique_ptr<UpdateRule> BindRule(const SOAPOptions& options, const Layout& params,
                                     float learning_rate);

}  // namespace lopt
