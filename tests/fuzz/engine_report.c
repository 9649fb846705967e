/* What a cache says about itself, but for walks: see engine.h. */
#define _GNU_SOURCE
#include "engine.h"

#include "driver/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Statistics ------------------------------------------------------------------------------ */

vmm_stats engine_stats(struct engine *engine)
{
    vmm_stats stats = VMM_STATS_INIT;
    engine_enter(engine);
    vmm_status status = vmm_stats_get(engine->cache, &stats);
    engine_leave(engine);
    (void)engine_expect(engine, "vmm_stats_get", status, STATUS_BIT(OK), 0);
    return stats;
}

static void number_verify(struct engine *engine, const char *name, uint64_t number, uint64_t wanted)
{
    if (number != wanted)
        engine_trouble(engine, "stats: %s is %" PRIu64 ", and should be %" PRIu64, name, number,
                       wanted);
}

/* A request that failed only when its zeros were to be written has been counted, as its end has. */
static void figure_undone(const vmm_figure *figure, struct model_figure *wanted)
{
    uint64_t undone = figure->freed - wanted->freed;
    if (figure->freed < wanted->freed || figure->allocated != wanted->allocated + undone)
        return;
    wanted->allocated += undone;
    wanted->freed += undone;
    if (undone > 0 && figure->peak > wanted->peak)
        wanted->peak = figure->peak;
}

static void figure_verify(struct engine *engine, const char *name, const vmm_figure *figure,
                          struct model_figure *wanted)
{
    if (engine->config.zero != 0 && engine->was_hurt)
        figure_undone(figure, wanted);
    if (figure->current != wanted->current || figure->peak != wanted->peak ||
        figure->allocated != wanted->allocated || figure->freed != wanted->freed)
        engine_trouble(engine,
                       "stats: %s: %" PRIu64 ", peak %" PRIu64 ", %" PRIu64 " - %" PRIu64
                       "; should be %" PRIu64 ", peak %" PRIu64 ", %" PRIu64 " - %" PRIu64,
                       name, figure->current, figure->peak, figure->allocated, figure->freed,
                       wanted->current, wanted->peak, wanted->allocated, wanted->freed);
}

