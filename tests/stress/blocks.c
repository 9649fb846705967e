/* Blocks: allocated, filled, checked, given back; the program is asked for memory. See stress.h. */
#include "stress.h"

#include "base/arith.h"
#include "driver/sim/sim.h"

#include <inttypes.h>
#include <string.h>

enum { BLOCK_ALIGN_BYTES = 512 };

/* A result that no call may write when it fails. */
#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a5a5a5a5a)

/* ---- Work ------------------------------------------------------------------------------------ */

void stress_stream_follows(struct stress *stress, unsigned later, unsigned earlier)
{
    if (later == earlier || stress->is_lost)
        return;
    stress_expect_ok(
        stress, "event record",
        vmm__driver_event_record(stress->driver, stress->event, stress->streams[earlier]));
    stress_expect_ok(
        stress, "stream wait",
        vmm__driver_stream_wait(stress->driver, stress->streams[later], stress->event));
}

static void range_check(struct stress *stress, uint64_t address, uint64_t bytes, uint32_t word,
                        unsigned stream)
{
    stress_work_enter(stress);
    (void)stress_work_leave(
        stress, "check",
        vmm__driver_check(stress->driver, address, bytes, word, stress->streams[stream]));
}

static bool range_fill(struct stress *stress, uint64_t address, uint64_t bytes, uint32_t word,
                       unsigned stream)
{
    stress_work_enter(stress);
    return stress_work_leave(
        stress, "fill",
        vmm__driver_fill(stress->driver, address, bytes, word, stress->streams[stream]));
}

void stress_block_read(struct stress *stress, const struct model_block *block, unsigned stream)
{
    if (block->word == 0 || block->requested_bytes == 0 || stress_is_unusable(stress))
        return;
    stress_all_follow(stress, stream, block->writer);
    if (block->unit_bytes == 0)
        range_check(stress, block->address, block->requested_bytes, block->word, stream);
    for (uint64_t units = block->filled; units != 0; units &= units - 1) {
        uint64_t offset = (uint64_t)__builtin_ctzll(units) * block->unit_bytes;
        range_check(stress, block->address + offset, block->unit_bytes, block->word, stream);
    }
}

void stress_block_write(struct stress *stress, struct model_block *block, unsigned stream)
{
    if (block->requested_bytes == 0 || block->share != 0 || stress_is_unusable(stress))
        return;
    stress_all_follow(stress, stream, block->undeclared);
    block->undeclared = 0;
    block->writer = 0;
    block->word = stress_word(stress);
    bool is_filled =
        block->unit_bytes != 0 ||
        range_fill(stress, block->address, block->requested_bytes, block->word, stream);
    for (uint64_t units = block->committed; units != 0 && is_filled; units &= units - 1) {
        uint64_t offset = (uint64_t)__builtin_ctzll(units) * block->unit_bytes;
        is_filled =
            range_fill(stress, block->address + offset, block->unit_bytes, block->word, stream);
    }
    block->word = is_filled ? block->word : 0;
    block->filled = is_filled ? block->committed : 0;
}

void stress_blocks_verify(struct stress *stress)
{
    for (unsigned i = 0; i < stress->model.live; i++) {
        const struct model_block *block = &stress->model.blocks[stress->model.order[i]];
        if (block->graph == 0 && block->stream != MODEL_STREAMS &&
            !stress_is_captured(stress, STREAM_BIT(block->stream)))
            stress_block_read(stress, block, block->stream);
    }
}

void stress_work_verify(struct stress *stress)
{
    uint64_t places = 0;
    stress_expect_ok(stress, "mismatches", vmm__driver_mismatches(stress->driver, &places));
    if (places != 0)
        stress_trouble(stress, "contents: %" PRIu64 " places differ, first: %s", places,
                       stress_is_sim(stress) ? vmm__sim_mismatch(stress->driver) : "unknown");
}

/* ---- Allocation ------------------------------------------------------------------------------ */

