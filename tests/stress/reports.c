/* What a cache says about itself, but for walks: see stress.h. */
#define _GNU_SOURCE
#include "shared.h"
#include "stress.h"

#include "base/arith.h"
#include "driver/sim/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Statistics ------------------------------------------------------------------------------ */

vmm_stats stress_stats(struct stress *stress)
{
    vmm_stats stats = VMM_STATS_INIT;
    stress_enter(stress);
    vmm_status status = vmm_stats_get(stress->cache, &stats);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_stats_get", status, STATUS_BIT(OK), 0);
    return stats;
}

static void number_verify(struct stress *stress, const char *name, uint64_t number, uint64_t wanted)
{
    if (number != wanted)
        stress_trouble(stress, "stats: %s is %" PRIu64 ", and should be %" PRIu64, name, number,
                       wanted);
}

/* A request that failed only when its zeros were to be written, or another block copied to it, has been counted, as its
 * end has. */
static void stat_undone(const vmm_stat *figure, struct model_stat *wanted)
{
    uint64_t undone = figure->freed - wanted->freed;
    if (figure->freed < wanted->freed || figure->allocated != wanted->allocated + undone)
        return;
    wanted->allocated += undone;
    wanted->freed += undone;
    if (undone > 0 && figure->peak > wanted->peak)
        wanted->peak = figure->peak;
}

static void stat_verify(struct stress *stress, const char *name, const vmm_stat *figure,
                        struct model_stat *wanted)
{
    bool may_undo = stress->config.zero != 0 || stress_is_padded(stress) || stress->has_resized;
    if (may_undo && stress->was_hurt)
        stat_undone(figure, wanted);
    if (stress_is_padded(stress) && figure->peak > wanted->peak) /* by what one block hides */
        wanted->peak = figure->peak;
    if (figure->current != wanted->current || figure->peak != wanted->peak ||
        figure->allocated != wanted->allocated || figure->freed != wanted->freed)
        stress_trouble(stress,
                       "stats: %s: %" PRIu64 ", peak %" PRIu64 ", %" PRIu64 " - %" PRIu64
                       "; should be %" PRIu64 ", peak %" PRIu64 ", %" PRIu64 " - %" PRIu64,
                       name, figure->current, figure->peak, figure->allocated, figure->freed,
                       wanted->current, wanted->peak, wanted->allocated, wanted->freed);
}

