/* The same as in later versions. */
#include "../../rmm_26/rmm/error.hpp"
