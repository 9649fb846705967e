/* Blocks: every use of them is ordered, or told to the cache. See engine.h. */
#include "engine.h"

#include "driver/sim.h"

#include <inttypes.h>
#include <string.h>

enum { BLOCK_ALIGN_BYTES = 512 };

/* A result that no call may write when it fails. */
#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a5a5a5a5a)

/* ---- Work ------------------------------------------------------------------------------------ */

void engine_stream_follows(struct engine *engine, unsigned later, unsigned earlier)
{
    if (later == earlier || engine->is_lost)
        return;
    engine_expect_ok(
        engine, "event record",
        vmm__driver_event_record(engine->driver, engine->event, engine->streams[earlier]));
    engine_expect_ok(
        engine, "stream wait",
        vmm__driver_stream_wait(engine->driver, engine->streams[later], engine->event));
}

static void users_followed(struct engine *engine, const struct model_block *block, unsigned later)
{
    for (unsigned user = 0; user < MODEL_STREAMS; user++) {
        if ((block->users >> user & 1) != 0)
            engine_stream_follows(engine, later, user);
    }
    if (block->is_left)
        engine_stream_follows(engine, later, ENGINE_HEIR);
}

static void block_read(struct engine *engine, const struct model_block *block, unsigned stream)
{
    if (block->word == 0 || block->requested_bytes == 0 || engine->is_lost)
        return;
    engine_expect_ok(engine, "check",
                     vmm__driver_check(engine->driver, block->address, block->requested_bytes,
                                       block->word, engine->streams[stream]));
}

static void block_write(struct engine *engine, struct model_block *block, unsigned stream)
{
    if (block->requested_bytes == 0 || engine->is_lost)
        return;
    block->word = ++engine->words;
    engine_expect_ok(engine, "fill",
                     vmm__driver_fill(engine->driver, block->address, block->requested_bytes,
                                      block->word, engine->streams[stream]));
}

void engine_work_verify(struct engine *engine)
{
    uint64_t places = 0;
    engine_expect_ok(engine, "mismatches", vmm__driver_mismatches(engine->driver, &places));
    if (places != 0)
        engine_trouble(engine, "contents: %" PRIu64 " places differ, first: %s", places,
                       vmm__sim_mismatch(engine->driver));
}

/* ---- Allocation ------------------------------------------------------------------------------ */

/* What a request may return when no fault happens. */
static unsigned alloc_statuses(const struct engine *engine, uint64_t bytes)
{
    const uint64_t arena_bytes = UINT64_C(1) << 44;
    bool is_arena_small = engine->config.arena_bytes != 0;
    unsigned legal = STATUS_BIT(OK);
    if (bytes > arena_bytes)
        return STATUS_BIT(ERR_INVALID_ARGUMENT);
    if (engine->live_most == 0 || engine->model.limit_bytes != 0 || bytes > engine->live_most)
        legal |= STATUS_BIT(ERR_DEVICE_OOM);
    if (is_arena_small || bytes > arena_bytes / 16)
        legal |= STATUS_BIT(ERR_ADDRESS_SPACE);
    if (is_arena_small && bytes > engine->device_bytes)
        legal |= STATUS_BIT(ERR_INVALID_ARGUMENT);
    return bytes > engine->device_bytes ? legal & ~STATUS_BIT(OK) : legal;
}

/* Whoever is refused for want of memory must not have been refused past some that is idle. */
static void refusal_verify(struct engine *engine, uint64_t bytes)
{
    const uint64_t granule = engine->driver->granule_bytes;
    const struct model *model = &engine->model;
    bool is_plain = engine->captured == 0 && !engine->was_hurt && engine->checks_every != 0 &&
                    engine->config.arena_bytes == 0 && !engine_is_padded(engine);
    if (!is_plain)
        return;
    vmm_stats stats = engine_stats(engine);
    uint64_t most = engine->device_bytes;
    if (model->limit_bytes != 0 && model->limit_bytes < most)
        most = model->limit_bytes;
    uint64_t used = stats.reserved_bytes.current - stats.idle_bytes;
    if (bytes < most && used + bytes + 2 * granule <= most)
        engine_trouble(engine,
                       "refusal: %" PRIu64 " bytes were refused with %" PRIu64 " of %" PRIu64
                       " in use",
                       bytes, used, most);
}

static void handed_out_verify(struct engine *engine, const struct model_block *block)
{
    if (block->address == 0 || block->address % BLOCK_ALIGN_BYTES != 0)
        engine_trouble(engine, "alloc: %#" PRIx64 " is not a multiple of 512", block->address);
    if (block->block_bytes < block->requested_bytes || block->block_bytes == 0)
        engine_trouble(engine, "alloc: a block of %" PRIu64 " bytes for %" PRIu64,
                       block->block_bytes, block->requested_bytes);
    const struct model_block *other =
        model_overlap(&engine->model, block->address, block->block_bytes);
    if (other != NULL)
        engine_trouble(engine,
                       "alloc: %#" PRIx64 " of %" PRIu64 " bytes overlaps a live block at %#" PRIx64
                       " of %" PRIu64,
                       block->address, block->block_bytes, other->address, other->block_bytes);
}

