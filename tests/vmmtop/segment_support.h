/* A segment in memory, for tests that read it, change it and write it to files. */
#ifndef VMM_SEGMENT_SUPPORT_H
#define VMM_SEGMENT_SUPPORT_H

#include "support/test_support.h"

#include "base/time.h"
#include "monitor/format.h"
#include "monitor/process.h"
#include "vmmtop/snapshot.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One cache with two pools and three lanes, and one with a pool alone. */
struct sample {
    struct monitor_head head;
    struct monitor_cache first;
    struct monitor_pool first_pools[2];
    struct monitor_lane first_lanes[3];
    struct monitor_cache second;
    struct monitor_pool second_pools[1];
};

/* Completes the head after a change. */
static inline void sample_seal(struct sample *sample)
{
    sample->head.checksum =
        vmm__monitor_checksum((char *)sample + MONITOR_COVERED, sizeof *sample - MONITOR_COVERED);
}

static inline void cache_fill(struct monitor_cache *cache, uint64_t serial, uint32_t pools,
                              uint32_t lanes)
{
    cache->serial = serial;
    cache->pools = pools;
    cache->lanes = lanes;
    cache->device_bytes = GIB;
    strcpy(cache->driver, "sim");
    strcpy(cache->device_name, "simulated H200");
    cache->stats.reserved_bytes.current = 64 * MIB;
    cache->stats.allocated_bytes.current = 40 * MIB;
    cache->stats.active_bytes.current = 48 * MIB;
    cache->stats.allocations = (vmm_stat){ .current = 10, .allocated = 1000, .freed = 990 };
    cache->stats.driver_ns = 1500000000;
}

/* A segment of this process. */
static inline struct sample sample_make(void)
{
    struct sample sample;
    memset(&sample, 0, sizeof sample);
    sample.head = (struct monitor_head){ .version = MONITOR_VERSION,
                                         .head_bytes = sizeof(struct monitor_head),
                                         .cache_bytes = sizeof(struct monitor_cache),
                                         .pool_bytes = sizeof(struct monitor_pool),
                                         .lane_bytes = sizeof(struct monitor_lane),
                                         .caches = 2,
                                         .bytes = sizeof sample,
                                         .sequence = 1,
                                         .pid = (uint64_t)getpid(),
                                         .pid_space = vmm__process_pid_space(),
                                         .start_ticks = vmm__process_start((uint64_t)getpid()),
                                         .time_ns = vmm__time_ns() };
    memcpy(sample.head.magic, MONITOR_MAGIC, sizeof sample.head.magic);
    strcpy(sample.head.program, "a \"program\"");
    strcpy(sample.head.library, "0.2.0");
    cache_fill(&sample.first, 1, 2, 3);
    cache_fill(&sample.second, 2, 1, 0);
    strcpy(sample.first_pools[0].name, "default");
    strcpy(sample.first_pools[1].name, "weights\\\xC3\xA4\xFF");
    strcpy(sample.second_pools[0].name, "default");
    for (uint32_t i = 0; i < 3; i++)
        sample.first_lanes[i] = (struct monitor_lane){
            .stream = 0x1000 * i, .pool = i % 2, .allocated_bytes = (i + 1) * MIB, .blocks = i
        };
    sample_seal(&sample);
    return sample;
}

#endif
