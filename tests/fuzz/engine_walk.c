/* Walks and watches, against each other and the model: see engine.h. */
#include "engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes at the end of a slab that are too few for an object: no block covers them. */
enum { SLACK_BYTES = 1536 };

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

static void memory_changed(struct engine *engine, const vmm_change *change)
{
    struct engine_watch *watch = &engine->watch;
    uint64_t granule = engine->driver->granule_bytes;
    if (change->bytes == 0 || change->bytes % granule != 0 || change->address % granule != 0)
        watch->trouble = "a part of a granule changed";
    for (uint64_t done = 0; done < change->bytes; done += granule) {
        bool is_right = change->kind == VMM_CHANGE_MAP
                            ? list_add(&watch->granules, change->address + done, granule)
                            : list_remove(&watch->granules, change->address + done, granule);
        if (!is_right)
            watch->trouble = "memory came where some was, or went where none was";
    }
}

/* Troubles are told later: this is called with locks held. */
static void change_noted(void *context, const vmm_change *change)
{
    struct engine *engine = context;
    struct engine_watch *watch = &engine->watch;
    if (!watch->is_on || change->struct_size != sizeof *change)
        watch->trouble = "a change that nobody asked for, or of another size";
    else if (change->kind == VMM_CHANGE_MAP || change->kind == VMM_CHANGE_UNMAP)
        memory_changed(engine, change);
    else if (change->kind == VMM_CHANGE_WAIT &&
             !list_add(&watch->waiting, change->address, change->bytes))
        watch->trouble = "a block waits twice";
    else if (change->kind == VMM_CHANGE_FREE &&
             !list_remove(&watch->waiting, change->address, change->bytes))
        watch->trouble = "a block came free that did not wait";
}

/* Memory that is somebody's: all but what is in limbo. */
static bool is_territory(const vmm_item *item)
{
    return item->kind == VMM_ITEM_TWIN ||
           (item->kind == VMM_ITEM_CHUNK && item->state != VMM_ITEM_WAITING);
}

static bool is_waiting(const vmm_item *item)
{
    return item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_WAITING;
}

static int item_watched(void *context, const vmm_item *item)
{
    struct engine *engine = context;
    uint64_t granule = engine->driver->granule_bytes;
    for (uint64_t done = 0; is_territory(item) && done < item->bytes; done += granule)
        (void)list_add(&engine->watch.granules, item->address + done, granule);
    if (is_waiting(item))
        (void)list_add(&engine->watch.waiting, item->address, item->bytes);
    return 0;
}

/* What was there before is known from a walk. */
void engine_watch_set(struct engine *engine, bool is_on)
{
    struct engine_watch *watch = &engine->watch;
    watch->granules.count = 0;
    watch->waiting.count = 0;
    watch->trouble = NULL;
    engine_enter(engine);
    vmm_status status = vmm_watch(engine->cache, is_on ? change_noted : NULL, engine);
    engine_leave(engine);
    (void)engine_expect(engine, "vmm_watch", status, STATUS_BIT(OK), 0);
    watch->is_on = is_on;
    if (is_on)
        engine_expect_ok(engine, "vmm_walk", vmm_walk(engine->cache, item_watched, engine));
}

void engine_watch_end(struct engine *engine)
{
    engine->watch.is_on = false;
    list_end(&engine->watch.granules);
    list_end(&engine->watch.waiting);
}

void operation_watch(struct engine *engine, const struct operation *operation)
{
    engine_watch_set(engine, operation->a % 2 != 0);
}

/* ---- Walks ----------------------------------------------------------------------------------- */

struct walk {
    struct engine *engine;
    vmm_item chunk;     /* the last one seen */
    uint64_t block_end; /* of the last block */
    uint64_t chunks;
    uint64_t chunk_bytes;
    uint64_t idle_bytes;
    uint64_t limbo_bytes;
    uint64_t live_blocks;
    uint64_t waiting_blocks;
    uint64_t waiting_bytes;
    uint64_t granules; /* that are somebody's */
    const char *trouble;
};

static bool is_named(const vmm_item *item)
{
    return item->pool.first != 0 || item->pool.second != 0;
}

/* The chunk must have been covered by the blocks that were seen. */
static void chunk_left(struct walk *walk)
{
    uint64_t chunk_end = walk->chunk.address + walk->chunk.bytes;
    if (engine_is_padded(walk->engine))
        return;
    if (walk->chunk.state != VMM_ITEM_WAITING && walk->block_end + SLACK_BYTES < chunk_end)
        walk->trouble = "blocks do not cover a chunk";
}

static void territory_walked(struct walk *walk, const vmm_item *item)
{
    const struct engine_watch *watch = &walk->engine->watch;
    uint64_t granule = walk->engine->driver->granule_bytes;
    for (uint64_t done = 0; done < item->bytes; done += granule) {
        walk->granules++;
        if (watch->is_on && !list_has(&watch->granules, item->address + done, granule))
            walk->trouble = "memory that was not told of";
    }
}

