/* The same as in later versions, in its earlier place. */
#include "../../../../rmm_26/rmm/mr/device_memory_resource.hpp"
