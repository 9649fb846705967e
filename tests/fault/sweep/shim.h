/*
 * A driver whose calls are points: each fails where the sweep wants it to, without doing anything.
 *
 * What the driver itself allocates is no point: to the library it is a call that fails.
 */
#ifndef SWEEP_SHIM_H
#define SWEEP_SHIM_H

#include "driver/driver.h"

/* Puts the points into a driver's table. */
void sweep_shim(struct driver *driver);

#endif
