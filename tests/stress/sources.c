/*
 * The source of general pools that have one: granules of a region of the driver, which the cache does not know. Its
 * functions make no call of the driver, so that no fault reaches them; one call in eight has no segment. See stress.h.
 */
#include "stress.h"

#include <inttypes.h>

enum { REGION_GRANULES = 64, REFUSE_EVERY = 8 };

static uint64_t run_of(uint64_t first, uint64_t count)
{
    return (count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1) << first;
}

static void *segment_alloc(void *context, size_t bytes, vmm_stream stream)
{
    struct stress *stress = context;
    struct stress_source *source = &stress->source;
    uint64_t granules = bytes / stress->driver->granule_bytes;
    (void)stream;
    if (++source->calls % REFUSE_EVERY == 0)
        return NULL;
    for (uint64_t first = 0; first + granules <= REGION_GRANULES; first++) {
        if ((source->taken & run_of(first, granules)) != 0)
            continue;
        source->taken |= run_of(first, granules);
        source->segments++;
        source->bytes += bytes;
        return (void *)(uintptr_t)(source->address + first * stress->driver->granule_bytes);
    }
    return NULL;
}

static void segment_free(void *context, void *segment, size_t bytes)
{
    struct stress *stress = context;
    struct stress_source *source = &stress->source;
    uint64_t granule_bytes = stress->driver->granule_bytes;
    uint64_t run =
        run_of(((uintptr_t)segment - source->address) / granule_bytes, bytes / granule_bytes);
    if ((source->taken & run) != run)
        stress_trouble(stress, "source: it gets %#" PRIxPTR " back, which it has not given",
                       (uintptr_t)segment);
    source->taken &= ~run;
    source->segments--;
    source->bytes -= bytes;
}

bool stress_source_open(struct stress *stress)
{
    struct stress_source *source = &stress->source;
    struct driver *driver = stress->driver;
    uint64_t bytes = REGION_GRANULES * driver->granule_bytes;
    bool is_large = driver->total_bytes >= 16 * bytes;
    if (source->region_bytes != 0 || !is_large || stress->is_lost)
        return source->region_bytes != 0;
    if (vmm__driver_reserve(driver, bytes, 0, &source->address) != VMM_OK)
        return false;
    if (vmm__driver_create(driver, bytes, false, &source->handle) != VMM_OK) {
        stress_expect_ok(stress, "address free",
                         vmm__driver_address_free(driver, source->address, bytes));
        return false;
    }
    stress_expect_ok(stress, "map",
                     vmm__driver_map(driver, source->address, bytes, source->handle));
    stress_expect_ok(stress, "access", vmm__driver_access(driver, source->address, bytes));
    source->region_bytes = bytes;
    return !stress_is_troubled(stress);
}

void stress_source_close(struct stress *stress)
{
    struct stress_source *source = &stress->source;
    struct driver *driver = stress->driver;
    uint64_t bytes = source->region_bytes;
    if (source->segments != 0)
        stress_trouble(stress, "source: %u segments were not given back", source->segments);
    if (bytes != 0 && !stress->is_lost) {
        stress_expect_ok(stress, "unmap", vmm__driver_unmap(driver, source->address, bytes));
        stress_expect_ok(stress, "release", vmm__driver_release(driver, source->handle, bytes));
        stress_expect_ok(stress, "address free",
                         vmm__driver_address_free(driver, source->address, bytes));
    }
    *source = (struct stress_source){ .calls = 0 };
}

vmm_segment_source stress_source(struct stress *stress, uint64_t bits)
{
    vmm_segment_source source = { segment_alloc, segment_free, stress, 0 };
    source.segment_bytes = bits % 4 * 3 * stress->driver->granule_bytes;
    return source;
}
