/* The line of a request that failed for want of memory: see shortage.h. */
#include "policy/shortage.h"
#include "base/arith.h"
#include "base/error.h"
#include "policy/compact.h"
#include "policy/idle.h"

#include <stdarg.h>
#include <stdio.h>

/* Free memory at the moment of failure, over all streams. */
struct holdings {
    uint64_t idle_bytes;
    uint64_t busy_bytes;    /* of those, under work that has not finished */
    uint64_t pinned_bytes;  /* free, beside live blocks in the same chunks */
    uint64_t pinned_chunks; /* that these lie in */
    uint64_t largest_bytes; /* the largest free block */
    uint64_t kept_bytes;    /* free, in private pools that are in use */
    vmm_stream pinner;      /* whose blocks pin most */
    uint64_t pinner_bytes;
};

/* ---- What there is --------------------------------------------------------------------------- */

static const struct chunk *chunk_at(const struct memory *memory, uint64_t address)
{
    return vmm__memory_chunk(memory, vmm__arena_granule(&memory->arena, address));
}

static uint64_t chunk_end(const struct memory *memory, const struct chunk *chunk)
{
    return vmm__chunk_address(memory, chunk) + vmm__chunk_bytes(memory, chunk);
}

/* Whether a free block that starts behind this one, in the same chunk, counts the chunk. */
static bool is_counted_later(const struct block *block, uint64_t end)
{
    const struct block *next = block->next;
    while (next != NULL && next->address < end && next->state != BLOCK_FREE)
        next = next->next;
    return next != NULL && next->address < end;
}

/* The chunks that a free block shares with others: at its ends, or the one that it lies in. Of
 * several free blocks in a chunk, the last counts it. */
static uint64_t shared_chunks(const struct memory *memory, const struct block *block)
{
    const struct chunk *first = chunk_at(memory, block->address);
    const struct chunk *last = chunk_at(memory, vmm__block_end(block) - 1);
    uint64_t end = chunk_end(memory, last);
    bool first_is_whole = vmm__chunk_address(memory, first) == block->address;
    bool last_is_whole = end == vmm__block_end(block);
    uint64_t count = 0;
    if (first != last && !first_is_whole)
        count++;
    if (!(last_is_whole && (first != last || first_is_whole)) && !is_counted_later(block, end))
        count++;
    return count;
}

static uint64_t heap_read(struct vmm_cache *cache, struct heap *heap, struct holdings *holdings)
{
    uint64_t idle_bytes = 0;
    for (struct size_node *node = vmm__size_index_largest(&heap->index); node != NULL;
         node = vmm__size_index_smaller(&heap->index, node)) {
        const struct block *block = (const struct block *)node;
        idle_bytes += vmm__idle_bytes(&cache->memory, block);
        holdings->pinned_chunks += shared_chunks(&cache->memory, block);
        holdings->largest_bytes = vmm__max(holdings->largest_bytes, node->size);
    }
    holdings->idle_bytes += idle_bytes;
    holdings->busy_bytes += vmm__idle_unfinished(cache, heap);
    return heap->free_bytes - idle_bytes;
}

static struct holdings holdings_read(struct vmm_cache *cache, const struct pool *held)
{
    struct holdings holdings = { .idle_bytes = 0 };
    for (struct pool *pool = cache->pools.first; pool != NULL; pool = pool->next) {
        vmm__pool_lock_beside(pool, held);
        vmm__account_post(&pool->account, &cache->ledger);
        uint64_t pinned_bytes = 0;
        if (pool->is_held)
            holdings.kept_bytes += pool->small.free_bytes + pool->large.free_bytes;
        else
            pinned_bytes = heap_read(cache, &pool->small, &holdings) +
                           heap_read(cache, &pool->large, &holdings);
        vmm__pool_unlock_beside(pool, held);
        holdings.pinned_bytes += pinned_bytes;
        if (pinned_bytes > holdings.pinner_bytes) {
            holdings.pinner_bytes = pinned_bytes;
            holdings.pinner = pool->stream;
        }
    }
    return holdings;
}

/* ---- The line -------------------------------------------------------------------------------- */

