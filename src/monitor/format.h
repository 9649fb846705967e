/*
 * The format of a segment: a file in shared memory that shows the caches of one process to vmmtop and other programs.
 *
 * A segment is one head; for each cache a monitor_cache, then its pools and its lanes. All numbers are those of the
 * machine. The process writes a segment as a whole, and a reader copies it as a whole. Nothing orders the two: a reader
 * that has copied parts of two states sees that the checksum is wrong, and copies again.
 *
 * A reader must trust nothing: other programs may have written the file, or cut it.
 *
 * Owns: nothing. Invariant: a change of any structure raises MONITOR_VERSION; one statistic more does not, because
 * readers compare the sizes.
 * May be called by: monitor, neighbour, api, and vmmtop. Locks: none.
 */
#ifndef VMM_MONITOR_FORMAT_H
#define VMM_MONITOR_FORMAT_H

#include "vmmcache/vmmcache.h"

#include <stddef.h>
#include <stdint.h>

#define MONITOR_MAGIC     "vmmcache"
#define MONITOR_DIRECTORY "/dev/shm"
#define MONITOR_PREFIX    "vmmcache." /* a segment is PREFIX PID "." NUMBER */

enum {
    MONITOR_VERSION = 3,
    MONITOR_MAGIC_BYTES = 8,
    MONITOR_NAME_BYTES = 64,
    MONITOR_DEVICE_BYTES = 96,
    MONITOR_WORD_BYTES = 16,
    MONITOR_MOST_BYTES =
        1 << 18, /* of a segment; pools and lanes that do not fit are only counted */
    MONITOR_PERIOD_MS = 500
};

/* The values of a stream in a pool, as the statistics of VMM_VALUE_MAP. */
#define MONITOR_LANE_MAP(X)                                                                        \
    X(allocated_bytes, BYTES, "Sizes of live blocks")                                              \
    X(waiting_bytes, BYTES, "Freed, and in use by other streams")                                  \
    X(reserved_bytes, BYTES, "Physical memory that it has, for blocks and free")                   \
    X(blocks, COUNT, "Live blocks")

struct monitor_head {
    char magic[MONITOR_MAGIC_BYTES];
    uint32_t version;
    uint32_t head_bytes; /* the sizes of this and the other structures */
    uint32_t cache_bytes;
    uint32_t pool_bytes;
    uint32_t lane_bytes;
    uint32_t caches;
    uint64_t bytes;    /* of the segment */
    uint64_t checksum; /* of all that follows */
    uint64_t sequence; /* rises with each state */
    uint64_t pid;
    uint64_t pid_space;   /* in which the pid counts: the inode of /proc/self/ns/pid; 0: unknown */
    uint64_t start_ticks; /* of the process: field 22 of /proc/PID/stat; 0: unknown */
    uint64_t time_ns;     /* CLOCK_MONOTONIC */
    char program[MONITOR_NAME_BYTES];
    char library[MONITOR_WORD_BYTES]; /* its version */
};

struct monitor_pool {
    char name[MONITOR_NAME_BYTES];
    uint32_t is_graph;
    uint32_t phase; /* vmm_pool_phase */
    uint64_t uses;
    vmm_stats stats;
};

/* What one stream has in one pool. */
struct monitor_lane {
    uint64_t stream;
    uint64_t pool; /* the number of its pool: 0 is the default pool */
#define MONITOR_MEMBER(name, unit, text) uint64_t name;
    MONITOR_LANE_MAP(MONITOR_MEMBER)
#undef MONITOR_MEMBER
};

struct monitor_cache {
    uint64_t serial; /* not that of another cache of the process, also in the past */
    uint64_t device; /* its ordinal */
    char driver[MONITOR_WORD_BYTES];
    char device_name[MONITOR_DEVICE_BYTES];
    uint64_t device_bytes;
    uint32_t pools; /* that follow */
    uint32_t lanes;
    uint32_t pools_omitted; /* because the segment is full */
    uint32_t lanes_omitted;
    vmm_stats stats; /* without those that need locks: VMM_STAT_SCAN */
};

/* Of whole words: FNV-1a, eight bytes at a time, so that each bit counts. */
static inline uint64_t vmm__monitor_checksum(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t sum = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i + sizeof(uint64_t) <= count; i += sizeof(uint64_t)) {
        uint64_t word;
        __builtin_memcpy(&word, at + i, sizeof word);
        sum = (sum ^ word) * UINT64_C(0x100000001B3);
        sum ^= sum >> 32;
    }
    return sum;
}

/* The part of a segment that its checksum covers. */
#define MONITOR_COVERED (offsetof(struct monitor_head, checksum) + sizeof(uint64_t))

#endif