/* What a request may return when no fault happens. */
unsigned stress_alloc_statuses(const struct stress *stress, uint64_t bytes)
{
    const uint64_t arena_bytes = UINT64_C(1) << 44;
    bool is_arena_small = stress->config.arena_bytes != 0;
    unsigned legal = STATUS_BIT(OK);
    if (!stress_is_sim(stress) && bytes > stress->device_bytes)
        return STATUS_OOM | STATUS_BIT(ERR_INVALID_ARGUMENT);
    if (bytes > arena_bytes)
        return STATUS_BIT(ERR_ADDRESS_SPACE);
    if (stress->live_most == 0 || stress->model.limit_bytes != 0 || stress->model.was_divided ||
        bytes > stress->live_most)
        legal |= STATUS_BIT(ERR_DEVICE_OOM);
    if (is_arena_small || bytes > arena_bytes / 16)
        legal |= STATUS_BIT(ERR_ADDRESS_SPACE);
    return bytes > stress->device_bytes ? legal & ~STATUS_BIT(OK) : legal;
}

/* An allocation may fail with out of memory only if no idle memory fits it. */
static void refusal_verify(struct stress *stress, uint64_t bytes)
{
    const uint64_t granule = stress->driver->granule_bytes;
    const struct model *model = &stress->model;
    bool is_plain = stress->shared == NULL && stress->captured == 0 && !stress->was_hurt &&
                    stress->checks_every != 0 && stress->config.arena_bytes == 0 &&
                    !model_is_divided(model) && !stress_is_padded(stress);
    if (!is_plain)
        return;
    vmm_stats stats = stress_stats(stress);
    uint64_t most = stress->device_bytes;
    if (model->limit_bytes != 0 && model->limit_bytes < most)
        most = model->limit_bytes;
    uint64_t used = stats.reserved_bytes.current - stats.idle_bytes;
    if (bytes < most && used + bytes + 2 * granule <= most)
        stress_trouble(stress,
                       "refusal: %" PRIu64 " bytes were refused with %" PRIu64 " of %" PRIu64
                       " in use",
                       bytes, used, most);
}

static void address_verify(struct stress *stress, const struct model_block *block)
{
    if (block->address == 0 || block->address % BLOCK_ALIGN_BYTES != 0)
        stress_trouble(stress, "alloc: %#" PRIx64 " is not a multiple of 512", block->address);
    if (block->block_bytes < block->requested_bytes || block->block_bytes == 0)
        stress_trouble(stress, "alloc: a block of %" PRIu64 " bytes for %" PRIu64,
                       block->block_bytes, block->requested_bytes);
    const struct model_block *other =
        model_overlap(&stress->model, block->address, block->block_bytes);
    if (other != NULL)
        stress_trouble(stress,
                       "alloc: %#" PRIx64 " of %" PRIu64 " bytes overlaps a live block at %#" PRIx64
                       " of %" PRIu64,
                       block->address, block->block_bytes, other->address, other->block_bytes);
}

/* A block comes out of another stream's memory, or is a misfit, when there is no other. */
bool stress_may_borrow(const struct stress *stress)
{
    return stress->shared != NULL || stress->live_most == 0 || stress->model.limit_bytes != 0 ||
           stress->was_hurt || stress->model.ooms != 0 || stress->model.was_divided;
}

/* A block with chunks of its own has whole granules. */
uint64_t stress_block_bytes(const struct stress *stress, uint64_t bytes, bool has_own_chunks)
{
    uint64_t block_bytes = vmm_block_bytes(stress->cache, bytes);
    return has_own_chunks ? vmm__align_up(block_bytes, stress->driver->granule_bytes) : block_bytes;
}

/* A request that would have failed has a block of another pool, one that lends. Stores the bytes of that block. NULL:
 * it has none. */
static const struct model_tenant *lender_of(struct stress *stress, const struct model_tenant *asked,
                                            const void *address, uint64_t *block_bytes)
{
    vmm_item item = VMM_ITEM_INIT;
    const struct model_tenant *lender = NULL;
    for (unsigned i = 0; i < MODEL_TENANTS; i++) {
        const struct model_tenant *tenant = &stress->model.tenants[i];
        if (tenant->handle == NULL || !tenant->lends || tenant == asked)
            continue;
        if (item.address == 0) {
            stress_enter(stress);
            vmm_status status = vmm_find(stress->cache, address, &item);
            stress_leave(stress);
            stress_expect_ok(stress, "vmm_find", status);
        }
        lender = item.pool == tenant->handle ? tenant : lender;
    }
    *block_bytes = lender == NULL ? *block_bytes : item.bytes;
    return lender;
}

