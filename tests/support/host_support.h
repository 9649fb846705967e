/*
 * A host driver of 128 MiB for each test, and the steps that most tests take on it.
 *
 * Use HOST_TEST(name), in which `driver` is the driver. The teardown fails if closing it leaves host memory behind.
 */
#ifndef VMM_HOST_SUPPORT_H
#define VMM_HOST_SUPPORT_H

#include "support/driver_steps.h"

#include "base/hostmem.h"

#define HOST_TEST(name) TEST_WITH(name, host_setup, host_teardown, struct driver *driver)

static inline int host_setup(void **state)
{
    struct driver_options options = { .device_bytes = 64 * GRANULE };
    struct driver *driver;
    if (vmm__driver_host_open(&options, &driver) != VMM_OK)
        return -1;
    *state = driver;
    return 0;
}

static inline int host_teardown(void **state)
{
    vmm__driver_close(*state);
    return vmm__host_outstanding() == 0 ? 0 : -1;
}

static inline volatile uint64_t *word_at(uint64_t address)
{
    return (volatile uint64_t *)(uintptr_t)address;
}

#endif
