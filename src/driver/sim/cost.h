/*
 * Cost of each call on the simulated device, in nanoseconds of its clock.
 *
 * Source: one NVIDIA H200, driver 580.159 (CUDA 13.0), medians of 8 to 256 calls on the host. Set access and unmap cost
 * the same for each mapping, whether one call covers one mapping or many, so the model charges them for each mapping in
 * the range. The fits hold for handles below 4 GiB. Calls on exportable handles cost more; imported ones are taken to
 * cost the same.
 *
 * Owns: nothing. May be called by: the sim driver. Locks: none.
 */
#ifndef VMM_DRIVER_SIM_COST_H
#define VMM_DRIVER_SIM_COST_H

#include "driver/driver.h"

struct sim_cost {
    uint32_t fixed_ns;
    uint32_t each_mib_ns;
};

enum { SIM_ACCESS_AGAIN_NS = 350 }; /* each mapping with access: 63 of them add 22 us */

#define COST(call, fixed, each) [DRIVER_CALL_##call] = { fixed, each }
static inline uint64_t sim_cost_ns(enum driver_call call, uint64_t bytes, bool is_exportable)
{
    static const struct sim_cost usual[DRIVER_CALL_COUNT] = {
        COST(reserve, 2500, 0), /* same for all sizes from 2^40 to 2^46 */
        COST(address_free, 5000, 0),
        COST(create, 13000, 30),
        COST(release, 14000, 650), /* charged at release, even if mappings keep the memory */
        COST(map, 1100, 0),
        COST(unmap, 20000, 14),  /* each mapping */
        COST(access, 31000, 40), /* each mapping without access */
        COST(memory_info, 4700, 0),
        COST(share_export, 700000, 210),
        COST(share_import, 33000, 0),
        COST(share_release, 20000, 0), /* not measured: like a release without memory */
        COST(pin, 0, 58594),           /* 60 ms for each GiB of huge pages */
        COST(unpin, 0, 58594),         /* not measured: like a pin */
        COST(stream_create, 200, 0),   /* not measured: like an event */
        COST(stream_destroy, 200, 0),  /* not measured: like an event */
        COST(event_create, 200, 0),    /* not measured: like a record */
        COST(event_destroy, 200, 0),   /* not measured: like a record */
        COST(event_record, 180, 0),
        COST(clock_record, 350, 0),
        COST(event_query, 180, 0),
        COST(event_wait, 180, 0), /* like a query: device time is not modelled */
        COST(stream_wait, 310, 0),
        COST(device_wait, 180, 0), /* like a query: device time is not modelled */
        COST(copy, 3000, 0),       /* not measured: submission only */
        COST(clear, 3000, 0),      /* not measured: like a copy */
        COST(read, 3000, 0),       /* not measured: like a copy */
        COST(save, 3000, 0),       /* each piece; not measured: like a copy */
        COST(load, 3000, 0),       /* each piece; not measured: like a copy */
    };
    static const struct sim_cost exportable[DRIVER_CALL_COUNT] = {
        COST(create, 17000, 13),
        COST(release, 20000, 790),
        COST(unmap, 20000, 25),
        COST(access, 33000, 60),
    };
    bool differs = is_exportable && exportable[call].fixed_ns != 0;
    struct sim_cost cost = differs ? exportable[call] : usual[call];
    return cost.fixed_ns + (bytes >> 20) * cost.each_mib_ns;
}
#undef COST

/* How long a copy between device and pinned host memory keeps its stream busy: 55.2 GB/s in either direction. */
static inline uint64_t sim_transfer_ns(uint64_t bytes)
{
    return bytes / 552 * 10;
}

#endif
