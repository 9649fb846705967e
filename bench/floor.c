/* See floor.h. */
#include "floor.h"

#include "api/create_on.h"
#include "driver/driver.h"

vmm_status floor_open(vmm_driver_kind kind, uint64_t device_bytes, struct driver **out)
{
    struct driver_options options = { .device_bytes = device_bytes };
    return vmm__driver_open(kind, &options, out);
}

void floor_close(struct driver *driver)
{
    vmm__driver_close(driver);
}

const char *floor_device_name(const struct driver *driver)
{
    return driver->device_name;
}

const char *floor_version(const struct driver *driver)
{
    return driver->version;
}

vmm_status floor_cache_create(struct driver *driver, uint32_t footprint_permille, vmm_cache **out)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.footprint_permille = footprint_permille;
    return vmm__cache_create_on(&config, driver, out);
}

vmm_status floor_stream_create(struct driver *driver, vmm_stream *stream)
{
    return vmm__driver_stream_create(driver, stream);
}

vmm_status floor_stream_destroy(struct driver *driver, vmm_stream stream)
{
    return vmm__driver_stream_destroy(driver, stream);
}

vmm_status floor_fill(struct driver *driver, void *address, size_t bytes, uint32_t word,
                      vmm_stream stream)
{
    return vmm__driver_fill(driver, (uint64_t)(uintptr_t)address, bytes, word, stream);
}

vmm_status floor_check(struct driver *driver, void *address, size_t bytes, uint32_t word,
                       vmm_stream stream)
{
    return vmm__driver_check(driver, (uint64_t)(uintptr_t)address, bytes, word, stream);
}

vmm_status floor_mismatches(struct driver *driver, uint64_t *places)
{
    return vmm__driver_mismatches(driver, places);
}

vmm_status floor_delay(struct driver *driver, uint64_t ns, vmm_stream stream)
{
    return vmm__driver_delay(driver, ns, stream);
}

vmm_status floor_wait(struct driver *driver)
{
    return vmm__driver_device_wait(driver);
}

uint64_t floor_host_ns(const struct driver *driver)
{
    return vmm__driver_host_ns(driver);
}
