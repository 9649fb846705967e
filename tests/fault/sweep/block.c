/* The workload's blocks: every use of them is ordered, or told to the cache. See run.h. */
#include "run.h"

#include "point.h"
#include "policy/cache.h"

/* The program may be asked for memory by a call that has lost the device and has not ended yet. */
static bool is_lost(const struct run *run)
{
    return run->is_latched || vmm__driver_is_lost(run->driver);
}

bool run_is_unusable(const struct run *run)
{
    return is_lost(run) || run->cache->memory.astray > 0;
}

/* ---- Work -------------------------------------------------------------------------------------- */

/* The test's own calls are no points, but for those of the system: they start the host driver's threads. */
static void own_begin(const struct run *run)
{
    if (!run->chapter->is_host)
        sweep_sleep();
}

static void own_end(const struct run *run)
{
    if (!run->chapter->is_host)
        sweep_wake();
}

void run_follow(struct run *run, unsigned later, unsigned earlier)
{
    if (later == earlier || is_lost(run))
        return;
    sweep_sleep();
    run_expect(run, "event record",
               vmm__driver_event_record(run->driver, run->event, run->streams[earlier]));
    run_expect(run, "stream wait",
               vmm__driver_stream_wait(run->driver, run->streams[later], run->event));
    sweep_wake();
}

/* Work that the host driver could not take, as it had no thread for it, was not done. */
static bool was_done(struct run *run, const char *what, uint64_t fired, vmm_status status)
{
    if (status != VMM_OK && sweep_fired() > fired)
        return false;
    run_expect(run, what, status);
    return true;
}

void run_fill(struct run *run, const void *address, uint64_t bytes, uint32_t *word, unsigned stream)
{
    uint64_t fired = sweep_fired();
    if (run_is_unusable(run)) {
        *word = 0;
        return;
    }
    own_begin(run);
    if (!was_done(
            run, "fill", fired,
            vmm__driver_fill(run->driver, (uintptr_t)address, bytes, *word, run->streams[stream])))
        *word = 0;
    own_end(run);
}

void run_check(struct run *run, const void *address, uint64_t bytes, uint32_t word, unsigned stream)
{
    uint64_t fired = sweep_fired();
    if (run_is_unusable(run) || word == 0)
        return;
    own_begin(run);
    (void)was_done(
        run, "check", fired,
        vmm__driver_check(run->driver, (uintptr_t)address, bytes, word, run->streams[stream]));
    own_end(run);
}

static void users_followed(struct run *run, const struct holding *block, unsigned later)
{
    for (unsigned user = 0; user < RUN_STREAMS; user++) {
        if ((block->users >> user & 1) != 0)
            run_follow(run, later, user);
    }
}

static void block_read(struct run *run, const struct holding *block, unsigned stream)
{
    run_check(run, block->address, block->bytes, block->word, stream);
}

static void block_write(struct run *run, struct holding *block, unsigned stream)
{
    block->word = ++run->words;
    run_fill(run, block->address, block->bytes, &block->word, stream);
}

void blocks_verify(struct run *run)
{
    for (unsigned i = 0; i < run->chapter->slots; i++) {
        const struct holding *block = &run->blocks[i];
        if (block->address != NULL && block != run->leaving &&
            !run_is_captured(run, 1U << block->owner))
            block_read(run, block, block->owner);
    }
}

/* ---- Operations -------------------------------------------------------------------------------- */

uint64_t run_bytes_drawn(struct run *run)
{
    static const uint64_t most[] = { 600, 9000, 300000, 3 * MIB, 13 * MIB };
    static const uint64_t edges[] = { 0, 512, 8192, 8193, MIB, MIB + 1, 2 * MIB, 4 * MIB + 512 };
    if (run_dice(run, 12))
        return edges[random_next(&run->random) % (sizeof edges / sizeof edges[0])];
    return random_between(&run->random, 1, most[random_next(&run->random) % 5]) *
           run->chapter->scale;
}

void block_take(struct run *run, struct holding *block)
{
    uint64_t bytes = run_bytes_drawn(run);
    unsigned owner = (unsigned)(random_next(&run->random) % run->chapter->streams);
    if (run->live_bytes + bytes > run->chapter->live_bytes || run_is_captured(run, 1U << owner))
        return;
    void *out = run;
    if (!CALL(run, ALLOC_STATUSES, vmm_alloc(run->cache, bytes, run->streams[owner], &out))) {
        if (out != run)
            sweep_broken("vmm_alloc failed and wrote its result");
        return;
    }
    *block = (struct holding){ .address = out, .bytes = bytes, .owner = owner };
    run->live_bytes += bytes;
    if (bytes > 0)
        block_write(run, block, owner);
}

/* A free that fails leaves the block live. */
void block_give(struct run *run, struct holding *block)
{
    if (!run_is_captured(run, 1U << block->owner))
        block_read(run, block, block->owner);
    run->leaving = block;
    bool has_left = CALL(run, DRIVER_STATUSES, vmm_free(run->cache, block->address));
    run->leaving = NULL;
    if (!has_left)
        return;
    run->live_bytes -= block->bytes;
    *block = (struct holding){ .address = NULL };
}

/* The other stream only reads, and the owner waits until it has: nothing to tell the cache. */
static void block_lend(struct run *run, struct holding *block, unsigned user)
{
    run_follow(run, user, block->owner);
    block_read(run, block, user);
    run_follow(run, block->owner, user);
}

void block_use(struct run *run, struct holding *block)
{
    unsigned user = (unsigned)(random_next(&run->random) % run->chapter->streams);
    bool lends = run_dice(run, 4);
    bool writes = run_dice(run, 3);
    if (run_is_captured(run, block->users | 1U << block->owner | 1U << user) || block->bytes == 0)
        return;
    if (lends) {
        block_lend(run, block, user);
        return;
    }
    if (!CALL(run, STATUS_BIT(VMM_ERR_HOST_OOM),
              vmm_use(run->cache, block->address, run->streams[user])))
        return;
    run_follow(run, user, block->owner);
    if (writes) {
        users_followed(run, block, user);
        block_write(run, block, user);
        run_follow(run, block->owner, user);
    } else {
        block_read(run, block, user);
    }
    if (user != block->owner)
        block->users |= 1U << user;
}

void block_touch(struct run *run, struct holding *block)
{
    bool writes = run_dice(run, 4);
    if (run_is_captured(run, block->users | 1U << block->owner) || block->bytes == 0)
        return;
    if (writes) {
        users_followed(run, block, block->owner);
        block_write(run, block, block->owner);
    } else {
        block_read(run, block, block->owner);
    }
}

void block_pin(struct run *run, struct holding *block)
{
    bool done = block->is_pinned ? CALL(run, 0, vmm_unpin(run->cache, block->address))
                                 : CALL(run, 0, vmm_pin(run->cache, block->address));
    if (done)
        block->is_pinned = !block->is_pinned;
}

struct holding *block_any(struct run *run)
{
    enum { REACH = 32 };
    uint64_t start = random_next(&run->random);
    for (uint64_t i = 0; i < REACH; i++) {
        struct holding *block = &run->blocks[(start + i) % run->chapter->slots];
        if (block->address != NULL)
            return block;
    }
    return NULL;
}
