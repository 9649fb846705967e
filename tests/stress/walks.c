/* Walks and watches, against each other and the model: see stress.h. */
#include "stress.h"

#include "base/handle.h"
#include "lane/pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes at the end of a slab that are too few for an object: no block covers them. */
enum { SLACK_BYTES = 4096 - 512 };

struct address_entry {
    uint64_t address;
    uint64_t bytes;
};

/* ---- Lists of addresses ---------------------------------------------------------------------- */

/* The index of an address, or where it would be. */
static size_t list_find(const struct address_list *list, uint64_t address)
{
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->entries[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool list_has(const struct address_list *list, uint64_t address, uint64_t bytes)
{
    size_t index = list_find(list, address);
    return index < list->count && list->entries[index].address == address &&
           list->entries[index].bytes == bytes;
}

/* False: it is there already. */
static bool list_add(struct address_list *list, uint64_t address, uint64_t bytes)
{
    size_t index = list_find(list, address);
    if (index < list->count && list->entries[index].address == address)
        return false;
    if (list->count == list->capacity) {
        list->capacity = 2 * list->capacity + 64;
        list->entries = realloc(list->entries, list->capacity * sizeof *list->entries);
        if (list->entries == NULL)
            abort(); /* the machine has no memory for a few kilobytes */
    }
    memmove(&list->entries[index + 1], &list->entries[index],
            (list->count - index) * sizeof *list->entries);
    list->entries[index] = (struct address_entry){ address, bytes };
    list->count++;
    return true;
}

/* False: it is not there. */
static bool list_remove(struct address_list *list, uint64_t address, uint64_t bytes)
{
    size_t index = list_find(list, address);
    if (!list_has(list, address, bytes))
        return false;
    list->count--;
    memmove(&list->entries[index], &list->entries[index + 1],
            (list->count - index) * sizeof *list->entries);
    return true;
}

static void list_end(struct address_list *list)
{
    free(list->entries);
    *list = (struct address_list){ .entries = NULL };
}

/* ---- Changes --------------------------------------------------------------------------------- */

static void memory_changed(struct stress *stress, const vmm_change *change)
{
    struct stress_watch *watch = &stress->watch;
    struct owned_range range = { .address = change->address,
                                 .end = change->address + change->bytes,
                                 .stream = change->stream,
                                 .pool = change->pool_id,
                                 .is_small = change->is_small };
    bool is_right = change->kind == VMM_CHANGE_MAP ? ranges_add(&watch->mapped, &range)
                                                   : ranges_remove(&watch->mapped, &range);
    if (change->bytes == 0 || !is_right)
        watch->trouble = "memory came where some was, or went where none was";
}

/* Only notes trouble, because the cache calls it with locks held; stress_watch_end() and each comparison report it. */
static void change_note(void *context, const vmm_change *change)
{
    struct stress *stress = context;
    struct stress_watch *watch = &stress->watch;
    if (!watch->is_on || change->struct_size != sizeof *change)
        watch->trouble = "a change without a listener, or of another struct_size";
    else if (change->kind == VMM_CHANGE_MAP || change->kind == VMM_CHANGE_UNMAP)
        memory_changed(stress, change);
    else if (change->kind == VMM_CHANGE_WAIT &&
             !list_add(&watch->waiting, change->address, change->bytes))
        watch->trouble = "a block waits twice";
    else if (change->kind == VMM_CHANGE_FREE &&
             !list_remove(&watch->waiting, change->address, change->bytes))
        watch->trouble = "a block came free that did not wait";
}

/* Memory that belongs to a heap: all but what is in limbo. */
static bool is_extent(const vmm_item *item)
{
    return item->kind == VMM_ITEM_CHUNK && item->state != VMM_ITEM_WAITING;
}

static bool is_waiting(const vmm_item *item)
{
    return item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_WAITING;
}

static struct owned_range range_walked(const vmm_item *item)
{
    return (struct owned_range){ .address = item->address,
                                 .end = item->address + item->bytes,
                                 .stream = item->stream,
                                 .pool = item->pool_id,
                                 .is_small = item->is_small };
}

static int item_watched(void *context, const vmm_item *item)
{
    struct stress *stress = context;
    struct owned_range range = range_walked(item);
    if (is_extent(item) && !ranges_add(&stress->watch.mapped, &range))
        stress->watch.trouble = "the walk shows memory twice";
    if (is_waiting(item))
        (void)list_add(&stress->watch.waiting, item->address, item->bytes);
    return 0;
}

/* What was there before is known from a walk. */
void stress_watch_set(struct stress *stress, bool is_on)
{
    struct stress_watch *watch = &stress->watch;
    watch->mapped.count = 0;
    watch->waiting.count = 0;
    watch->trouble = NULL;
    stress_enter(stress);
    vmm_status status = vmm_listen(stress->cache, is_on ? change_note : NULL, stress);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_listen", status, STATUS_BIT(OK), 0);
    watch->is_on = is_on;
    if (is_on)
        stress_expect_ok(stress, "vmm_walk", vmm_walk(stress->cache, item_watched, stress));
}

void stress_watch_end(struct stress *stress)
{
    stress->watch.is_on = false;
    ranges_free(&stress->watch.mapped);
    list_end(&stress->watch.waiting);
}

void operation_watch(struct stress *stress, const struct operation *operation)
{
    stress_watch_set(stress, operation->a % 2 != 0);
}

/* ---- Walks ----------------------------------------------------------------------------------- */

struct walk {
    struct stress *stress;
    vmm_item chunk;       /* the last one seen */
    uint64_t block_end;   /* of the last block */
    uint64_t chunk_bytes; /* of mapped ranges, but for imported ones */
    uint64_t imported_bytes;
    uint64_t asleep_bytes; /* of a pool that a lost device has left so */
    uint64_t idle_bytes;
    uint64_t limbo_bytes;
    uint64_t live_blocks;
    uint64_t waiting_blocks;
    uint64_t waiting_bytes;
    uint64_t extent_bytes;
    const char *trouble;
};

/* Whether the pool keeps its free memory; one without a handle is leaving. */
static bool is_kept(const vmm_item *item)
{
    const struct pool *pool = vmm__handle_find(HANDLE_POOL, item->pool);
    return pool == NULL || vmm__pool_is_retained(pool);
}

/* The chunk must have been covered by the blocks that were seen. */
static void chunk_left(struct walk *walk)
{
    uint64_t chunk_end = walk->chunk.address + walk->chunk.bytes;
    if (stress_is_padded(walk->stress) || walk->chunk.is_reserved)
        return;
    if (walk->chunk.state != VMM_ITEM_WAITING && walk->block_end + SLACK_BYTES < chunk_end)
        walk->trouble = "blocks do not cover a chunk";
}

static void extent_walked(struct walk *walk, const vmm_item *item)
{
    const struct stress_watch *watch = &walk->stress->watch;
    struct owned_range range = range_walked(item);
    walk->extent_bytes += item->bytes;
    if (watch->is_on && !ranges_contain(&watch->mapped, &range))
        walk->trouble = "memory that was not told of, or another's";
}

static void chunk_walked(struct walk *walk, const vmm_item *item)
{
    chunk_left(walk);
    bool is_unmapped = item->address == 0; /* what the driver refused to map or to take back */
    if (!is_unmapped && item->address < walk->chunk.address + walk->chunk.bytes)
        walk->trouble = "a range does not lie behind the one before";
    if (is_unmapped && (item->state != VMM_ITEM_WAITING || !walk->stress->was_hurt))
        walk->trouble = "memory without an address";
    if (item->bytes == 0 || item->requested_bytes != 0)
        walk->trouble = "a chunk with strange figures";
    walk->chunk = *item;
    if (is_extent(item))
        extent_walked(walk, item);
    if (item->is_imported) {
        walk->imported_bytes += item->bytes;
        return;
    }
    if (item->state == VMM_ITEM_ASLEEP) {
        walk->asleep_bytes += item->bytes;
        return;
    }
    walk->chunk_bytes += item->bytes;
    if (item->state == VMM_ITEM_FREE && !is_kept(item))
        walk->idle_bytes += item->bytes;
    if (item->state == VMM_ITEM_WAITING)
        walk->limbo_bytes += item->bytes;
}

static void live_walked(struct walk *walk, const vmm_item *item)
{
    struct stress *stress = walk->stress;
    const struct model_block *block = model_start(&stress->model, item->address);
    walk->live_blocks++;
    if (block == NULL)
        walk->trouble = "a live block that the model does not have";
    else
        stress_item_verify(stress, "vmm_walk", item, block);
}

static void waiting_walked(struct walk *walk, const vmm_item *item)
{
    const struct stress_watch *watch = &walk->stress->watch;
    walk->waiting_blocks++;
    walk->waiting_bytes += item->is_imported ? 0 : item->bytes;
    if (watch->is_on && !list_has(&watch->waiting, item->address, item->bytes))
        walk->trouble = "a block waits that was not told of";
}

/* With a guard blocks are what the program has of them: between them lie canaries, which are no block's. */
static void block_walked(struct walk *walk, const vmm_item *item)
{
    const vmm_item *chunk = &walk->chunk;
    if (stress_is_padded(walk->stress) || item->is_reserved) {
        if (item->state == VMM_ITEM_LIVE)
            live_walked(walk, item);
        return;
    }
    if (item->address < walk->block_end)
        walk->trouble = "a block does not lie behind the one before";
    if (item->address < chunk->address || item->address >= chunk->address + chunk->bytes)
        walk->trouble = "a block does not start in the chunk before it";
    if (chunk->state == VMM_ITEM_WAITING ||
        (chunk->state == VMM_ITEM_FREE && item->state != VMM_ITEM_FREE))
        walk->trouble = "a block in a chunk in limbo, or an active one in an idle chunk";
    if (item->bytes == 0 || item->requested_bytes > item->bytes ||
        (item->state != VMM_ITEM_LIVE && item->requested_bytes != 0))
        walk->trouble = "a block with strange figures";
    walk->block_end = item->address + item->bytes;
    if (item->state == VMM_ITEM_LIVE)
        live_walked(walk, item);
    else if (model_overlap(&walk->stress->model, item->address, item->bytes) != NULL)
        walk->trouble = "a free block where a live one is";
    if (item->state == VMM_ITEM_WAITING)
        waiting_walked(walk, item);
}

static int item_walked(void *context, const vmm_item *item)
{
    struct walk *walk = context;
    if (item->struct_size != sizeof *item)
        walk->trouble = "an item of another size";
    if (item->kind == VMM_ITEM_BLOCK)
        block_walked(walk, item);
    else
        chunk_walked(walk, item);
    return walk->trouble != NULL;
}

/* ---- What the walk says, against the rest ---------------------------------------------------- */

static void sum_verify(struct stress *stress, const char *name, uint64_t walked, uint64_t wanted)
{
    if (walked != wanted)
        stress_trouble(stress, "walk: there are %" PRIu64 " %s, not %" PRIu64, walked, name,
                       wanted);
}

static void sums_verify(struct stress *stress, const struct walk *walk)
{
    vmm_stats stats = stress_stats(stress);
    const struct stress_watch *watch = &stress->watch;
    const struct stress_source *source = &stress->source;
    sum_verify(stress, "live blocks", walk->live_blocks, stress->model.live);
    sum_verify(stress, "bytes of chunks", walk->chunk_bytes, stats.reserved_bytes.current);
    sum_verify(stress, "imported bytes", walk->imported_bytes, stats.imported_bytes);
    sum_verify(stress, "bytes asleep", walk->asleep_bytes, stats.asleep_bytes);
    sum_verify(stress, "idle bytes", walk->idle_bytes, stats.idle_bytes);
    sum_verify(stress, "bytes in limbo", walk->limbo_bytes, stats.limbo_bytes);
    if (!stress->is_lost)
        sum_verify(stress, "chunks",
                   stats.chunks.current - source->segments + (source->region_bytes != 0),
                   stress->driver->handles);
    if (!stress_is_padded(stress))
        sum_verify(stress, "waiting bytes", walk->waiting_bytes,
                   stats.active_bytes.current - stats.allocated_bytes.current);
    if (!stress->is_lost)
        sum_verify(stress, "bytes of handles",
                   stats.reserved_bytes.current - source->bytes + source->region_bytes,
                   stress->driver->created_bytes);
    if (!watch->is_on)
        return;
    sum_verify(stress, "bytes of extents", walk->extent_bytes, ranges_bytes(&watch->mapped));
    if (!stress_is_padded(stress))
        sum_verify(stress, "waiting blocks", walk->waiting_blocks, watch->waiting.count);
}

static void walk_verify(struct stress *stress)
{
    struct walk walk = { .stress = stress };
    stress->sums.walks++;
    stress_enter(stress);
    vmm_status status = vmm_walk(stress->cache, item_walked, &walk);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_walk", status, STATUS_BIT(OK), 0);
    if (walk.trouble == NULL)
        chunk_left(&walk);
    if (walk.trouble != NULL)
        stress_trouble(stress, "walk: %s, at %#" PRIx64, walk.trouble, walk.block_end);
    if (stress->watch.trouble != NULL)
        stress_trouble(stress, "watch: %s", stress->watch.trouble);
    if (!stress_is_troubled(stress))
        sums_verify(stress, &walk);
}

void stress_verify(struct stress *stress)
{
    stress_stats_verify(stress);
    stress_misuse_none(stress);
    if (!stress_is_troubled(stress))
        walk_verify(stress);
    vmm_status status = vmm__cache_check(stress->cache);
    if (status != VMM_OK)
        stress_trouble(stress, "check: %s", vmm_last_error());
}

struct stopped_walk {
    uint64_t items;
    uint64_t most;
    uint64_t last; /* address */
    bool falls;
};

static int item_counted(void *context, const vmm_item *item)
{
    struct stopped_walk *walk = context;
    walk->falls = walk->falls || item->address < walk->last;
    walk->last = item->address;
    return ++walk->items >= walk->most;
}

/* One that is ended after some items, and a whole one. */
void operation_walk(struct stress *stress, const struct operation *operation)
{
    struct stopped_walk walk = { .most = 1 + operation->number };
    stress_enter(stress);
    vmm_status status = vmm_walk(stress->cache, item_counted, &walk);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_walk", status, STATUS_BIT(OK), 0);
    if (walk.items > walk.most)
        stress_trouble(stress, "walk: it went on after its end");
    if (walk.falls)
        stress_trouble(stress, "walk: addresses do not rise");
    if (stress->shared == NULL)
        walk_verify(stress);
}

void operation_check(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    stress_verify(stress);
}
