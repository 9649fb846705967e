/*
 * The driver layer for C++, which cannot include its header (C11 atomics): opens a driver, creates caches and
 * streams on it, and writes and checks bytes. Every function only forwards.
 *
 * Called by: the benches, from any thread.
 */
#ifndef VMM_BENCH_FLOOR_H
#define VMM_BENCH_FLOOR_H

#include "vmmcache/vmmcache.h"

#ifdef __cplusplus
extern "C" {
#endif

struct driver;

/* device_bytes: of a simulated device; 0: the driver's default. */
vmm_status floor_open(vmm_driver_kind kind, uint64_t device_bytes, struct driver **out);
void floor_close(struct driver *driver);
const char *floor_device_name(const struct driver *driver);
const char *floor_version(const struct driver *driver);

/* footprint_permille: 0: the default. */
vmm_status floor_cache_create(struct driver *driver, uint32_t footprint_permille, vmm_cache **out);

vmm_status floor_stream_create(struct driver *driver, vmm_stream *stream);
vmm_status floor_stream_destroy(struct driver *driver, vmm_stream stream);
vmm_status floor_fill(struct driver *driver, void *address, size_t bytes, uint32_t word,
                      vmm_stream stream);
vmm_status floor_check(struct driver *driver, void *address, size_t bytes, uint32_t word,
                       vmm_stream stream);
vmm_status floor_mismatches(struct driver *driver, uint64_t *places);
vmm_status floor_delay(struct driver *driver, uint64_t ns, vmm_stream stream);
vmm_status floor_wait(struct driver *driver);

/* Nanoseconds of host time spent in driver calls so far; on sim the time that the simulation took. */
uint64_t floor_host_ns(const struct driver *driver);

#ifdef __cplusplus
}
#endif

#endif
