/*
 * The format of a segment: a file in shared memory that shows the caches of one process to vmmtop and other programs.
 *
 * A segment is one head; for each cache a monitor_cache, then its pools and its lanes. All numbers are those of the
 * machine. The process writes a segment as a whole, and a reader copies it as a whole. Nothing orders the two: a reader
 * that has copied parts of two states sees that the checksum is wrong, and copies again.
 *
 * A reader must trust nothing: other programs may have written the file, or cut it.
 *
 * Owns: nothing. Invariant: a change of any structure or value raises MONITOR_VERSION.
 * May be called by: monitor, api, and vmmtop. Locks: none.
 */
#ifndef VMM_MONITOR_FORMAT_H
#define VMM_MONITOR_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define MONITOR_MAGIC     "vmmcache"
#define MONITOR_DIRECTORY "/dev/shm"
#define MONITOR_PREFIX    "vmmcache." /* a segment is PREFIX PID "." NUMBER */

enum {
    MONITOR_VERSION = 2,
    MONITOR_MAGIC_BYTES = 8,
    MONITOR_NAME_BYTES = 64,
    MONITOR_DEVICE_BYTES = 96,
    MONITOR_WORD_BYTES = 16,
    MONITOR_MOST_BYTES =
        1 << 18, /* of a segment; pools and lanes that do not fit are only counted */
    MONITOR_PERIOD_MS = 500
};

/*
 * The values: X(name, unit, kind, text). GAUGE: may fall. COUNTER: since the cache was created.
 */
#define MONITOR_MEMORY_MAP(X)                                                                      \
    X(requested_bytes, BYTES, GAUGE, "Requested sizes of live blocks")                             \
    X(allocated_bytes, BYTES, GAUGE, "Sizes of live blocks")                                       \
    X(active_bytes, BYTES, GAUGE, "Sizes of blocks that are live or in use by other streams")      \
    X(active_peak_bytes, BYTES, GAUGE, "Peak of the active bytes")                                 \
    X(reserved_bytes, BYTES, GAUGE, "Physical memory")                                             \
    X(reserved_peak_bytes, BYTES, GAUGE, "Peak of the physical memory")                            \
    X(limbo_bytes, BYTES, GAUGE, "Physical memory that waits for an event before its release")     \
    X(limit_bytes, BYTES, GAUGE, "Most physical memory to reserve; 0: no limit")                   \
    X(blocks, COUNT, GAUGE, "Live blocks")                                                         \
    X(chunks, COUNT, GAUGE, "Physical handles")                                                    \
    X(allocations, COUNT, COUNTER, "Allocations")                                                  \
    X(frees, COUNT, COUNTER, "Frees")

#define MONITOR_CACHE_MAP(X)                                                                       \
    X(asleep_bytes, BYTES, GAUGE, "Memory that sleeping pools gave back and need to wake")         \
    X(streams, COUNT, GAUGE, "Known streams, in all pools")                                        \
    X(places, COUNT, GAUGE, "Mappings in views")                                                   \
    X(view_bytes, BYTES, GAUGE, "Addresses of these mappings")                                     \
    X(stitches, COUNT, COUNTER, "Views made or extended")                                          \
    X(evictions, COUNT, COUNTER, "Mappings given up because one chunk had too many")               \
    X(retries, COUNT, COUNTER, "Allocations that needed a reclaim step")                           \
    X(ooms, COUNT, COUNTER, "Allocations that failed because memory ran out")                      \
    X(pressure_calls, COUNT, COUNTER, "Calls of the pressure function")                            \
    X(compactions, COUNT, COUNTER, "Compactions that moved live bytes")                            \
    X(stalls, COUNT, COUNTER, "Waits of the host for the device")                                  \
    X(stream_waits, COUNT, COUNTER, "Waits of one stream for another")                             \
    X(create_calls, COUNT, COUNTER, "Driver calls: create")                                        \
    X(map_calls, COUNT, COUNTER, "Driver calls: map")                                              \
    X(access_calls, COUNT, COUNTER, "Driver calls: set access")                                    \
    X(unmap_calls, COUNT, COUNTER, "Driver calls: unmap")                                          \
    X(release_calls, COUNT, COUNTER, "Driver calls: release")                                      \
    X(driver_calls, COUNT, COUNTER, "Driver calls of all kinds")                                   \
    X(driver_ns, NANOSECONDS, COUNTER, "Time in driver calls")

#define MONITOR_LANE_MAP(X)                                                                        \
    X(allocated_bytes, BYTES, GAUGE, "Sizes of live blocks")                                       \
    X(waiting_bytes, BYTES, GAUGE, "Freed, and in use by other streams")                           \
    X(reserved_bytes, BYTES, GAUGE, "Physical memory of its heaps, without reserved blocks")       \
    X(blocks, COUNT, GAUGE, "Live blocks")

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

/* The memory of a pool, or of a cache. */
struct monitor_memory {
#define MONITOR_MEMBER(name, unit, kind, text) uint64_t name;
    MONITOR_MEMORY_MAP(MONITOR_MEMBER)
};

struct monitor_pool {
    char name[MONITOR_NAME_BYTES];
    uint32_t is_graph;
    uint32_t phase; /* vmm_pool_phase */
    uint64_t uses;
    struct monitor_memory memory;
};

/* What one stream has in one pool. */
struct monitor_lane {
    uint64_t stream;
    uint64_t pool; /* the number of its pool: 0 is the default pool */
    MONITOR_LANE_MAP(MONITOR_MEMBER)
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
    struct monitor_memory memory;
    MONITOR_CACHE_MAP(MONITOR_MEMBER)
};
#undef MONITOR_MEMBER

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