static void block_taken(struct engine *engine, unsigned slot, unsigned stream, uint64_t bytes,
                        const void *address)
{
    struct model_block block = { .address = (uintptr_t)address,
                                 .requested_bytes = bytes,
                                 .block_bytes = vmm_block_bytes(engine->cache, bytes),
                                 .stream = stream,
                                 .handle = engine->streams[stream],
                                 .pool = model_pool_of(&engine->model, stream),
                                 .is_of_pool_surely = true };
    engine_list(engine, "%#" PRIx64 ", %" PRIu64 " bytes for %" PRIu64, block.address,
                block.block_bytes, bytes);
    handed_out_verify(engine, &block);
    if (engine_is_troubled(engine))
        return;
    engine->known |= 1U << stream;
    model_add(&engine->model, slot, &block);
    engine_graph_take(engine, slot, &engine->model.blocks[slot]);
    if (engine_is_captured(engine, 1U << stream))
        return;
    engine_zeros_verify(engine, &engine->model.blocks[slot]);
    block_write(engine, &engine->model.blocks[slot], stream);
}

void operation_alloc(struct engine *engine, const struct operation *operation)
{
    enum { HUGE_SHIFT = 36 }; /* beyond, a request is made to be refused */
    struct model *model = &engine->model;
    unsigned slot = operation->a;
    unsigned stream = operand_stream(engine, operation->b);
    uint64_t bytes = operation->number;
    uint64_t live_bytes = model->requested_bytes.current;
    bool is_too_much = engine->live_most != 0 && bytes >> HUGE_SHIFT == 0 &&
                       live_bytes + bytes > engine->live_most;
    if (model->blocks[slot].is_live || is_too_much || engine->taking == slot)
        return;
    void *address = UNTOUCHED;
    unsigned taking = engine->taking;
    engine->taking = slot;
    engine_enter(engine);
    vmm_status status =
        plant_alloc(&engine->plant, engine->cache, bytes, engine->streams[stream], &address);
    engine_leave(engine);
    engine->taking = taking;
    engine->sums.allocations++;
    bool is_refused = status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
    model->ooms += is_refused;
    engine->sums.refused += is_refused;
    bool is_ok =
        engine_expect(engine, "vmm_alloc", status, alloc_statuses(engine, bytes), STATUS_FAULTS);
    if (!is_ok && address != UNTOUCHED)
        engine_trouble(engine, "vmm_alloc: failed and wrote its result");
    if (is_ok)
        block_taken(engine, slot, stream, bytes, address);
    else if (status == VMM_ERR_DEVICE_OOM)
        refusal_verify(engine, bytes);
}

/* ---- Free ------------------------------------------------------------------------------------ */

/* What is in a block, a last time: its own stream looks, or one that the cache knows to use it. */
static void block_last_read(struct engine *engine, const struct model_block *block)
{
    unsigned reader = block->stream;
    if (reader == MODEL_STREAMS) {
        reader = 0;
        while (reader < MODEL_STREAMS && (block->users >> reader & 1) == 0)
            reader++;
    }
    if (reader == MODEL_STREAMS || engine_is_captured(engine, 1U << reader))
        return;
    engine_stream_follows(engine, reader, engine_block_keeper(block));
    block_read(engine, block, reader);
}

/* A block that other streams use needs events. */
void engine_block_give(struct engine *engine, struct model_block *block)
{
    unsigned faulty = block->is_shared ? STATUS_FAULTS : 0;
    block_last_read(engine, block);
    engine_list(engine, "%#" PRIx64, block->address);
    engine_enter(engine);
    vmm_status status =
        plant_free(&engine->plant, engine->cache, (void *)(uintptr_t)block->address);
    engine_leave(engine);
    if (!engine_expect(engine, "vmm_free", status, STATUS_BIT(OK), faulty))
        return;
    engine_graph_give(engine, block);
    model_remove(&engine->model, block);
}

/* A slot that is live no more: its block is given back a second time. */
static void stale_given(struct engine *engine, const struct model_block *block)
{
    if (block->address == 0 || model_start(&engine->model, block->address) != NULL)
        return;
    engine->sums.misuses++;
    engine_enter(engine);
    vmm_status status =
        plant_free(&engine->plant, engine->cache, (void *)(uintptr_t)block->address);
    engine_leave(engine);
    (void)engine_expect(engine, "vmm_free of a freed block", status,
                        STATUS_BIT(ERR_UNKNOWN_POINTER), 0);
    if (status == VMM_ERR_UNKNOWN_POINTER)
        engine_misuse_noted(engine);
}

void operation_free(struct engine *engine, const struct operation *operation)
{
    struct model_block *block = &engine->model.blocks[operation->a];
    if (block->is_live)
        engine_block_give(engine, block);
    else
        stale_given(engine, block);
}

/* ---- Use ------------------------------------------------------------------------------------- */

