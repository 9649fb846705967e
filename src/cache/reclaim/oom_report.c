/* Composes the error line of a request that ran out of memory: see oom_report.h. */
#include "cache/reclaim/oom_report.h"
#include "base/arith.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/size.h"
#include "cache/idle/idle_scan.h"

#include <stdarg.h>
#include <stdio.h>

enum { SIZE_BYTES = 32 };

/* Free memory of all lanes at the moment of failure. */
struct free_memory {
    uint64_t idle_bytes;
    uint64_t busy_bytes;    /* part of idle_bytes: its work has not finished */
    uint64_t pinned_bytes;  /* free, in chunks that live blocks share */
    uint64_t granule_bytes; /* part of pinned_bytes: whole granules, which compaction can release */
    uint64_t largest_bytes; /* the largest free block */
    uint64_t retained_bytes; /* free, in pools that are retained */
    vmm_stream pinner;       /* the stream whose lane pins most */
    uint64_t pinner_bytes;
};

/* ---- Free memory --------------------------------------------------------------------------- */

/* Returns the bytes that are pinned. */
static uint64_t heap_read(struct vmm_cache *cache, struct heap *heap,
                          struct free_memory *free_memory)
{
    struct idle_sum sum = vmm__idle_sum(&cache->vm, heap);
    free_memory->idle_bytes += sum.idle_bytes;
    free_memory->busy_bytes += sum.idle_bytes - vmm__idle_finished(cache, heap);
    free_memory->granule_bytes += sum.granule_bytes;
    free_memory->largest_bytes = vmm__max(free_memory->largest_bytes, sum.largest_bytes);
    return sum.pinned_bytes;
}

static struct free_memory free_memory_read(struct vmm_cache *cache, const struct lane *held)
{
    struct free_memory free_memory = { .idle_bytes = 0 };
    for (struct lane *lane = cache->lanes.stocked.first; lane != NULL; lane = lane->list_next) {
        vmm__lane_lock_beside(lane, held);
        vmm__lane_counters_flush(lane);
        uint64_t pinned_bytes = 0;
        uint64_t slab_bytes = vmm__slabs_free_bytes(&lane->slabs);
        uint64_t free_bytes = lane->small.free_bytes + lane->large.free_bytes + slab_bytes;
        if (vmm__lane_is_retained(lane)) /* what is free in a sleeping pool has no memory */
            free_memory.retained_bytes += vmm__pool_is_asleep(lane->owner.pool) ? 0 : free_bytes;
        else
            pinned_bytes = heap_read(cache, &lane->small, &free_memory) +
                           heap_read(cache, &lane->large, &free_memory) + slab_bytes;
        vmm__lane_unlock_beside(lane, held);
        free_memory.pinned_bytes += pinned_bytes;
        if (pinned_bytes > free_memory.pinner_bytes) {
            free_memory.pinner_bytes = pinned_bytes;
            free_memory.pinner = lane->owner.stream;
        }
    }
    return free_memory;
}

/* ---- The line -------------------------------------------------------------------------------- */

struct line {
    char text[ERROR_LINE_BYTES];
    size_t length;
};

