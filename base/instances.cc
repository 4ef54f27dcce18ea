#include "lopt/base/instances.h"

LOPT_INSTANCES()