struct line {
    char text[480];
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
    if (added > 0)
        line->length = vmm__min(line->length + (size_t)added, sizeof line->text - 1);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void holdings_add(struct line *line, const struct vmm_cache *cache,
                         const struct holdings *holdings)
{
    const struct memory *memory = &cache->memory;
    bool limited = memory->limit_bytes != 0;
    line_add(line, "%.1f MiB live, %.1f MiB reserved of %.1f MiB (%s), ",
             mib(vmm__figure_now(&cache->ledger.requested_bytes)),
             mib(vmm__figure_now(&memory->reserved_bytes)),
             mib(limited ? memory->limit_bytes : memory->driver->total_bytes),
             limited ? "limit" : "device");
    line_add(line, "%.1f MiB idle (%.1f MiB in flight), ", mib(holdings->idle_bytes),
             mib(holdings->busy_bytes));
    line_add(line, "%.1f MiB pinned beside live blocks in %llu chunks", mib(holdings->pinned_bytes),
             (unsigned long long)holdings->pinned_chunks);
    if (holdings->pinned_bytes > 0)
        line_add(line, " (most by stream %p: %.1f MiB)", holdings->pinner,
                 mib(holdings->pinner_bytes));
    if (holdings->kept_bytes > 0)
        line_add(line, ", %.1f MiB kept for captured graphs", mib(holdings->kept_bytes));
    line_add(line, ", largest hole %.1f MiB, %.1f MiB in limbo", mib(holdings->largest_bytes),
             mib(memory->limbo_bytes));
}

uint64_t vmm__shortage_device_bytes(const struct vmm_cache *cache)
{
    uint64_t free_bytes;
    uint64_t total_bytes;
    vmm_status status = vmm__driver_memory_info(cache->driver, &free_bytes, &total_bytes);
    return status == VMM_OK ? free_bytes : UINT64_MAX;
}

/* What the driver has free and the cache may still hold. */
struct room {
    uint64_t left;   /* under the limit, or of the whole device */
    uint64_t device; /* free now */
};

static void refusal_add(struct line *line, const struct room *room, uint64_t grow_bytes)
{
    if (grow_bytes > room->device)
        line_add(
            line,
            "; others than this cache hold %.1f MiB of the device's memory, %.1f MiB of it too "
            "much",
            mib(room->left - room->device), mib(grow_bytes - room->device));
    else if (room->device != UINT64_MAX)
        line_add(line, "; the driver refuses though %.1f MiB are free", mib(room->device));
}

/* Who stands in the way, and by how much. Returns the bytes that are missing. */
static uint64_t cause_add(struct line *line, const struct vmm_cache *cache, uint64_t grow_bytes)
{
    const struct memory *memory = &cache->memory;
    uint64_t limit = memory->limit_bytes;
    uint64_t total = memory->driver->total_bytes;
    bool limited = limit != 0 && limit <= total;
    uint64_t most = limited ? limit : total;
    uint64_t reserved = vmm__figure_now(&memory->reserved_bytes);
    struct room room = { .left = most > reserved ? most - reserved : 0 };
    if (grow_bytes > room.left) {
        line_add(line, "; the %s is %.1f MiB too small", limited ? "limit" : "device",
                 mib(grow_bytes - room.left));
        return grow_bytes - room.left;
    }
    room.device = vmm__shortage_device_bytes(cache);
    refusal_add(line, &room, grow_bytes);
    return grow_bytes > room.device ? grow_bytes - room.device : grow_bytes;
}

static void compaction_add(struct line *line, const struct vmm_cache *cache,
                           const struct holdings *holdings, uint64_t missing_bytes)
{
    if (holdings->pinned_bytes < missing_bytes)
        return;
    if (cache->compaction == VMM_COMPACTION_OFF)
        line_add(line, "; compaction, which is off, might free pinned memory");
    else if (vmm__privates_capture(cache))
        line_add(line, "; compaction, which waits for a capture to end, might free pinned memory");
    else if (!vmm__compact_may(cache))
        line_add(
            line,
            "; compaction, which stopped when a second thread called, might free pinned memory");
}

vmm_status vmm__shortage_tell(struct vmm_cache *cache, const struct shortage *shortage)
{
    struct line line = { .length = 0 };
    struct holdings holdings = holdings_read(cache, shortage->pool);
    line_add(&line, "needed %.1f MiB on stream %p: ", mib(shortage->bytes), shortage->pool->stream);
    holdings_add(&line, cache, &holdings);
    if (shortage->status == VMM_ERR_ADDRESS_SPACE)
        line_add(&line, "; the arena of %.1f MiB has too few addresses left in a row",
                 mib(cache->memory.arena.bytes));
    else
        compaction_add(&line, cache, &holdings, cause_add(&line, cache, shortage->grow_bytes));
    return vmm__error(shortage->status, "%s", line.text);
}