static void chunk_walked(struct walk *walk, const vmm_item *item)
{
    chunk_left(walk);
    if (item->address < walk->chunk.address + walk->chunk.bytes)
        walk->trouble = "a chunk does not lie behind the one before";
    if (item->bytes == 0 || item->requested_bytes != 0)
        walk->trouble = "a chunk with strange figures";
    walk->chunk = *item;
    if (is_territory(item))
        territory_walked(walk, item);
    if (item->kind == VMM_ITEM_TWIN)
        return;
    walk->chunks++;
    walk->chunk_bytes += item->bytes;
    if (item->state == VMM_ITEM_FREE && !is_named(item))
        walk->idle_bytes += item->bytes;
    if (item->state == VMM_ITEM_WAITING)
        walk->limbo_bytes += item->bytes;
}

static void live_walked(struct walk *walk, const vmm_item *item)
{
    struct engine *engine = walk->engine;
    const struct model_block *block = model_start(&engine->model, item->address);
    walk->live_blocks++;
    if (block == NULL)
        walk->trouble = "a live block that nobody has";
    else
        engine_item_verify(engine, "vmm_walk", item, block);
}

static void waiting_walked(struct walk *walk, const vmm_item *item)
{
    const struct engine_watch *watch = &walk->engine->watch;
    walk->waiting_blocks++;
    walk->waiting_bytes += item->bytes;
    if (watch->is_on && !list_has(&watch->waiting, item->address, item->bytes))
        walk->trouble = "a block waits that was not told of";
}

/* With a guard blocks are what the program has of them: between them lie canaries, which are no block's. */
static void block_walked(struct walk *walk, const vmm_item *item)
{
    const vmm_item *chunk = &walk->chunk;
    if (engine_is_padded(walk->engine)) {
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
    else if (model_overlap(&walk->engine->model, item->address, item->bytes) != NULL)
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

static void sum_verify(struct engine *engine, const char *name, uint64_t walked, uint64_t wanted)
{
    if (walked != wanted)
        engine_trouble(engine, "walk: there are %" PRIu64 " %s, not %" PRIu64, walked, name,
                       wanted);
}

static void sums_verify(struct engine *engine, const struct walk *walk)
{
    vmm_stats stats = engine_stats(engine);
    const struct engine_watch *watch = &engine->watch;
    sum_verify(engine, "live blocks", walk->live_blocks, engine->model.live);
    bool may_miss = engine->was_hurt; /* a handle that could not be released has no address */
    sum_verify(engine, "bytes of chunks out of limbo", walk->chunk_bytes - walk->limbo_bytes,
               stats.reserved_bytes.current - stats.limbo_bytes);
    sum_verify(engine, "idle bytes", walk->idle_bytes, stats.idle_bytes);
    if (!may_miss || walk->limbo_bytes > stats.limbo_bytes)
        sum_verify(engine, "bytes in limbo", walk->limbo_bytes, stats.limbo_bytes);
    if (!may_miss || walk->chunks > stats.chunks.current)
        sum_verify(engine, "chunks", walk->chunks, stats.chunks.current);
    if (!engine_is_padded(engine))
        sum_verify(engine, "waiting bytes", walk->waiting_bytes,
                   stats.active_bytes.current - stats.allocated_bytes.current);
    if (!engine->is_lost)
        sum_verify(engine, "bytes of handles", stats.reserved_bytes.current,
                   engine->driver->created_bytes);
    if (!watch->is_on)
        return;
    sum_verify(engine, "granules", walk->granules, watch->granules.count);
    if (!engine_is_padded(engine))
        sum_verify(engine, "waiting blocks", walk->waiting_blocks, watch->waiting.count);
}

static void walk_verify(struct engine *engine)
{
    struct walk walk = { .engine = engine };
    engine->sums.walks++;
    engine_enter(engine);
    vmm_status status = vmm_walk(engine->cache, item_walked, &walk);
    engine_leave(engine);
    (void)engine_expect(engine, "vmm_walk", status, STATUS_BIT(OK), 0);
    if (walk.trouble == NULL)
        chunk_left(&walk);
    if (walk.trouble != NULL)
        engine_trouble(engine, "walk: %s, at %#" PRIx64, walk.trouble, walk.block_end);
    if (engine->watch.trouble != NULL)
        engine_trouble(engine, "watch: %s", engine->watch.trouble);
    if (!engine_is_troubled(engine))
        sums_verify(engine, &walk);
}

void engine_verify(struct engine *engine)
{
    engine_stats_verify(engine);
    engine_misuse_none(engine);
    if (!engine_is_troubled(engine))
        walk_verify(engine);
    vmm_status status = vmm__cache_check(engine->cache);
    if (status != VMM_OK)
        engine_trouble(engine, "check: %s", vmm_last_error());
}

struct stopped_walk {
    uint64_t items;
    uint64_t most;
};

static int item_counted(void *context, const vmm_item *item)
{
    struct stopped_walk *walk = context;
    (void)item;
    return ++walk->items >= walk->most;
}

/* One that is ended after some items, and a whole one. */
void operation_walk(struct engine *engine, const struct operation *operation)
{
    struct stopped_walk walk = { .most = 1 + operation->number };
    engine_enter(engine);
    vmm_status status = vmm_walk(engine->cache, item_counted, &walk);
    engine_leave(engine);
    (void)engine_expect(engine, "vmm_walk", status, STATUS_BIT(OK), 0);
    if (walk.items > walk.most)
        engine_trouble(engine, "walk: it went on after its end");
    walk_verify(engine);
}

void operation_check(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    engine_verify(engine);
}
