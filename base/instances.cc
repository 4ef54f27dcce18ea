#include "base/instances.h"

LOPT_INSTANCES()
