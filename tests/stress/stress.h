/*
 * Stress: runs operations on a cache and compares everything that the cache says with a model.
 *
 * Every use of a block is legal: what one stream does to it is ordered after what the others did, or told to the
 * cache. So whatever the sim driver objects to, and whatever differs from the model, is the library's fault. The
 * first trouble ends a run.
 *
 * One model and one set of operations serve all front ends: random runs, replay, minimiser and schedules (main.c),
 * libFuzzer (fuzz_target.c), faults (faults/), workers (workers/).
 *
 *   stress.c    runs, settings of the surroundings
 *   calls.c     calls under faults, what they may return and must leave
 *   caches.c    caches: created with drawn settings, emptied, destroyed
 *   blocks.c    blocks: allocated, given back
 *   uses.c      blocks: used in legal order, pinned, passed on
 *   undeclared.c  blocks: uses that the cache cannot know of
 *   grow.c      blocks with an alignment, reserved blocks, blocks of another size
 *   streams.c   streams: they end, and their handles come back
 *   graphs.c    graph pools, captures, graphs and their launches
 *   pools.c     general pools: requests, pushes, limits, uses
 *   sources.c   general pools with a source
 *   sleep.c     general pools that sleep and wake
 *   shares.c    blocks exported, imported into the same cache, and closed
 *   reports.c   statistics, blocks found by address, the smaller reports
 *   walks.c     walks and watches, against each other and the model
 *   debug.c     zeros, records, debug mode
 *   misuse.c    wrong pointers, missing arguments, wrong settings
 *   picture.c   what a call that fails must leave as it was
 *   control.c   negative controls
 *
 * May be called by: the front ends. Locks: one thread runs the operations of a struct stress. Workers have one each,
 * and share a cache (struct stress_shared).
 */
#ifndef STRESS_H
#define STRESS_H

#include "state.h"

/* Runs operations from a state without a cache to one without any. False: stress->trouble says what was wrong, and
 * *failed_at (may be NULL) which operation; the count: what came after the last. */
bool stress_run(struct stress *stress, const struct operation *operations, size_t count,
                size_t *failed_at);

/* One operation, on a cache that is there or is made for it. */
void stress_operation(struct stress *stress, const struct operation *operation);

/* A state without a cache. */
void stress_begin(struct stress *stress);

typedef void (*stress_step_fn)(void *context,
                               size_t index); /* called before each operation of a run */
void stress_on_step(stress_step_fn step, void *context);