static void line_add(struct line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void line_add(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int added =
        vsnprintf(line->text + line->length, sizeof line->text - line->length, format, arguments);
    va_end(arguments);
    VMM_ASSERT(added >= 0);
    line->length = vmm__min(line->length + (size_t)added, sizeof line->text - 1);
}

struct stream_text {
    char text[32];
};

static struct stream_text stream_text(vmm_stream stream)
{
    struct stream_text written = { "the default stream" };
    if (stream != NULL)
        (void)snprintf(written.text, sizeof written.text, "stream %p", stream);
    return written;
}

/* Adds nothing if no memory is pinned and no block is live. Freed blocks that wait for other streams pin memory,
 * too. */
static void pinned_add(struct line *line, const struct vmm_cache *cache,
                       const struct free_memory *free_memory)
{
    uint64_t live = vmm__stat_now(&cache->totals.allocations);
    bool only_waits = live == 0 && vmm__stat_now(&cache->totals.active_bytes) > 0;
    if (free_memory->pinned_bytes == 0 && live == 0)
        return;
    line_add(line, "%s pinned beside %s blocks", vmm__size_text(free_memory->pinned_bytes).text,
             only_waits ? "waiting" : "live");
    if (free_memory->pinned_bytes > 0)
        line_add(line, " (most by %s: %s)", stream_text(free_memory->pinner).text,
                 vmm__size_text(free_memory->pinner_bytes).text);
    line_add(line, ", ");
}

/* What the program has; what its blocks have beyond that; and what other streams, or debug mode, still have. */
static void active_add(struct line *line, const struct vmm_cache *cache)
{
    uint64_t requested = vmm__stat_now(&cache->totals.requested_bytes);
    uint64_t allocated = vmm__stat_now(&cache->totals.allocated_bytes);
    uint64_t active = vmm__stat_now(&cache->totals.active_bytes);
    line_add(line, "%s live, ", vmm__size_text(requested).text);
    if (allocated > requested)
        line_add(line, "%s rounding, ", vmm__size_text(allocated - requested).text);
    if (active > allocated)
        line_add(line, "%s waiting, ", vmm__size_text(active - allocated).text);
}

static void free_memory_add(struct line *line, const struct vmm_cache *cache,
                            const struct free_memory *free_memory)
{
    const struct vm *memory = &cache->vm;
    bool limited = memory->limit_bytes != 0;
    active_add(line, cache);
    if (memory->counts.asleep_bytes > 0)
        line_add(line, "%s asleep, ", vmm__size_text(memory->counts.asleep_bytes).text);
    line_add(line, "%s reserved of %s (%s), ",
             vmm__size_text(vmm__stat_now(&memory->reserved_bytes)).text,
             vmm__size_text(limited ? memory->limit_bytes : memory->driver->total_bytes).text,
             limited ? "limit" : "device");
    line_add(line, "%s idle (%s in flight), ", vmm__size_text(free_memory->idle_bytes).text,
             vmm__size_text(free_memory->busy_bytes).text);
    pinned_add(line, cache, free_memory);
    if (free_memory->retained_bytes > 0)
        line_add(line, "%s retained for captured graphs, ",
                 vmm__size_text(free_memory->retained_bytes).text);
    line_add(line, "largest hole %s, %s in limbo", vmm__size_text(free_memory->largest_bytes).text,
             vmm__size_text(memory->counts.limbo_bytes).text);
}

/* The memory that the cache could still get. */
struct room {
    uint64_t left;   /* below the limit, or below the device's total */
    uint64_t device; /* free now */
};

static void refusal_add(struct line *line, const struct room *room, uint64_t grow_bytes)
{
    if (grow_bytes > room->device)
        line_add(line, "; other users hold %s of the device's memory, which is %s too much",
                 vmm__size_text(room->left - room->device).text,
                 vmm__size_text(grow_bytes - room->device).text);
    else if (room->device != UINT64_MAX)
        line_add(line, "; the driver refuses though %s are free",
                 vmm__size_text(room->device).text);
}

/* Adds the pool whose own limit refuses the request, and how it is used. Returns the missing bytes; 0: its limit allows
 * the request. */
static uint64_t pool_cause_add(struct line *line, const struct pool *pool, uint64_t grow_bytes)
{
    uint64_t short_bytes = vmm__account_short_bytes(&pool->account, grow_bytes);
    if (short_bytes > 0)
        line_add(line, "; the limit of pool %s is %s too small: %s live, %s reserved of %s",
                 pool->name, vmm__size_text(short_bytes).text,
                 vmm__size_text(vmm__stat_now(&pool->totals.requested_bytes)).text,
                 vmm__size_text(vmm__stat_now(&pool->account.reserved_bytes)).text,
                 vmm__size_text(pool->account.limit_bytes).text);
    return short_bytes;
}

/* Adds the cause: the limit, the device's size, what other pools have been promised, the pool's source, other
 * processes, or the driver. Returns the missing bytes. */
static uint64_t cause_add(struct line *line, const struct vmm_cache *cache, const struct pool *pool,
                          uint64_t grow_bytes)
{
    uint64_t short_bytes = pool_cause_add(line, pool, grow_bytes);
    if (short_bytes > 0)
        return short_bytes;
    const struct vm *memory = &cache->vm;
    uint64_t limit = memory->limit_bytes;
    uint64_t total = memory->driver->total_bytes;
    bool limited = limit != 0 && limit <= total;
    uint64_t most = limited ? limit : total;
    uint64_t reserved = vmm__stat_now(&memory->reserved_bytes);
    struct room room = { .left = most > reserved ? most - reserved : 0 };
    if (grow_bytes > room.left) {
        short_bytes = grow_bytes - room.left + (reserved - vmm__min(reserved, most));
        line_add(line, "; the %s is %s too small", limited ? "limit" : "device",
                 vmm__size_text(short_bytes).text);
        return short_bytes;
    }
    short_bytes = vmm__vm_short_bytes(memory, &pool->account, grow_bytes);
    if (short_bytes > 0) {
        line_add(line, "; the rest is %s too small, because other pools were promised some of it",
                 vmm__size_text(short_bytes).text);
        return short_bytes;
    }
    room.device = vmm__cache_device_bytes(cache);
    if (vmm__pool_has_source(pool)) {
        line_add(line, "; the source of pool %s has no segment of %s", pool->name,
                 vmm__size_text(grow_bytes).text);
        return grow_bytes;
    }
    refusal_add(line, &room, grow_bytes);
    return grow_bytes > room.device ? grow_bytes - room.device : grow_bytes;
}

static void compaction_add(struct line *line, struct vmm_cache *cache,
                           const struct free_memory *free_memory, uint64_t missing_bytes)
{
    if (free_memory->granule_bytes < missing_bytes)
        return;
    if (cache->compaction != VMM_ON)
        line_add(line, "; vmm_compact(), or compaction, which is off, might free pinned memory");
    else if (vmm__clock_capture_query(&cache->clock) != VMM_OK)
        line_add(line, "; compaction, which waits for a capture to end, might free pinned memory");
}

static void addresses_add(struct line *line, const struct arena *arena, uint64_t bytes)
{
    char reserved[SIZE_BYTES];
    char limit[SIZE_BYTES];
    line_add(line,
             "; no run of free addresses is long enough: %s are reserved, arena_bytes allows %s",
             vmm__size_write(reserved, sizeof reserved, arena->reserved_bytes),
             vmm__size_write(limit, sizeof limit, arena->limit_bytes));
    if (bytes <= arena->limit_bytes - arena->reserved_bytes)
        line_add(line, ", the driver refuses more");
}

vmm_status vmm__oom_report(struct vmm_cache *cache, const struct oom *oom)
{
    struct line line = { .length = 0 };
    struct free_memory free_memory = free_memory_read(cache, oom->lane);
    line_add(&line, "needed %s on %s: ", vmm__size_text(oom->bytes).text,
             stream_text(oom->lane->owner.stream).text);
    free_memory_add(&line, cache, &free_memory);
    if (oom->status == VMM_ERR_ADDRESS_SPACE)
        addresses_add(&line, &cache->vm.arena, oom->bytes);
    else
        compaction_add(&line, cache, &free_memory,
                       cause_add(&line, cache, oom->lane->owner.pool, oom->grow_bytes));
    if (vmm__clock_capture_query(&cache->clock) == VMM__PENDING)
        line_add(&line, "; until a capture ends, other streams do not get what is freed meanwhile");
    return vmm__error(oom->status, "%s", line.text);
}