struct model_block stress_block_make(const struct stress *stress, unsigned stream, uint64_t bytes,
                                     const struct model_tenant *tenant, const void *address)
{
    const struct model *model = &stress->model;
    bool is_shareable = tenant != NULL && tenant->is_shareable;
    bool has_own_chunks = tenant != NULL && tenant->has_own_chunks;
    bool has_source = tenant != NULL && tenant->has_source;
    return (struct model_block){
        .address = (uintptr_t)address,
        .requested_bytes = bytes,
        .block_bytes = stress_block_bytes(stress, bytes, has_own_chunks),
        .is_shareable = is_shareable || (stress->config.shareable == VMM_ON && !has_source),
        .has_fabric = tenant != NULL && tenant->has_fabric,
        .stream = stream,
        .handle = stress->streams[stream],
        .pool = MODEL_POOLS,
        .tenant = tenant == NULL ? 0 : 1 + (unsigned)(tenant - model->tenants),
        .is_of_pool_surely = true,
        .may_borrow = stress_may_borrow(stress),
    };
}

bool stress_block_from_lender(struct stress *stress, struct model_block *block,
                              const struct model_tenant *asked)
{
    const void *address = (const void *)(uintptr_t)block->address;
    const struct model_tenant *lender = lender_of(stress, asked, address, &block->block_bytes);
    if (lender == NULL)
        return false;
    block->tenant = 1 + (unsigned)(lender - stress->model.tenants);
    block->is_shareable =
        lender->is_shareable || (stress->config.shareable == VMM_ON && !lender->has_source);
    block->has_fabric = lender->has_fabric;
    block->may_borrow = true;
    return true;
}

void stress_block_note(struct stress *stress, unsigned slot, const struct model_block *made)
{
    struct model_block *block = &stress->model.blocks[slot];
    stress_list(stress, "%#" PRIx64 ", %" PRIu64 " bytes for %" PRIu64, made->address,
                made->block_bytes, made->requested_bytes);
    address_verify(stress, made);
    if (stress_is_troubled(stress))
        return;
    stress->known |= STREAM_BIT(made->stream);
    model_add(&stress->model, slot, made);
    stress_graph_take(stress, slot, block);
    if (stress_is_captured(stress, STREAM_BIT(made->stream)))
        return;
    if (made->unit_bytes == 0)
        stress_zeros_verify(stress, block);
    stress_block_write(stress, block, made->stream);
}

void stress_block_misfit(struct stress *stress, struct model_block *block)
{
    if (block->requested_bytes > OBJECT_MOST_BYTES || !block->may_borrow ||
        stress_is_padded(stress))
        return;
    uint64_t bytes = stress_item_find(stress, (const void *)(uintptr_t)block->address).bytes;
    if (bytes == block->block_bytes)
        return;
    if (bytes < block->block_bytes || bytes > OBJECT_MOST_BYTES || block->tenant != 0 ||
        stress_stats(stress).retries == 0)
        stress_trouble(stress, "alloc: a block of %" PRIu64 " bytes for %" PRIu64, bytes,
                       block->requested_bytes);
    block->block_bytes = bytes;
}

/* Of a request that a graph pool may take. */
static void block_note(struct stress *stress, unsigned slot, unsigned stream, uint64_t bytes,
                       const struct model_tenant *tenant, const void *address)
{
    const struct model *model = &stress->model;
    struct model_block block = stress_block_make(stress, stream, bytes, tenant, address);
    if (!stress_block_from_lender(stress, &block, tenant) && tenant == NULL)
        block.pool = model_pool_of(model, stream);
    if (block.pool != MODEL_POOLS)
        block.pool_id = model->pools[block.pool].id;
    if (tenant == NULL && block.pool == MODEL_POOLS)
        stress_block_misfit(stress, &block);
    stress_block_note(stress, slot, &block);
}

/* Half of a worker's requests are on its own stream while it captures, for its graph, and a quarter else: only
 * there may undeclared uses outlive a block. */
static unsigned alloc_stream(struct stress *stress, uint8_t value)
{
    unsigned one_in = stress->captured != 0 ? 2 : 4;
    bool is_own = stress->shared != NULL && value % one_in == 0;
    return is_own ? stress->stream_count - 1 : operand_stream(stress, value);
}