void stress_trouble(struct stress *stress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A line of the listing: a comment below the operation that it belongs to. */
void stress_list(struct stress *stress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline bool stress_is_troubled(const struct stress *stress)
{
    return stress->trouble[0] != '\0';
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Stand around every call of the library: faults happen in there, and nowhere else. */
void stress_enter(struct stress *stress);
void stress_leave(struct stress *stress);

/*
 * What a call returned: one of `legal`, or, where a fault has happened meanwhile, of `faulty` and that fault's own
 * status. Returns whether it succeeded.
 */
bool stress_expect(struct stress *stress, const char *call, vmm_status status, unsigned legal,
                   unsigned faulty);

/* Makes a call that has no argument but the cache, and expects it to succeed unless a fault happens. Returns whether
 * it did. */
bool stress_call(struct stress *stress, const char *name, vmm_status (*call)(vmm_cache *cache));

/* A call of the tests' own on the driver. */
void stress_expect_ok(struct stress *stress, const char *call, vmm_status status);

/* Stand around work of the tests' own on the driver, which a fault may refuse. False: one has, and it was not done. */
void stress_work_enter(struct stress *stress);
bool stress_work_leave(struct stress *stress, const char *what, vmm_status status);

/* Live blocks may not be touched: the driver is lost, or has not mapped again what it had mapped. */
bool stress_is_unusable(const struct stress *stress);

static inline bool stress_is_sim(const struct stress *stress)
{
    return stress->kind == VMM_DRIVER_SIM;
}

/* A front end that makes calls of the system fail has the cache open its driver, as a program does. */
static inline bool stress_has_own_driver(const struct stress *stress)
{
    return stress->points != NULL && stress->points->covers_work;
}

#define STREAM_BIT(stream) (UINT64_C(1) << (stream))

static inline bool stress_is_captured(const struct stress *stress, uint64_t streams)
{
    return (stress->captured & streams) != 0;
}

/* Whether the driver has said, rightly or by a fault, that a stream is captured that was not announced. */
static inline bool stress_has_met_a_capture(const struct stress *stress)
{
    return stress->config.clock_kind != VMM_CLOCK_STREAMS &&
           !vmm__clock_is_context(&stress->cache->clock);
}

/* Has work finish in an order; see order_support.h. */
void stress_order_set(struct stress *stress, unsigned kind, uint64_t seed);

/* ---- caches.c --------------------------------------------------------------------------- */

/* A cache with settings drawn from an operation, after the one before has ended. */
void stress_open(struct stress *stress, const struct operation *operation);

/* What a struct stress knows of a cache that is new to it. */
void stress_state_begin(struct stress *stress);

/* Gives all blocks and graph pools back. */
void stress_give_all(struct stress *stress);

/* The same; then nothing may be left. */
void stress_empty(struct stress *stress);
void stress_close(struct stress *stress);

/* ---- sources.c -------------------------------------------------------------------------- */

/* Makes the region of the source, unless there is one. False: there is no memory for it. */
bool stress_source_open(struct stress *stress);

/* After the end of the cache. */
void stress_source_close(struct stress *stress);

vmm_segment_source stress_source(struct stress *stress, uint64_t bits);

/* ---- blocks.c -------------------------------------------------------------------------- */

/* Work on a block, if it may be touched. Reading compares it with what it was filled with last. */
void stress_block_read(struct stress *stress, const struct model_block *block, unsigned stream);
void stress_block_write(struct stress *stress, struct model_block *block, unsigned stream);

void stress_block_give(struct stress *stress, struct model_block *block);

/* What a request may return when no fault happens. */
unsigned stress_alloc_statuses(const struct stress *stress, uint64_t bytes);

/* The size of the block for a request; in a shareable pool it has whole granules. */
uint64_t stress_block_bytes(const struct stress *stress, uint64_t bytes, bool is_shareable);
bool stress_may_borrow(const struct stress *stress);

/* The largest request that is an object of a slab. */
enum { OBJECT_MOST_BYTES = 8192 };

/* An object of the default pool may have a slot of a larger class once memory had to be reclaimed. Notes its bytes. */
void stress_block_misfit(struct stress *stress, struct model_block *block);

/* A block of a pool, or of the default pool, as the model has it; and its start in the model: it is filled. */
struct model_block stress_block_make(const struct stress *stress, unsigned stream, uint64_t bytes,
                                     const struct model_tenant *tenant, const void *address);
/* Whether a block is of a pool that lends, not of the one that was asked; then notes which. */
bool stress_block_from_lender(struct stress *stress, struct model_block *block,
                              const struct model_tenant *asked);
void stress_block_note(struct stress *stress, unsigned slot, const struct model_block *made);

/* The operation `alloc` in a general pool, which is named in the call or pushed; NULL: in none. */
void stress_alloc(struct stress *stress, const struct operation *operation,
                  const struct model_tenant *tenant, bool is_named);

/* Lets later work of one stream come after all earlier work of another; neither is captured. */
void stress_stream_follows(struct stress *stress, unsigned later, unsigned earlier);

/* The same after the work of all that use a block. */
void stress_users_follow(struct stress *stress, const struct model_block *block, unsigned later);

/* The stream that comes after all work of the block's own stream that other streams must follow. */
static inline unsigned stress_block_keeper(const struct model_block *block)
{
    return block->stream == MODEL_STREAMS ? STRESS_HEIR : block->stream;
}

/* The memory under a pinned block is what it was when it was pinned. */
void stress_pin_verify(struct stress *stress, const struct model_block *block);
void stress_pin_note(const struct stress *stress, struct model_block *block);

/* All live blocks of streams that take work must hold what they were filled with. */
void stress_blocks_verify(struct stress *stress);

/* Waits for all work; every check must have found what it should. No stream may be captured. */
void stress_work_verify(struct stress *stress);

/* What the next fill writes: no two fills that can meet write the same. */
static inline uint32_t stress_word(struct stress *stress)
{
    enum { WORKER_SHIFT = 26 };
    uint32_t number = ++stress->words & ((UINT32_C(1) << WORKER_SHIFT) - 1);
    return (uint32_t)stress->worker << WORKER_SHIFT | number;
}

/* The program is asked for memory. */
int stress_pressure(void *context, vmm_pool *pool, size_t bytes);

/* ---- undeclared.c ---------------------------------------------------------------------- */

/* Lets later work of one stream come after that of a set of others. */
void stress_all_follow(struct stress *stress, unsigned later, uint64_t earlier);

/* A stream is about to get memory, maybe what it freed itself: the program orders that, as it must. */
void stress_own_follow(struct stress *stress, unsigned stream);

/* A block has been given back. */
void stress_undeclared_give(struct stress *stress, const struct model_block *block);

/* A block's own stream comes after all undeclared uses of it. */
void stress_undeclared_join(struct stress *stress, struct model_block *block);

/* A stream is about to end, or to be captured: the heir comes after its undeclared uses instead. */
void stress_undeclared_leave(struct stress *stress, unsigned stream);

/* ---- streams.c ------------------------------------------------------------------------- */

/* The handle of a stream that has none: no stream's. */
#define STRESS_NO_STREAM ((vmm_stream)(uintptr_t)UINT64_MAX)

/* Makes a stream anew if it has ended: the handle that was given back last is its. */
void stress_stream_renew(struct stress *stress, unsigned stream);

/* Ends a stream that the cache has been told of, never saw, or finds gone. */
void stress_stream_destroy(struct stress *stress, unsigned stream);

/* How many streams there are, strangers among them. */
static inline unsigned stress_streams(const struct stress *stress)
{
    return stress->stream_count + STRESS_STRANGERS;
}

/* ---- debug.c --------------------------------------------------------------------------- */

/* Draws vmm_config.zero and debug from the upper five bits of `memory`. */
void stress_debug_draw(struct stress *stress, unsigned drawn);

/* Whether the cache's chunks have canaries and quarantine, too. */
static inline bool stress_is_padded(const struct stress *stress)
{
    return stress->config.debug == VMM_DEBUG_ON;
}

/* A new block must read as zeros if the cache promises that. */
void stress_zeros_verify(struct stress *stress, const struct model_block *block);

/* A call has found that a pointer names no live block: the callback must have had the first one. */
void stress_misuse_noted(struct stress *stress);

/* Unless there was one, the callback has had none. */
void stress_misuse_none(struct stress *stress);

/* ---- graphs.c --------------------------------------------------------------------------- */

/* A block of a captured stream was handed out for a graph, or is given back. */
void stress_graph_take(struct stress *stress, unsigned slot, struct model_block *block);
void stress_graph_give(struct stress *stress, const struct model_block *block);

/* Ends all captures; and then the rest, and releases everything. */
void stress_captures_end(struct stress *stress);
void stress_pools_end(struct stress *stress);

/* ---- pools.c ---------------------------------------------------------------------------- */

/* The number by which a block names its general pool. */
static inline unsigned stress_tenant_number(const struct stress *stress,
                                            const struct model_tenant *tenant)
{
    return 1 + (unsigned)(tenant - stress->model.tenants);
}

/* The pool that was pushed last; NULL: none is. */
struct model_tenant *stress_pushed(struct stress *stress);

void stress_tenants_verify(struct stress *stress);
void stress_pool_destroy(struct stress *stress, struct model_tenant *tenant, bool adopts);

/* Pops all pools, also of a cache that is destroyed; and then destroys them. */
void stress_pushes_end(struct stress *stress);
void stress_tenants_end(struct stress *stress);

/* ---- reports.c, walks.c ---------------------------------------------------------- */

vmm_stats stress_stats(struct stress *stress);
void stress_stats_verify(struct stress *stress);

/* Walk, statistics, watch, invariants. */
void stress_verify(struct stress *stress);

/* What was found at an address must be what the model has there; NULL: nothing. */
void stress_item_verify(struct stress *stress, const char *call, const vmm_item *item,
                        const struct model_block *block);

/* What vmm_find() says of a block that has just been made. */
vmm_item stress_item_find(struct stress *stress, const void *address);

/* Makes a call that writes a text, which must have `wanted` in it. */
void stress_text_verify(struct stress *stress, const char *name,
                        vmm_status (*write)(vmm_cache *cache, FILE *out), const char *wanted);

void stress_watch_set(struct stress *stress, bool is_on);
void stress_watch_end(struct stress *stress);

/* ---- shares.c --------------------------------------------------------------------------- */

/* An exported block is about to be freed: imports of it follow all work on it. */
void stress_shared_give(struct stress *stress, const struct model_block *block);

/* Closes all shares; no import is live. Also of a cache that is destroyed, whose shares need no force. */
void stress_shares_end(struct stress *stress);

/* ---- Operations ------------------------------------------------------------------------------ */

#define OPERATION_DECLARED(name, random, schedule, worker, a, b, c, number, operand)               \
    void operation_##name(struct stress *stress, const struct operation *operation);
OPERATION_MAP(OPERATION_DECLARED)
#undef OPERATION_DECLARED

static inline unsigned operand_stream(struct stress *stress, uint8_t value)
{
    stress_stream_renew(stress, value % stress->stream_count);
    return value % stress->stream_count;
}

/* The default stream is not captured, nor does it end. A worker captures only the one that is its own. */
static inline unsigned operand_made_stream(struct stress *stress, uint8_t value)
{
    unsigned last = stress->stream_count - 1;
    unsigned stream = stress->shared != NULL ? last : 1 + value % last;
    stress_stream_renew(stress, stream);
    return stream;
}

/* The live block of a slot; NULL: there is none. */
static inline struct model_block *operand_block(struct stress *stress, uint8_t slot)
{
    struct model_block *block = &stress->model.blocks[slot];
    return block->is_live ? block : NULL;
}

#endif