/* What holds of any figure. */
static void stats_verify(struct stress *stress, const vmm_stats *stats)
{
#define STAT_VERIFY(name, unit, kind, of, label, text)                                             \
    if (stats->name.peak < stats->name.current ||                                                  \
        stats->name.allocated - stats->name.freed != stats->name.current)                          \
        stress_trouble(stress, "stats: %s contradicts itself", #name);
    VMM_STAT_MAP(STAT_VERIFY)
#undef STAT_VERIFY
}

/* Not on a lost device, where a pool stays between awake and asleep. */
static void parts_verify(struct stress *stress, const vmm_stats *stats)
{
    uint64_t parts = stats->active_bytes.current + stats->idle_bytes + stats->pinned_bytes +
                     stats->retained_bytes + stats->limbo_bytes;
    if (parts != stats->reserved_bytes.current && stats->asleep_bytes == 0 && !stress->is_lost)
        stress_trouble(stress,
                       "stats: %" PRIu64 " active + %" PRIu64 " idle + %" PRIu64
                       " pinned + %" PRIu64 " kept + %" PRIu64 " in limbo are not %" PRIu64,
                       stats->active_bytes.current, stats->idle_bytes, stats->pinned_bytes,
                       stats->retained_bytes, stats->limbo_bytes, stats->reserved_bytes.current);
}

static void memory_verify(struct stress *stress, const vmm_stats *stats)
{
    struct model *model = &stress->model;
    if (stats->active_bytes.current < stats->allocated_bytes.current)
        stress_trouble(stress, "stats: less is active than allocated");
    if (stats->retained_bytes > stats->reserved_bytes.current ||
        stats->limbo_bytes > stats->reserved_bytes.current)
        stress_trouble(stress, "stats: more is kept or in limbo than reserved");
    parts_verify(stress, stats);
    if (stats->reserved_bytes.current > stress->device_bytes)
        stress_trouble(stress, "stats: more is reserved than the device has");
    if (!model_reserved(model, stats->reserved_bytes.current))
        stress_trouble(stress, "limit: %" PRIu64 " bytes are reserved, of %" PRIu64 " at most",
                       stats->reserved_bytes.current, model->ceiling_bytes);
}

/* The limit that workers share only falls while they run. */
static void limit_verify(struct stress *stress, const vmm_stats *stats)
{
    uint64_t limit = stress->shared->limit_bytes;
    if (stats->reserved_bytes.peak > limit)
        stress_trouble(stress, "limit: %" PRIu64 " bytes were reserved of %" PRIu64 " at most",
                       stats->reserved_bytes.peak, limit);
}

/* With memory in plenty the host does not wait for the device. */
static void stalls_verify(struct stress *stress, const vmm_stats *stats)
{
    const vmm_config *config = &stress->config;
    bool may_stall = stress->may_stall || stress->was_hurt || stress->live_most == 0 ||
                     stress->model.limit_bytes != 0 || stress->model.ooms != 0 ||
                     stress->model.was_divided || config->compaction == VMM_ON ||
                     config->debug != VMM_DEBUG_OFF || config->zero != 0;
    if (!may_stall && stats->stalls != 0)
        stress_trouble(stress, "stats: the host waited %" PRIu64 " times with memory in plenty",
                       stats->stalls);
    stress->may_stall = stress->may_stall || may_stall;
}

void stress_stats_verify(struct stress *stress)
{
    struct model *model = &stress->model;
    vmm_stats stats = stress_stats(stress);
    if (stress->shared != NULL) {
        limit_verify(stress, &stats);
        return;
    }
    stats_verify(stress, &stats);
    stalls_verify(stress, &stats);
    number_verify(stress, "limit_bytes", stats.limit_bytes, model->limit_bytes);
    number_verify(stress, "pressure_calls", stats.pressure_calls, model->pressure_calls);
    stress_tenants_verify(stress);
    memory_verify(stress, &stats);
    stat_verify(stress, "requested_bytes", &stats.requested_bytes, &model->requested_bytes);
    stat_verify(stress, "allocated_bytes", &stats.allocated_bytes, &model->allocated_bytes);
    stat_verify(stress, "allocations", &stats.allocations, &model->allocations);
    if (!stress_is_padded(stress)) /* canaries must not move, either */
        number_verify(stress, "unmovable_bytes", stats.unmovable_bytes, model->unmovable_bytes);
    number_verify(stress, "ooms", stats.ooms, model->ooms);
}

void operation_stats(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    stress_stats_verify(stress);
}

void operation_reset_peak(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    stress_enter(stress);
    vmm_status status = vmm_stats_reset_peak(stress->cache);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_stats_reset_peak", status, STATUS_BIT(OK), 0);
    model_peaks_reset(&stress->model);
    vmm_stats stats = stress_stats(stress);
#define PEAK_VERIFY(name, unit, kind, of, label, text)                                             \
    if (stats.name.peak != stats.name.current)                                                     \
        stress_trouble(stress, "stats: the peak of %s was not reset", #name);
    VMM_STAT_MAP(PEAK_VERIFY)
#undef PEAK_VERIFY
}

/* ---- Giving back ----------------------------------------------------------------------------- */

/* After a wait that nothing hindered, a trim leaves nothing idle. */
static void trim_verify(struct stress *stress, uint64_t keep_bytes)
{
    bool is_plain = stress->has_waited && stress->captured == 0 && keep_bytes == 0 &&
                    stress->model.begins == 0 && !stress->was_hurt && !stress->has_strays;
    vmm_stats stats = stress_stats(stress);
    if (is_plain && (stats.idle_bytes != 0 || stats.limbo_bytes != 0))
        stress_trouble(stress,
                       "trim: after a wait it left %" PRIu64 " bytes idle and %" PRIu64 " in limbo",
                       stats.idle_bytes, stats.limbo_bytes);
}

/* The driver may refuse the memory that live bytes were moved from, while a source takes a segment back. */
static bool may_keep_moved(const struct stress *stress)
{
    return stress->faults.fired != 0 && stress->source.region_bytes != 0;
}

void operation_trim(struct stress *stress, const struct operation *operation)
{
    size_t released = SIZE_MAX;
    uint64_t before = stress_stats(stress).reserved_bytes.current;
    stress_enter(stress);
    vmm_status status = vmm_trim(stress->cache, operation->number, &released);
    stress_leave(stress);
    bool is_ok = stress_expect(stress, "vmm_trim", status, STATUS_BIT(OK), STATUS_FAULTS);
    bool is_inexact = may_keep_moved(stress);
    if (is_ok == (released == SIZE_MAX))
        stress_trouble(stress, "trim: its result was %s", is_ok ? "not written" : "written");
    if (stress->shared != NULL)
        return;
    uint64_t after = stress_stats(stress).reserved_bytes.current;
    if (is_ok && !is_inexact && before - vmm__min(before, after) != released)
        stress_trouble(stress,
                       "trim: said %zu bytes were released, of %" PRIu64 " %" PRIu64 " are left",
                       released, before, after);
    if (is_ok)
        trim_verify(stress, operation->number);
}

/* Without a pool that has begun, a capture may be of a stream that the cache does not know. */
void operation_compact(struct stress *stress, const struct operation *operation)
{
    uint64_t moved = UINT64_MAX;
    uint64_t released = UINT64_MAX;
    uint64_t before = stress_stats(stress).reserved_bytes.current;
    unsigned legal = STATUS_BIT(OK);
    if (stress->captured != 0 && stress->model.begins == 0)
        return;
    if (stress_is_padded(stress))
        legal = STATUS_BIT(ERR_UNSUPPORTED);
    else if (stress->model.begins != 0)
        legal |= STATUS_BIT(ERR_INVALID_ARGUMENT);
    stress->may_stall = true;
    stress_enter(stress);
    vmm_status status = vmm_compact(stress->cache, (uint32_t)operation->number, &moved, &released);
    stress_leave(stress);
    bool is_ok = stress_expect(stress, "vmm_compact", status, legal,
                               STATUS_FAULTS | STATUS_BIT(ERR_DEVICE_OOM));
    bool is_inexact = may_keep_moved(stress);
    uint64_t after = stress_stats(stress).reserved_bytes.current;
    if (is_ok == (released == UINT64_MAX) || is_ok == (moved == UINT64_MAX))
        stress_trouble(stress, "compact: its results were %s", is_ok ? "not written" : "written");
    if (is_ok && !is_inexact && before - vmm__min(before, after) != released)
        stress_trouble(stress,
                       "compact: said %" PRIu64 " bytes were released, of %" PRIu64 " %" PRIu64
                       " are left",
                       released, before, after);
    if (is_ok)
        stress_list(stress, "%" PRIu64 " bytes moved, %" PRIu64 " released", moved, released);
}

void operation_tick(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    (void)stress_call(stress, "vmm_poll", vmm_poll);
}

void operation_wait(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    stress->may_stall = true;
    stress->has_waited = stress_call(stress, "vmm_wait", vmm_wait);
}

/* None, or from half to twice of what is reserved. */
void operation_limit(struct stress *stress, const struct operation *operation)
{
    enum { NONE_ONE_IN = 4 };
    stress->may_stall = true;
    vmm_stats stats = stress_stats(stress);
    uint64_t reserved = stats.reserved_bytes.current;
    uint64_t limit = 0;
    if (stress->shared != NULL) /* a little less than all may have */
        limit =
            stress->shared->limit_bytes - operation->number % (stress->shared->limit_bytes / 16);
    else if (operation->number % NONE_ONE_IN != 0)
        limit = reserved / 2 + operation->number % (1 + reserved / 2 * 3);
    stress_enter(stress);
    vmm_status status = vmm_limit_set(stress->cache, limit);
    stress_leave(stress);
    if (stress_expect(stress, "vmm_limit_set", status, STATUS_BIT(OK), 0))
        model_limit(&stress->model, limit, stats.reserved_bytes.current);
}

/* ---- Find, sizes ----------------------------------------------------------------------------- */

void stress_item_verify(struct stress *stress, const char *call, const vmm_item *item,
                        const struct model_block *block)
{
    vmm_pool_id id = block->pool_id;
    bool is_named = item->pool_id.first != 0 || item->pool_id.second != 0;
    bool is_of_pool = item->pool_id.first == id.first && item->pool_id.second == id.second;
    if (item->address != block->address || item->bytes != block->block_bytes ||
        item->requested_bytes != block->requested_bytes)
        stress_trouble(stress,
                       "%s: %#" PRIx64 ", %" PRIu64 " bytes for %" PRIu64 "; should be %#" PRIx64
                       ", %" PRIu64 " for %" PRIu64,
                       call, item->address, item->bytes, item->requested_bytes, block->address,
                       block->block_bytes, block->requested_bytes);
    if ((item->is_reserved != 0) != (block->unit_bytes != 0) ||
        item->committed_bytes != model_committed_bytes(block))
        stress_trouble(stress, "%s: %#" PRIx64 " has %" PRIu64 " bytes committed, not %" PRIu64,
                       call, item->address, item->committed_bytes, model_committed_bytes(block));
    if ((item->is_imported != 0) != block->is_imported)
        stress_trouble(stress, "%s: %#" PRIx64 " is %simported", call, item->address,
                       block->is_imported ? "not " : "");
    if (item->kind != VMM_ITEM_BLOCK || item->state != VMM_ITEM_LIVE)
        stress_trouble(stress, "%s: %#" PRIx64 " is no live block", call, item->address);
    if (item->stream != block->handle && !block->may_borrow)
        stress_trouble(stress, "%s: %#" PRIx64 " is of another stream", call, item->address);
    if (block->tenant != 0 && item->pool != stress->model.tenants[block->tenant - 1].handle)
        stress_trouble(stress, "%s: %#" PRIx64 " is of another pool", call, item->address);
    if (!is_of_pool && (is_named || block->is_of_pool_surely))
        stress_trouble(stress, "%s: %#" PRIx64 " is of another graph pool", call, item->address);
}

vmm_item stress_item_find(struct stress *stress, const void *address)
{
    vmm_item item = VMM_ITEM_INIT;
    stress_enter(stress);
    vmm_status status = vmm_find(stress->cache, address, &item);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_find", status, STATUS_BIT(OK), 0);
    return item;
}

static void address_find(struct stress *stress, uint64_t address)
{
    vmm_item item = VMM_ITEM_INIT;
    const vmm_item untouched = item;
    const struct model_block *block = model_find(&stress->model, address);
    stress_enter(stress);
    vmm_status status = vmm_find(stress->cache, (const void *)(uintptr_t)address, &item);
    stress_leave(stress);
    unsigned legal = block != NULL ? STATUS_BIT(OK) : STATUS_BIT(ERR_UNKNOWN_POINTER);
    if (stress_expect(stress, "vmm_find", status, legal, 0) && block != NULL)
        stress_item_verify(stress, "vmm_find", &item, block);
    else if (memcmp(&item, &untouched, sizeof item) != 0)
        stress_trouble(stress, "vmm_find: failed and wrote its result");
}

/* In, before and behind the last block of a slot; or anywhere. */
void operation_find(struct stress *stress, const struct operation *operation)
{
    const struct model_block *block = &stress->model.blocks[operation->a];
    const uint64_t offsets[] = { 0,
                                 1,
                                 block->requested_bytes,
                                 block->block_bytes - 1,
                                 block->block_bytes,
                                 block->block_bytes / 2,
                                 UINT64_MAX };
    enum { PLACES = sizeof offsets / sizeof offsets[0] };
    unsigned place = operation->b % (PLACES + 1);
    bool is_ours = block->is_live && block->block_bytes > 1 && (place < 2 || place == 5);
    if (stress->shared != NULL && !is_ours)
        return;
    address_find(stress, place < PLACES ? block->address + offsets[place] : operation->number);
}

void operation_sizes(struct stress *stress, const struct operation *operation)
{
    const uint64_t arena_bytes = UINT64_C(1) << 44;
    uint64_t bytes = operation->number;
    uint64_t block_bytes = vmm_block_bytes(stress->cache, bytes);
    bool is_refused = block_bytes == 0;
    bool may_be_refused = bytes > arena_bytes || stress->config.arena_bytes != 0 ||
                          (!stress_is_sim(stress) && bytes > stress->device_bytes);
    if (is_refused && may_be_refused)
        return;
    if (is_refused || bytes > arena_bytes)
        stress_trouble(stress, "sizes: %" PRIu64 " bytes have a block of %" PRIu64, bytes,
                       block_bytes);
    if (block_bytes < bytes || block_bytes % 512 != 0)
        stress_trouble(stress, "sizes: a block of %" PRIu64 " bytes for %" PRIu64, block_bytes,
                       bytes);
    if (bytes > 0 && vmm_block_bytes(stress->cache, bytes - 1) > block_bytes)
        stress_trouble(stress, "sizes: the block for %" PRIu64 " bytes is larger than the next",
                       bytes - 1);
}

/* ---- The rest -------------------------------------------------------------------------------- */

void stress_text_verify(struct stress *stress, const char *name,
                        vmm_status (*write)(vmm_cache *cache, FILE *out), const char *wanted)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return;
    stress_enter(stress);
    vmm_status status = write(stress->cache, out);
    stress_leave(stress);
    (void)fclose(out);
    if (stress_expect(stress, name, status, STATUS_BIT(OK), 0) && strstr(text, wanted) == NULL)
        stress_trouble(stress, "%s: its text does not have: %s", name, wanted);
    free(text);
}

void operation_summary(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    stress_text_verify(stress, "vmm_summary_write", vmm_summary_write, "Reserved");
}

/* One more device gets access, to all memory. */
static void peers_add(struct stress *stress)
{
    uint64_t before = 0;
    uint64_t after = 0;
    vmm_status status = vmm_peers_get(stress->cache, &before);
    (void)stress_expect(stress, "vmm_peers_get", status, STATUS_BIT(OK), 0);
    stress_enter(stress);
    status = vmm_peers_add(stress->cache, before << 1 | 2);
    stress_leave(stress);
    bool is_done =
        stress_expect(stress, "vmm_peers_add", status, STATUS_BIT(OK),
                      STATUS_FAULTS | STATUS_BIT(ERR_DEVICE_OOM) | STATUS_BIT(ERR_UNSUPPORTED));
    if (stress->shared != NULL || vmm_peers_get(stress->cache, &after) != VMM_OK)
        return;
    if (after != (is_done ? before << 1 | 2 : before))
        stress_trouble(stress, "peers: %#" PRIx64 " after %#" PRIx64, after, before);
}

void operation_device(struct stress *stress, const struct operation *operation)
{
    uint64_t free_bytes = UINT64_MAX;
    uint64_t total_bytes = UINT64_MAX;
    (void)operation;
    stress_enter(stress);
    vmm_status status = vmm_device_memory(stress->cache, &free_bytes, &total_bytes);
    stress_leave(stress);
    if (!stress_expect(stress, "vmm_device_memory", status, STATUS_BIT(OK), STATUS_FAULTS)) {
        if (free_bytes != UINT64_MAX || total_bytes != UINT64_MAX)
            stress_trouble(stress, "device: failed and wrote its result");
        return;
    }
    if (!stress_is_sim(stress))
        return;
    uint64_t held = vmm__sim_census(stress->driver).physical_bytes;
    if (total_bytes != stress->device_bytes || free_bytes != total_bytes - held)
        stress_trouble(stress, "device: %" PRIu64 " of %" PRIu64 " bytes are free", free_bytes,
                       total_bytes);
    peers_add(stress);
}

void operation_log(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    stress_enter(stress);
    vmm_status status = vmm_log_write(stress->cache, "a line");
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_log_write", status, STATUS_BIT(OK), 0);
}