/* What holds of any figure. */
static void figures_verify(struct engine *engine, const vmm_stats *stats)
{
#define FIGURE_VERIFY(name, unit, label)                                                           \
    if (stats->name.peak < stats->name.current ||                                                  \
        stats->name.allocated - stats->name.freed != stats->name.current)                          \
        engine_trouble(engine, "stats: %s contradicts itself", #name);
    VMM_FIGURE_MAP(FIGURE_VERIFY)
#undef FIGURE_VERIFY
}

static void memory_verify(struct engine *engine, const vmm_stats *stats)
{
    struct model *model = &engine->model;
    if (stats->active_bytes.current < stats->allocated_bytes.current)
        engine_trouble(engine, "stats: less is active than allocated");
    if (stats->kept_bytes > stats->reserved_bytes.current ||
        stats->limbo_bytes > stats->reserved_bytes.current)
        engine_trouble(engine, "stats: more is kept or in limbo than reserved");
    if (stats->reserved_bytes.current > engine->device_bytes)
        engine_trouble(engine, "stats: more is reserved than the device has");
    if (!model_reserved(model, stats->reserved_bytes.current))
        engine_trouble(engine, "limit: %" PRIu64 " bytes are reserved, of %" PRIu64 " at most",
                       stats->reserved_bytes.current, model->ceiling_bytes);
}

/* With a guard canaries and what is in quarantine come to what the program has. */
static void padded_verify(struct engine *engine, const vmm_stats *stats)
{
    const struct model *model = &engine->model;
    if (stats->allocations.current < model->allocations.current ||
        stats->requested_bytes.current < model->requested_bytes.current ||
        stats->allocated_bytes.current < model->requested_bytes.current)
        engine_trouble(engine, "stats: less is allocated than the program has");
}

void engine_stats_verify(struct engine *engine)
{
    struct model *model = &engine->model;
    vmm_stats stats = engine_stats(engine);
    figures_verify(engine, &stats);
    number_verify(engine, "limit_bytes", stats.limit_bytes, model->limit_bytes);
    number_verify(engine, "pressure_calls", stats.pressure_calls, model->pressure_calls);
    memory_verify(engine, &stats);
    if (engine_is_padded(engine)) {
        padded_verify(engine, &stats);
        return;
    }
    figure_verify(engine, "requested_bytes", &stats.requested_bytes, &model->requested_bytes);
    figure_verify(engine, "allocated_bytes", &stats.allocated_bytes, &model->allocated_bytes);
    figure_verify(engine, "allocations", &stats.allocations, &model->allocations);
    number_verify(engine, "unmovable_bytes", stats.unmovable_bytes, model->unmovable_bytes);
    number_verify(engine, "ooms", stats.ooms, model->ooms);
}

void operation_stats(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    engine_stats_verify(engine);
}

void operation_reset_peak(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    engine_enter(engine);
    vmm_status status = vmm_stats_reset_peak(engine->cache);
    engine_leave(engine);
    (void)engine_expect(engine, "vmm_stats_reset_peak", status, STATUS_BIT(OK), 0);
    model_peaks_reset(&engine->model);
    vmm_stats stats = engine_stats(engine);
#define PEAK_VERIFY(name, unit, label)                                                             \
    if (stats.name.peak != stats.name.current)                                                     \
        engine_trouble(engine, "stats: the peak of %s was not reset", #name);
    VMM_FIGURE_MAP(PEAK_VERIFY)
#undef PEAK_VERIFY
}

/* ---- Giving back ----------------------------------------------------------------------------- */

/* After a wait that nothing hindered, a trim leaves nothing idle. */
static void trim_verify(struct engine *engine, uint64_t keep_bytes)
{
    bool is_plain = engine->has_waited && engine->captured == 0 && keep_bytes == 0 &&
                    engine->model.begins == 0 && !engine->was_hurt && !engine->has_strays;
    vmm_stats stats = engine_stats(engine);
    if (is_plain && (stats.idle_bytes != 0 || stats.limbo_bytes != 0))
        engine_trouble(engine,
                       "trim: after a wait it left %" PRIu64 " bytes idle and %" PRIu64 " in limbo",
                       stats.idle_bytes, stats.limbo_bytes);
}

void operation_trim(struct engine *engine, const struct operation *operation)
{
    size_t released = SIZE_MAX;
    uint64_t before = engine_stats(engine).reserved_bytes.current;
    engine_enter(engine);
    vmm_status status = vmm_trim(engine->cache, operation->number, &released);
    engine_leave(engine);
    bool is_ok = engine_expect(engine, "vmm_trim", status, STATUS_BIT(OK), STATUS_FAULTS);
    if (is_ok == (released == SIZE_MAX))
        engine_trouble(engine, "trim: its result was %s", is_ok ? "not written" : "written");
    uint64_t after = engine_stats(engine).reserved_bytes.current;
    if (is_ok && before - after != released)
        engine_trouble(engine,
                       "trim: said %zu bytes were released, of %" PRIu64 " %" PRIu64 " are left",
                       released, before, after);
    if (is_ok)
        trim_verify(engine, operation->number);
}

void operation_tick(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    (void)engine_call(engine, "vmm_tick", vmm_tick);
}

void operation_wait(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    engine->has_waited = engine_call(engine, "vmm_wait", vmm_wait);
}

/* None, or from half to twice of what is reserved. */
void operation_limit(struct engine *engine, const struct operation *operation)
{
    enum { NONE_ONE_IN = 4 };
    vmm_stats stats = engine_stats(engine);
    uint64_t reserved = stats.reserved_bytes.current;
    uint64_t limit = 0;
    if (operation->number % NONE_ONE_IN != 0)
        limit = reserved / 2 + operation->number % (1 + reserved / 2 * 3);
    engine_enter(engine);
    vmm_status status = vmm_limit_set(engine->cache, limit);
    engine_leave(engine);
    if (engine_expect(engine, "vmm_limit_set", status, STATUS_BIT(OK), 0))
        model_limit(&engine->model, limit, stats.reserved_bytes.current);
}

/* ---- Find, sizes ----------------------------------------------------------------------------- */

void engine_item_verify(struct engine *engine, const char *call, const vmm_item *item,
                        const struct model_block *block)
{
    vmm_pool_id id = model_pool_id(block->pool);
    bool is_named = item->pool.first != 0 || item->pool.second != 0;
    bool is_of_pool = item->pool.first == id.first && item->pool.second == id.second;
    if (item->address != block->address || item->bytes != block->block_bytes ||
        item->requested_bytes != block->requested_bytes)
        engine_trouble(engine,
                       "%s: %#" PRIx64 ", %" PRIu64 " bytes for %" PRIu64 "; should be %#" PRIx64
                       ", %" PRIu64 " for %" PRIu64,
                       call, item->address, item->bytes, item->requested_bytes, block->address,
                       block->block_bytes, block->requested_bytes);
    if (item->kind != VMM_ITEM_BLOCK || item->state != VMM_ITEM_LIVE)
        engine_trouble(engine, "%s: %#" PRIx64 " is no live block", call, item->address);
    if (item->stream != block->handle)
        engine_trouble(engine, "%s: %#" PRIx64 " is of another stream", call, item->address);
    if (!is_of_pool && (is_named || block->is_of_pool_surely))
        engine_trouble(engine, "%s: %#" PRIx64 " is of another private pool", call, item->address);
}

static void address_find(struct engine *engine, uint64_t address)
{
    vmm_item item = VMM_ITEM_INIT;
    const vmm_item untouched = item;
    const struct model_block *block = model_find(&engine->model, address);
    engine_enter(engine);
    vmm_status status = vmm_find(engine->cache, (const void *)(uintptr_t)address, &item);
    engine_leave(engine);
    unsigned legal = block != NULL ? STATUS_BIT(OK) : STATUS_BIT(ERR_UNKNOWN_POINTER);
    if (engine_expect(engine, "vmm_find", status, legal, 0) && block != NULL)
        engine_item_verify(engine, "vmm_find", &item, block);
    else if (memcmp(&item, &untouched, sizeof item) != 0)
        engine_trouble(engine, "vmm_find: failed and wrote its result");
}

/* In, before and behind the last block of a slot; or anywhere. */
void operation_find(struct engine *engine, const struct operation *operation)
{
    const struct model_block *block = &engine->model.blocks[operation->a];
    const uint64_t offsets[] = { 0,
                                 1,
                                 block->requested_bytes,
                                 block->block_bytes - 1,
                                 block->block_bytes,
                                 block->block_bytes / 2,
                                 UINT64_MAX };
    enum { PLACES = sizeof offsets / sizeof offsets[0] };
    unsigned place = operation->b % (PLACES + 1);
    address_find(engine, place < PLACES ? block->address + offsets[place] : operation->number);
}

void operation_sizes(struct engine *engine, const struct operation *operation)
{
    const uint64_t arena_bytes = UINT64_C(1) << 44;
    uint64_t bytes = operation->number;
    uint64_t block_bytes = vmm_block_bytes(engine->cache, bytes);
    bool is_refused = block_bytes == 0;
    bool may_be_refused = bytes > arena_bytes || engine->config.arena_bytes != 0;
    if (is_refused && may_be_refused)
        return;
    if (is_refused || bytes > arena_bytes)
        engine_trouble(engine, "sizes: %" PRIu64 " bytes have a block of %" PRIu64, bytes,
                       block_bytes);
    if (block_bytes < bytes || block_bytes % 512 != 0)
        engine_trouble(engine, "sizes: a block of %" PRIu64 " bytes for %" PRIu64, block_bytes,
                       bytes);
    if (bytes > 0 && vmm_block_bytes(engine->cache, bytes - 1) > block_bytes)
        engine_trouble(engine, "sizes: the block for %" PRIu64 " bytes is larger than the next",
                       bytes - 1);
}

/* ---- The rest -------------------------------------------------------------------------------- */

void operation_summary(struct engine *engine, const struct operation *operation)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    (void)operation;
    if (out == NULL)
        return;
    engine_enter(engine);
    vmm_status status = vmm_summary_write(engine->cache, out);
    engine_leave(engine);
    (void)fclose(out);
    if (engine_expect(engine, "vmm_summary_write", status, STATUS_BIT(OK), 0) &&
        strstr(text, "Reserved") == NULL)
        engine_trouble(engine, "summary: it does not tell what is reserved");
    free(text);
}

void operation_device(struct engine *engine, const struct operation *operation)
{
    uint64_t free_bytes = UINT64_MAX;
    uint64_t total_bytes = UINT64_MAX;
    (void)operation;
    engine_enter(engine);
    vmm_status status = vmm_device_memory(engine->cache, &free_bytes, &total_bytes);
    engine_leave(engine);
    if (!engine_expect(engine, "vmm_device_memory", status, STATUS_BIT(OK), STATUS_FAULTS)) {
        if (free_bytes != UINT64_MAX || total_bytes != UINT64_MAX)
            engine_trouble(engine, "device: failed and wrote its result");
        return;
    }
    uint64_t held = vmm__sim_census(engine->driver).physical_bytes;
    if (total_bytes != engine->device_bytes || free_bytes != total_bytes - held)
        engine_trouble(engine, "device: %" PRIu64 " of %" PRIu64 " bytes are free", free_bytes,
                       total_bytes);
}

void operation_log(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    engine_enter(engine);
    vmm_status status = vmm_log_write(engine->cache, "a line");
    engine_leave(engine);
    (void)engine_expect(engine, "vmm_log_write", status, STATUS_BIT(OK), 0);
}
