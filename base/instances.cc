#define LOPT_INSTANCES_HERE
#include "base/instances.h"

LOPT_INSTANCES()
