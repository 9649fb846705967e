/*
 * The steps of tests that run on any driver: each must succeed.
 */
#ifndef VMM_DRIVER_STEPS_H
#define VMM_DRIVER_STEPS_H

#include "support/test_support.h"

#include "driver/driver.h"

#define GRANULE (2 * MIB) /* of sim and host */
/* 0 is the default stream; CUDA reserves 1 and 2. */
#define STREAM(number) ((vmm_stream)(uintptr_t)((number) == 0 ? 0 : 0x100 + (number)))

static inline uint64_t mismatches(struct driver *driver)
{
    uint64_t places;
    assert_ok(vmm__driver_mismatches(driver, &places));
    return places;
}

/* A reservation with `handles` handles of `each` bytes mapped in a row. */
struct region {
    uint64_t address;
    uint64_t bytes;
    uint64_t each;
    uint64_t handles[8];
};

static inline uint64_t address_reserve(struct driver *driver, uint64_t bytes)
{
    uint64_t address;
    assert_ok(vmm__driver_reserve(driver, bytes, 0, &address));
    assert_int_equal(address % driver->granule_bytes, 0);
    return address;
}

static inline uint64_t handle_create(struct driver *driver, uint64_t bytes)
{
    uint64_t handle;
    assert_ok(vmm__driver_create(driver, bytes, false, &handle));
    return handle;
}

static inline void handle_map(struct driver *driver, uint64_t address, uint64_t bytes,
                              uint64_t handle)
{
    assert_ok(vmm__driver_map(driver, address, bytes, handle));
    assert_ok(vmm__driver_access(driver, address, bytes));
}

/* Reserves addresses and maps one new handle there; `handle` may be NULL. */
static inline uint64_t memory_map(struct driver *driver, uint64_t bytes, uint64_t *handle)
{
    uint64_t address = address_reserve(driver, bytes);
    uint64_t created = handle_create(driver, bytes);
    handle_map(driver, address, bytes, created);
    if (handle != NULL)
        *handle = created;
    return address;
}

static inline struct region region_open(struct driver *driver, uint64_t handles,
                                        uint64_t granules_each)
{
    struct region region = { .each = granules_each * driver->granule_bytes };
    region.bytes = handles * region.each;
    region.address = address_reserve(driver, region.bytes);
    for (uint64_t i = 0; i < handles; i++) {
        region.handles[i] = handle_create(driver, region.each);
        assert_ok(vmm__driver_map(driver, region.address + i * region.each, region.each,
                                  region.handles[i]));
    }
    assert_ok(vmm__driver_access(driver, region.address, region.bytes));
    return region;
}

static inline void region_close(struct driver *driver, const struct region *region)
{
    assert_ok(vmm__driver_device_wait(driver));
    assert_ok(vmm__driver_unmap(driver, region->address, region->bytes));
    for (uint64_t i = 0; i < region->bytes / region->each; i++)
        assert_ok(vmm__driver_release(driver, region->handles[i], region->each));
    assert_ok(vmm__driver_address_free(driver, region->address, region->bytes));
}

static inline void memory_fill(struct driver *driver, uint64_t address, uint64_t bytes,
                               uint32_t word, vmm_stream stream)
{
    assert_ok(vmm__driver_fill(driver, address, bytes, word, stream));
}

static inline void memory_check(struct driver *driver, uint64_t address, uint64_t bytes,
                                uint32_t word, vmm_stream stream)
{
    assert_ok(vmm__driver_check(driver, address, bytes, word, stream));
}

static inline void *event_new(struct driver *driver)
{
    void *event;
    assert_ok(vmm__driver_event_create(driver, &event));
    return event;
}

static inline vmm_stream stream_new(struct driver *driver)
{
    vmm_stream stream;
    assert_ok(vmm__driver_stream_create(driver, &stream));
    return stream;
}

/* Orders later work of `stream` after all earlier work of `before`. */
static inline void stream_order_after(struct driver *driver, vmm_stream stream, vmm_stream before,
                                      void *event)
{
    assert_ok(vmm__driver_event_record(driver, event, before));
    assert_ok(vmm__driver_stream_wait(driver, stream, event));
}

#endif