void operation_use(struct engine *engine, const struct operation *operation)
{
    struct model_block *block = operand_block(engine, operation->a);
    unsigned user = operand_stream(engine, operation->b);
    if (block == NULL)
        return;
    engine_enter(engine);
    vmm_status status =
        vmm_use(engine->cache, (void *)(uintptr_t)block->address, engine->streams[user]);
    engine_leave(engine);
    if (!engine_expect(engine, "vmm_use", status, STATUS_BIT(OK), STATUS_BIT(ERR_HOST_OOM)))
        return;
    engine->known |= 1U << user;
    if (user == block->stream)
        return;
    block->users |= 1U << user;
    block->is_shared = true;
}

/* Whether work on the block may be submitted to a stream: the block's own, or one that the cache knows of. */
static bool work_is_legal(const struct engine *engine, const struct model_block *block,
                          unsigned stream)
{
    unsigned known = block->users | 1U << block->stream;
    return block->graph == 0 && (known >> stream & 1) != 0 &&
           !engine_is_captured(engine, known | 1U << stream);
}

void operation_read(struct engine *engine, const struct operation *operation)
{
    struct model_block *block = operand_block(engine, operation->a);
    unsigned stream = operand_stream(engine, operation->b);
    if (block == NULL || !work_is_legal(engine, block, stream))
        return;
    engine_stream_follows(engine, stream, engine_block_keeper(block));
    block_read(engine, block, stream);
}

void operation_write(struct engine *engine, const struct operation *operation)
{
    struct model_block *block = operand_block(engine, operation->a);
    unsigned stream = operand_stream(engine, operation->b);
    if (block == NULL || !work_is_legal(engine, block, stream))
        return;
    engine_stream_follows(engine, stream, engine_block_keeper(block));
    users_followed(engine, block, stream);
    block_write(engine, block, stream);
    engine_stream_follows(engine, engine_block_keeper(block), stream);
}

/* Another stream reads, and the owner waits until it has: nothing to tell the cache. */
void operation_lend(struct engine *engine, const struct operation *operation)
{
    struct model_block *block = operand_block(engine, operation->a);
    unsigned stream = operand_stream(engine, operation->b);
    if (block == NULL || block->stream == MODEL_STREAMS ||
        !work_is_legal(engine, block, block->stream) || engine_is_captured(engine, 1U << stream))
        return;
    engine_stream_follows(engine, stream, engine_block_keeper(block));
    block_read(engine, block, stream);
    engine_stream_follows(engine, engine_block_keeper(block), stream);
}

static void block_pin(struct engine *engine, uint8_t slot, bool is_pinned)
{
    struct model_block *block = operand_block(engine, slot);
    if (block == NULL)
        return;
    void *address = (void *)(uintptr_t)block->address;
    engine_enter(engine);
    vmm_status status =
        is_pinned ? vmm_pin(engine->cache, address) : vmm_unpin(engine->cache, address);
    engine_leave(engine);
    if (engine_expect(engine, is_pinned ? "vmm_pin" : "vmm_unpin", status, STATUS_BIT(OK), 0))
        model_pin(&engine->model, block, is_pinned);
}

void operation_pin(struct engine *engine, const struct operation *operation)
{
    block_pin(engine, operation->a, true);
}

void operation_unpin(struct engine *engine, const struct operation *operation)
{
    block_pin(engine, operation->a, false);
}

/* ---- Streams --------------------------------------------------------------------------------- */

void operation_delay(struct engine *engine, const struct operation *operation)
{
    unsigned stream = operand_stream(engine, operation->a);
    if (engine_is_captured(engine, 1U << stream) || engine->is_lost)
        return;
    engine_expect_ok(engine, "delay",
                     vmm__driver_delay(engine->driver, operation->number, engine->streams[stream]));
}

void operation_finish(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    if (engine->captured == 0 && !engine->is_lost)
        engine_work_verify(engine);
}

/* ---- Pressure -------------------------------------------------------------------------------- */

/* Frees the block that was asked for longest ago, or trims, or asks for more itself, or does nothing. */
static int pressure_relieved(struct engine *engine)
{
    struct operation more = { .code = OPERATION_alloc, .number = UINT64_C(1) << 21 };
    unsigned turn = engine->pressure_turn++;
    switch (turn % 4) {
    case 0:
        operation_trim(engine, &(struct operation){ .code = OPERATION_trim });
        return 0;
    case 1:
        more.a = (uint8_t)turn;
        operation_alloc(engine, &more);
        return 0;
    default:
        break;
    }
    struct model *model = &engine->model;
    if (model->live == 0)
        return 0;
    struct model_block *block = &model->blocks[model->order[turn % model->live]];
    engine_block_give(engine, block);
    return !block->is_live;
}

/* Called within a call of the library: what it does itself is under the same faults, but for its own work. */
int engine_pressure(void *context, size_t bytes)
{
    struct engine *engine = context;
    engine->model.pressure_calls++;
    engine_list(engine, "the program is asked for %zu bytes", bytes);
    engine_leave(engine);
    unsigned fired = engine->faults.fired;
    int is_relieved = pressure_relieved(engine);
    engine->faults.fired |= fired;
    fired = engine->faults.fired;
    engine_enter(engine);
    engine->faults.fired = fired;
    return is_relieved;
}