void stress_alloc(struct stress *stress, const struct operation *operation,
                  const struct model_tenant *tenant, bool is_named)
{
    enum { HUGE_SHIFT = 36 }; /* beyond, a request is made to be refused */
    struct model *model = &stress->model;
    unsigned slot = operation->a;
    unsigned stream = alloc_stream(stress, operation->b);
    uint64_t bytes = operation->number;
    uint64_t live_bytes = model->requested_bytes.current;
    bool is_shared = stress->shared != NULL;
    bool is_too_much = stress->live_most != 0 && (bytes >> HUGE_SHIFT == 0 || is_shared) &&
                       live_bytes + bytes > stress->live_most;
    if (model->blocks[slot].is_live || is_too_much || stress->taking == slot)
        return;
    void *address = UNTOUCHED;
    unsigned taking = stress->taking;
    stress->taking = slot;
    stress_own_follow(stress, stream);
    stress_enter(stress);
    vmm_status status =
        control_alloc(&stress->control, stress->cache, is_named ? tenant->handle : NULL, bytes,
                      stress->streams[stream], &address);
    stress_leave(stress);
    stress->taking = taking;
    stress->sums.allocations++;
    bool is_refused = status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
    model->ooms += is_refused;
    stress->sums.refused += is_refused;
    bool is_ok = stress_expect(stress, "vmm_alloc", status, stress_alloc_statuses(stress, bytes),
                               STATUS_FAULTS | STATUS_OOM);
    if (!is_ok && address != UNTOUCHED)
        stress_trouble(stress, "vmm_alloc: failed and wrote its result");
    if (is_ok)
        block_note(stress, slot, stream, bytes, tenant, address);
    else if (status == VMM_ERR_DEVICE_OOM)
        refusal_verify(stress, bytes);
}

void operation_alloc(struct stress *stress, const struct operation *operation)
{
    stress_alloc(stress, operation, stress_pushed(stress), false);
}

static struct model_tenant *tenant_of(struct stress *stress, const struct model_block *block)
{
    return block->tenant == 0 ? NULL : &stress->model.tenants[block->tenant - 1];
}

/* Whether a slot's last block was freed, and its general pool and its stream still exist. */
static bool may_place(struct stress *stress, const struct model_block *last)
{
    const struct model_tenant *tenant = tenant_of(stress, last);
    return !last->is_live && last->unit_bytes == 0 && tenant != NULL && tenant->handle != NULL &&
           last->stream != MODEL_STREAMS && stress->streams[last->stream] == last->handle;
}

/* Places such a block where it was; its memory may be in use or gone meanwhile. */
void operation_pool_place(struct stress *stress, const struct operation *operation)
{
    const struct model *model = &stress->model;
    unsigned slot = operation->a;
    for (unsigned i = 0; i < OPERATION_SLOTS && !may_place(stress, &model->blocks[slot]); i++)
        slot = (slot + 1) % OPERATION_SLOTS;
    const struct model_block last = model->blocks[slot];
    bool is_too_much = stress->live_most != 0 &&
                       model->requested_bytes.current + last.requested_bytes > stress->live_most;
    if (!may_place(stress, &last) || is_too_much)
        return;
    const struct model_tenant *tenant = tenant_of(stress, &last);
    void *address = (void *)(uintptr_t)last.address;
    stress_own_follow(stress, last.stream);
    stress_enter(stress);
    vmm_status status =
        vmm_pool_place(tenant->handle, address, last.requested_bytes, stress->streams[last.stream]);
    stress_leave(stress);
    unsigned legal = STATUS_BIT(OK) | STATUS_BIT(ERR_INVALID_ARGUMENT);
    if (stress_expect(stress, "vmm_pool_place", status, legal, STATUS_FAULTS))
        block_note(stress, slot, last.stream, last.requested_bytes, tenant, address);
}

/* ---- Free ------------------------------------------------------------------------------------ */

/* What is in a block, a last time: its own stream looks, or one that the cache knows to use it. Neither waits for an
 * undeclared write: the free must not come after it for them. */
