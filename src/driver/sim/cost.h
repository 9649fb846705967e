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

#include <stdint.h>

/* X(name, fixed ns, ns for each MiB) */
#define SIM_COST_MAP(X)                                                                            \
    X(RESERVE, 2500, 0) /* same for all sizes from 2^40 to 2^46 */                                 \
    X(ADDRESS_FREE, 5000, 0)                                                                       \
    X(CREATE, 13000, 30)                                                                           \
    X(CREATE_EXPORTABLE, 17000, 13)                                                                \
    X(RELEASE, 14000, 650) /* charged at release, even if mappings keep the memory */              \
    X(RELEASE_EXPORTABLE, 20000, 790)                                                              \
    X(MAP, 1100, 0)                                                                                \
    X(UNMAP, 20000, 14)  /* each mapping */                                                        \
    X(ACCESS, 31000, 40) /* each mapping without access */                                         \
    X(UNMAP_EXPORTABLE, 20000, 25)                                                                 \
    X(ACCESS_EXPORTABLE, 33000, 60)                                                                \
    X(ACCESS_AGAIN, 350, 0) /* each mapping with access: 63 of them add 22 us */                   \
    X(MEMORY_INFO, 4700, 0)                                                                        \
    X(SHARE_EXPORT, 700000, 210)                                                                   \
    X(SHARE_IMPORT, 33000, 0)                                                                      \
    X(SHARE_RELEASE, 20000, 0) /* not measured: like a release without memory */                   \
    X(PIN, 0, 58594)           /* 60 ms for each GiB of huge pages */                              \
    X(UNPIN, 0, 58594)         /* not measured: like a pin */                                      \
    X(STREAM_CREATE, 200, 0)   /* not measured: like an event */                                   \
    X(STREAM_DESTROY, 200, 0)  /* not measured: like an event */                                   \
    X(EVENT_CREATE, 200, 0)    /* not measured: like a record */                                   \
    X(EVENT_DESTROY, 200, 0)   /* not measured: like a record */                                   \
    X(EVENT_RECORD, 180, 0)                                                                        \
    X(CLOCK_RECORD, 350, 0)                                                                        \
    X(EVENT_QUERY, 180, 0)                                                                         \
    X(EVENT_WAIT, 180, 0) /* like a query: device time is not modelled */                          \
    X(STREAM_WAIT, 310, 0)                                                                         \
    X(DEVICE_WAIT, 180, 0) /* like a query: device time is not modelled */                         \
    X(COPY, 3000, 0)       /* not measured: submission only */                                     \
    X(CLEAR, 3000, 0)      /* not measured: like a copy */                                         \
    X(READ, 3000, 0)       /* not measured: like a copy */                                         \
    X(SAVE, 3000, 0)       /* each piece; not measured: like a copy */                             \
    X(LOAD, 3000, 0)       /* each piece; not measured: like a copy */

enum sim_cost {
#define SIM_COST_ENUM(name, fixed, each) SIM_COST_##name,
    SIM_COST_MAP(SIM_COST_ENUM)
#undef SIM_COST_ENUM
};

static inline uint64_t sim_cost_ns(enum sim_cost cost, uint64_t bytes)
{
    static const struct {
        uint32_t fixed_ns;
        uint32_t each_mib_ns;
    } costs[] = {
#define SIM_COST_ROW(name, fixed, each) { fixed, each },
        SIM_COST_MAP(SIM_COST_ROW)
#undef SIM_COST_ROW
    };
    return costs[cost].fixed_ns + (bytes >> 20) * costs[cost].each_mib_ns;
}

/* How long a copy between device and pinned host memory keeps its stream busy: 55.2 GB/s in either direction. */
static inline uint64_t sim_transfer_ns(uint64_t bytes)
{
    return bytes / 552 * 10;
}

#endif
