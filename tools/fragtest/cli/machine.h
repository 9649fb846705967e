/* Says in one line what machine and device this is. Owns nothing. May be called by: main. */
#ifndef FRAGTEST_MACHINE_H
#define FRAGTEST_MACHINE_H

#include "driver/driver.h"

#include <stddef.h>

/* "CPU model, N CPUs; device; driver version". */
void machine_describe(const struct driver *driver, char *text, size_t capacity);

#endif