static void block_last_read(struct stress *stress, const struct model_block *block)
{
    unsigned reader = block->stream;
    if (block->writer != 0)
        return;
    if (reader == MODEL_STREAMS) {
        reader = 0;
        while (reader < stress->stream_count && (block->users >> reader & 1) == 0)
            reader++;
        reader = reader == stress->stream_count ? MODEL_STREAMS : reader;
    }
    if (reader == MODEL_STREAMS || stress_is_captured(stress, STREAM_BIT(reader)))
        return;
    stress_stream_follows(stress, reader, stress_block_keeper(block));
    stress_block_read(stress, block, reader);
}

/* A block that other streams use needs events; on a lost device a stream may have ended that the model still has. */
void stress_block_give(struct stress *stress, struct model_block *block)
{
    bool needs_events = block->is_shared || block->may_borrow || stress->is_lost;
    unsigned faulty = needs_events ? STATUS_FAULTS : 0;
    block_last_read(stress, block);
    stress_shared_give(stress, block);
    stress_pin_verify(stress, block);
    stress_list(stress, "%#" PRIx64, block->address);
    stress_enter(stress);
    vmm_status status =
        control_free(&stress->control, stress->cache, (void *)(uintptr_t)block->address);
    stress_leave(stress);
    if (!stress_expect(stress, "vmm_free", status, STATUS_BIT(OK), faulty))
        return;
    stress_graph_give(stress, block);
    stress_undeclared_give(stress, block);
    model_remove(&stress->model, block);
}

/* The slot is no longer live: frees its block a second time. */
static void stale_free(struct stress *stress, const struct model_block *block)
{
    if (stress->shared != NULL || block->address == 0 ||
        model_start(&stress->model, block->address) != NULL)
        return;
    stress->sums.misuses++;
    stress_enter(stress);
    vmm_status status =
        control_free(&stress->control, stress->cache, (void *)(uintptr_t)block->address);
    stress_leave(stress);
    (void)stress_expect(stress, "vmm_free of a freed block", status,
                        STATUS_BIT(ERR_UNKNOWN_POINTER), 0);
    if (status == VMM_ERR_UNKNOWN_POINTER)
        stress_misuse_noted(stress);
}

void operation_free(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = &stress->model.blocks[operation->a];
    if (block->is_live)
        stress_block_give(stress, block);
    else
        stale_free(stress, block);
}

/* Takes a block where there is none, and gives one back where there is. */
void operation_toggle(struct stress *stress, const struct operation *operation)
{
    if (operand_block(stress, operation->a) != NULL)
        operation_free(stress, operation);
    else
        operation_alloc(stress, operation);
}

/* ---- Pressure -------------------------------------------------------------------------------- */

/* Frees the block that was asked for longest ago, or trims, or asks for more itself, or does nothing. */
static int pressure_relieve(struct stress *stress)
{
    struct operation more = { .code = OPERATION_alloc, .number = UINT64_C(1) << 21 };
    unsigned turn = stress->pressure_turn++;
    switch (turn % 4) {
    case 0:
        operation_trim(stress, &(struct operation){ .code = OPERATION_trim });
        return 0;
    case 1:
        more.a = (uint8_t)turn;
        operation_alloc(stress, &more);
        return 0;
    default:
        break;
    }
    struct model *model = &stress->model;
    if (model->live == 0 || model->order[turn % model->live] == stress->taking)
        return 0;
    struct model_block *block = &model->blocks[model->order[turn % model->live]];
    stress_block_give(stress, block);
    for (unsigned i = 0; i < stress->stream_count; i++)
        stress_own_follow(stress, i); /* the request under way may get its memory */
    return !block->is_live;
}

/* Called within a call of the library: what it does itself is under the same faults, but for its own work. */
int stress_pressure(void *context, vmm_pool *pool, size_t bytes)
{
    (void)pool;
    struct stress *stress = context;
    stress->model.pressure_calls++;
    stress_list(stress, "the program is asked for %zu bytes", bytes);
    stress_leave(stress);
    unsigned fired = stress->faults.fired;
    int is_relieved = pressure_relieve(stress);
    stress->faults.fired |= fired;
    fired = stress->faults.fired;
    stress_enter(stress);
    stress->faults.fired = fired;
    return is_relieved;
}
