/* Uses of blocks: each is ordered after the others, or told to the cache. See stress.h. */
#include "shared.h"
#include "stress.h"

#include "cache/cache.h"

#include <inttypes.h>

/* ---- Use ------------------------------------------------------------------------------------- */

void operation_use(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = operand_block(stress, operation->a);
    unsigned user = operand_stream(stress, operation->b);
    if (block == NULL)
        return;
    stress_enter(stress);
    vmm_status status = control_use(&stress->control, stress->cache,
                                    (void *)(uintptr_t)block->address, stress->streams[user]);
    stress_leave(stress);
    if (!stress_expect(stress, "vmm_record_stream", status, STATUS_BIT(OK),
                       STATUS_BIT(ERR_HOST_OOM)))
        return;
    stress->known |= STREAM_BIT(user);
    if (user == block->stream)
        return;
    block->users |= STREAM_BIT(user);
    block->is_shared = true;
}

void stress_users_follow(struct stress *stress, const struct model_block *block, unsigned later)
{
    for (unsigned user = 0; user < stress->stream_count; user++) {
        if ((block->users >> user & 1) != 0)
            stress_stream_follows(stress, later, user);
    }
    if (block->is_left)
        stress_stream_follows(stress, later, STRESS_HEIR);
}

/* Whether work on the block may be submitted to a stream: the block's own, or one that the cache knows of. */
static bool work_is_legal(const struct stress *stress, const struct model_block *block,
                          unsigned stream)
{
    uint64_t known = block->users | STREAM_BIT(block->stream);
    return block->graph == 0 && (known >> stream & 1) != 0 &&
           !stress_is_captured(stress, known | STREAM_BIT(stream));
}

void operation_read(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = operand_block(stress, operation->a);
    unsigned stream = operand_stream(stress, operation->b);
    if (block == NULL || !work_is_legal(stress, block, stream))
        return;
    stress_stream_follows(stress, stream, stress_block_keeper(block));
    stress_block_read(stress, block, stream);
}

void operation_write(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = operand_block(stress, operation->a);
    unsigned stream = operand_stream(stress, operation->b);
    if (block == NULL || !work_is_legal(stress, block, stream))
        return;
    stress_stream_follows(stress, stream, stress_block_keeper(block));
    stress_users_follow(stress, block, stream);
    stress_block_write(stress, block, stream);
    stress_stream_follows(stress, stress_block_keeper(block), stream);
}

/* Another stream reads, and the owner waits until it has: nothing to tell the cache. */
void operation_lend(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = operand_block(stress, operation->a);
    unsigned stream = operand_stream(stress, operation->b);
    if (block == NULL || block->stream == MODEL_STREAMS ||
        !work_is_legal(stress, block, block->stream) ||
        stress_is_captured(stress, STREAM_BIT(stream)))
        return;
    stress_stream_follows(stress, stream, stress_block_keeper(block));
    stress_block_read(stress, block, stream);
    stress_stream_follows(stress, stress_block_keeper(block), stream);
}

/* Records the use with the cache, then submits the work. One in three writes. */
void operation_share(struct stress *stress, const struct operation *operation)
{
    enum { WRITES_ONE_IN = 3 };
    stress->sums.shares++;
    operation_use(stress, operation);
    if (operation->c % WRITES_ONE_IN == 0)
        operation_write(stress, operation);
    else
        operation_read(stress, operation);
}

/* Memory of a source cannot move: it has no handle of the cache. */
static uint64_t handle_at(const struct stress *stress, uint64_t address)
{
    struct vm *memory = &stress->cache->vm;
    uint64_t inner = vmm__sourced_inner(memory, address);
    return vmm__vm_chunk(memory, vmm__arena_granule(&memory->arena, inner))->handle;
}

/* The memory under a pinned block stays. Workers' caches change under their eyes. */
void stress_pin_verify(struct stress *stress, const struct model_block *block)
{
    uint64_t last = block->address + block->block_bytes - 1;
    if (!block->is_pinned || block->unit_bytes != 0 || stress->shared != NULL ||
        stress_is_unusable(stress))
        return;
    if (handle_at(stress, block->address) != block->handles[0] ||
        handle_at(stress, last) != block->handles[1])
        stress_trouble(stress, "pin: the memory under %#" PRIx64 " has changed", block->address);
}

void stress_pin_note(const struct stress *stress, struct model_block *block)
{
    if (stress->shared != NULL || !block->is_pinned || block->unit_bytes != 0)
        return;
    block->handles[0] = handle_at(stress, block->address);
    block->handles[1] = handle_at(stress, block->address + block->block_bytes - 1);
}

static void block_pin(struct stress *stress, uint8_t slot, bool is_pinned)
{
    struct model_block *block = operand_block(stress, slot);
    if (block == NULL)
        return;
    void *address = (void *)(uintptr_t)block->address;
    stress_enter(stress);
    vmm_status status =
        is_pinned ? vmm_pin(stress->cache, address) : vmm_unpin(stress->cache, address);
    stress_leave(stress);
    stress_pin_verify(stress, block);
    if (!stress_expect(stress, is_pinned ? "vmm_pin" : "vmm_unpin", status, STATUS_BIT(OK), 0))
        return;
    bool is_new = is_pinned && !block->is_pinned;
    model_pin(&stress->model, block, is_pinned);
    if (is_new)
        stress_pin_note(stress, block);
}

void operation_pin(struct stress *stress, const struct operation *operation)
{
    block_pin(stress, operation->a, true);
}

void operation_unpin(struct stress *stress, const struct operation *operation)
{
    block_pin(stress, operation->a, false);
}

/* ---- Passing on ------------------------------------------------------------------------------ */

/* Only this worker may submit work to its own stream. */
static bool may_leave(const struct stress *stress, const struct model_block *block)
{
    uint64_t own = STREAM_BIT(stress->stream_count - 1);
    return block->graph == 0 && !block->is_pinned &&
           ((block->users | STREAM_BIT(block->stream)) & own) == 0;
}

static struct model_block place_swap(struct stress_place *place, struct model_block block)
{
    (void)pthread_mutex_lock(&place->mutex);
    struct model_block found = place->block;
    place->block = block;
    (void)pthread_mutex_unlock(&place->mutex);
    return found;
}

/* Exchanges a block, or none, for what lies in a place. What another worker left is used at once. */
void operation_pass(struct stress *stress, const struct operation *operation)
{
    struct model_block *block = operand_block(stress, operation->a);
    struct model_block leaving = { .address = 0 };
    if (stress->shared == NULL || (block != NULL && !may_leave(stress, block)))
        return;
    if (block != NULL) {
        stress_block_read(stress, block, block->stream);
        leaving = *block;
        model_remove(&stress->model, block);
    }
    leaving = place_swap(&stress->shared->places[operation->b % STRESS_PLACES], leaving);
    stress->sums.passes++;
    if (leaving.address == 0)
        return;
    model_add(&stress->model, operation->a, &leaving);
    operation_share(stress, operation);
}

/* ---- Streams --------------------------------------------------------------------------------- */

void operation_delay(struct stress *stress, const struct operation *operation)
{
    unsigned stream = operand_stream(stress, operation->a);
    if (stress_is_captured(stress, STREAM_BIT(stream)) || stress->is_lost)
        return;
    stress_expect_ok(stress, "delay",
                     vmm__driver_delay(stress->driver, operation->number, stress->streams[stream]));
}

void operation_finish(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    if (stress->captured == 0 && !stress->is_lost)
        stress_work_verify(stress);
}
