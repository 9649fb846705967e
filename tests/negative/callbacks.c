/* Functions of the program that call the cache which is calling them, and visitors that stop early. */
#define _GNU_SOURCE
#include "cache/cache.h"
#include "calls.h"
#include "negative.h"
#include "support/pool_calls.h"
#include "support/visit_support.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define LOCKS   "called from a callback that the cache runs with its locks held"
#define DESTROY "vmm_destroy: called inside a callback of this cache"

enum { NEST_CALLS = 3 };

static const vmm_pool_id nested_id = { 9, 9 };

/* What the callbacks below know of the running case; a process runs one case. */
static struct {
    struct stage *_Atomic stage; /* NULL: the callbacks do nothing */
    vmm_cache *other;            /* the cache to call; NULL: the stage's own */
    _Atomic unsigned calls;      /* the first NEST_CALLS try every function */
} nest;

#define must_refuse(call)                                                                          \
    do {                                                                                           \
        must_be(VMM_ERR_INVALID_ARGUMENT, call);                                                   \
        must(stage_error_says(LOCKS));                                                             \
    } while (0)

/* Calls that the table of calls makes in one way only. */
static void other_arguments_try(vmm_cache *cache, const struct stage *stage)
{
    void *out = &out;
    vmm_pool *pool = cache->pool.handle;
    vmm_sleep_options offer = VMM_SLEEP_OPTIONS_INIT;
    offer.on_claim = 1;
    for (unsigned stream = 0; stream < STAGE_STREAMS; stream++) {
        must_refuse(vmm_alloc(cache, 512, stage->streams[stream], &out));
        must_refuse(vmm_alloc(cache, 9 * MIB, stage->streams[stream], &out));
    }
    must(out == &out);
    for (unsigned i = 0; i < STAGE_BLOCKS; i++)
        must_refuse(vmm_free(cache, stage->blocks[i].address));
    must_refuse(vmm_free(cache, &out));
    must_refuse(vmm_unpin(cache, stage->blocks[2].address));
    must_refuse(vmm_pool_sleep(&pool, 1, NULL, NULL));
    must_refuse(vmm_pool_sleep(&pool, 1, &offer, NULL));
    must(vmm_cache_pool(cache) == NULL);
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_destroy(cache));
    must(stage_error_says(DESTROY));
    must(vmm_block_bytes(cache, 1) == 512);
}

static void all_calls_try(vmm_cache *cache, const struct stage *stage)
{
    struct call_target target = { cache, cache->pool.handle, stage->blocks[6].address,
                                  stage->streams[1] };
    for (enum call call = 0; call < CALLS; call++)
        must_refuse(call_make(call, &target));
    other_arguments_try(cache, stage);
}

/* Calls of another cache work as usual. */
static void other_cache_use(vmm_cache *cache)
{
    void *block;
    vmm_stats stats = VMM_STATS_INIT;
    for (int i = 0; i < 40; i++) {
        must_ok(vmm_alloc(cache, i % 2 == 0 ? 512 : 3 * MIB, NULL, &block));
        must_ok(vmm_free(cache, block));
    }
    must_ok(vmm_trim(cache, 0, NULL));
    must_ok(vmm_stats_get(cache, &stats));
    must(stats.allocations.current == 0);
}

static void nest_call(void)
{
    const struct stage *stage = nest.stage;
    if (nest.other != NULL) {
        other_cache_use(nest.other);
    } else if (nest.calls < NEST_CALLS) {
        all_calls_try(stage->cache, stage);
    }
    nest.calls++;
}

static int nested_visit(void *context, const vmm_item *item)
{
    (void)context;
    (void)item;
    nest_call();
    return 0;
}

static void nested_log(void *context, const char *line)
{
    (void)context;
    (void)line;
    if (nest.stage != NULL)
        nest_call();
}

static void nested_watch(void *context, const vmm_change *change)
{
    const vmm_change_kind *wanted = context;
    if (change->kind == *wanted)
        nest_call();
}

static int nested_filter(void *context, vmm_stream stream)
{
    (void)context;
    (void)stream;
    nest_call();
    return 0;
}

static uint64_t nested_clock(void *context)
{
    static _Atomic uint64_t now_ns;
    (void)context;
    if (nest.stage != NULL)
        nest_call();
    return atomic_fetch_add(&now_ns, UINT64_C(10000000000));
}

/* ---- Operations that make the cache call back ----------------------------------------------- */

static void nest_begin(struct stage *stage, uint64_t uses_other)
{
    if (uses_other) {
        must_ok(vmm__cache_create_on(NULL, stage->driver, &stage->other));
        nest.other = stage->other;
    }
    nest.stage = stage;
}

static vmm_status nest_end(struct stage *stage)
{
    must(nest.calls > 0);
    nest.stage = NULL;
    must_ok(vmm_listen(stage->cache, NULL, NULL));
    return VMM_OK;
}

static vmm_status call_from_a_visitor(struct stage *stage, uint64_t uses_other)
{
    nest_begin(stage, uses_other);
    must_ok(vmm_walk(stage->cache, nested_visit, NULL));
    return nest_end(stage);
}

static void prepare_log(struct stage *stage, uint64_t value)
{
    (void)value;
    stage_restart(stage, .log = nested_log);
}

/* A growth, a trim, a failure and a line of the program each write to the log. */
static vmm_status call_from_the_log(struct stage *stage, uint64_t uses_other)
{
    void *out = stage;
    nest_begin(stage, uses_other);
    must_ok(vmm_free(stage->cache, stage_take(stage, 40 * MIB, 0)));
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm_trim(stage->cache, 0, NULL));
    must_be(VMM_ERR_DEVICE_OOM, vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &out));
    nest.calls = 0;
    must_ok(vmm_log_write(stage->cache, "one\ntwo"));
    return nest_end(stage);
}

static vmm_status call_from_a_listener(struct stage *stage, uint64_t value)
{
    static vmm_change_kind wanted;
    wanted = (vmm_change_kind)(value & 15);
    nest_begin(stage, value >> 4);
    must_ok(vmm_listen(stage->cache, nested_watch, &wanted));
    for (int i = 0; i < 40; i++) { /* this thread becomes the bias owner of the pool's lock */
        void *block = stage_take(stage, i < 39 ? 300000 : 30 * MIB, 0);
        must_ok(vmm_record_stream(stage->cache, block, stage->streams[1]));
        must_ok(vmm__driver_delay(stage->driver, 1000, stage->streams[1]));
        must_ok(vmm_free(stage->cache, block));
    }
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm_trim(stage->cache, 0, NULL));
    return nest_end(stage);
}

static vmm_status call_from_a_filter(struct stage *stage, uint64_t uses_other)
{
    nest_begin(stage, uses_other);
    must_ok(graph_pool_begin(stage->cache, nested_id, nested_filter, NULL));
    must_ok(vmm_free(stage->cache, stage_take(stage, 9 * MIB, 0)));
    must_ok(graph_pool_end(stage->cache, nested_id));
    must_ok(graph_pool_release(stage->cache, nested_id));
    return nest_end(stage);
}

static void prepare_clock(struct stage *stage, uint64_t has_thread)
{
    stage_restart(stage, .clock = nested_clock, .decay_ms = has_thread ? 4 : 1000,
                  .decay_thread = has_thread != 0 ? VMM_ON : VMM_OFF);
}

static vmm_status call_from_the_clock(struct stage *stage, uint64_t value)
{
    (void)value;
    nest_begin(stage, 0);
    must_ok(vmm_poll(stage->cache));
    for (int i = 0; i < 200; i++)
        must_ok(vmm_free(stage->cache, stage_take(stage, 70000, 0)));
    return nest_end(stage);
}

/* The clock is called by the background thread, for which vmm_destroy() would wait. */
static vmm_status call_from_the_thread(struct stage *stage, uint64_t value)
{
    (void)value;
    nest_begin(stage, 0);
    while (nest.calls < NEST_CALLS)
        (void)usleep(1000);
    return nest_end(stage);
}

/* ---- Pressure functions: may call anything except vmm_destroy() ---------------------------------- */

static void *spare_block;

static int pressure_handle(void *context, vmm_pool *pool, size_t bytes)
{
    (void)pool;
    const struct stage *stage = context;
    vmm_stats stats = VMM_STATS_INIT;
    void *block;
    (void)bytes;
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_destroy(stage->cache));
    must(stage_error_says(DESTROY));
    must_ok(vmm_alloc(stage->cache, 512, NULL, &block));
    must_ok(vmm_record_stream(stage->cache, block, stage->streams[1]));
    must_ok(vmm_free(stage->cache, block));
    must_be(VMM_ERR_DEVICE_OOM, vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &block));
    must_ok(vmm_trim(stage->cache, 0, NULL));
    must_ok(vmm_walk(stage->cache, visit_continue, NULL));
    must_ok(vmm_stats_get(stage->cache, &stats));
    if (spare_block == NULL)
        return 0;
    must_ok(vmm_free(stage->cache, spare_block));
    spare_block = NULL;
    return 1;
}

static void prepare_pressure(struct stage *stage, uint64_t value)
{
    (void)value;
    stage_restart(stage, .pressure = pressure_handle, .pressure_context = stage);
    spare_block = stage_take(stage, 64 * MIB, 0);
}

static vmm_status call_from_pressure(struct stage *stage, uint64_t value)
{
    void *block = stage;
    (void)value;
    must_ok(vmm_alloc(stage->cache, 60 * MIB, NULL, &block));
    must(spare_block == NULL);
    must_ok(vmm_free(stage->cache, block));
    return vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &block);
}

static int pressure_free_nothing(void *context, vmm_pool *pool, size_t bytes)
{
    (void)pool;
    (void)context;
    (void)bytes;
    nest.calls++;
    return 1;
}

static void prepare_pressure_free_nothing(struct stage *stage, uint64_t value)
{
    (void)value;
    stage_restart(stage, .pressure = pressure_free_nothing);
}

/* The function always claims that it freed memory; the cache retries 64 times. */
static vmm_status call_pressure_free_nothing(struct stage *stage, uint64_t value)
{
    void *block = stage;
    (void)value;
    vmm_status status = vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &block);
    must(nest.calls == 64);
    return status;
}

/* ---- Visitors ----------------------------------------------------------------------------------- */

static int visit_stop_after(void *context, const vmm_item *item)
{
    uint64_t *left = context;
    (void)item;
    return (*left)-- == 0 ? -1 : 0;
}

static vmm_status walk_stop_early(struct stage *stage, uint64_t items)
{
    for (uint64_t i = 0; i <= items; i++) {
        uint64_t left = i;
        must_ok(vmm_walk(stage->cache, visit_stop_after, &left));
        must(left == UINT64_MAX);
    }
    return VMM_OK;
}

#define NESTED(name, prepare, call, value)                                                         \
    {                                                                                              \
        name, prepare, call, value, VMM_OK, NULL, true                                             \
    }

static const struct negative_case cases[] = {
    NESTED("all calls from a visitor", NULL, call_from_a_visitor, 0),
    NESTED("all calls from the log", prepare_log, call_from_the_log, 0),
    NESTED("all calls when memory is mapped", NULL, call_from_a_listener, VMM_CHANGE_MAP),
    NESTED("all calls when memory is unmapped", NULL, call_from_a_listener, VMM_CHANGE_UNMAP),
    NESTED("all calls when a block waits", NULL, call_from_a_listener, VMM_CHANGE_WAIT),
    NESTED("all calls when a block becomes free", NULL, call_from_a_listener, VMM_CHANGE_FREE),
    NESTED("all calls from a filter", NULL, call_from_a_filter, 0),
    NESTED("all calls from the clock", prepare_clock, call_from_the_clock, 0),
    NESTED("all calls from the background thread's clock", prepare_clock, call_from_the_thread, 1),
    NESTED("another cache from a visitor", NULL, call_from_a_visitor, 1),
    NESTED("another cache from the log", prepare_log, call_from_the_log, 1),
    NESTED("another cache when memory is mapped", NULL, call_from_a_listener, 16 | VMM_CHANGE_MAP),
    NESTED("another cache when a block waits", NULL, call_from_a_listener, 16 | VMM_CHANGE_WAIT),
    NESTED("another cache from a filter", NULL, call_from_a_filter, 1),
    { "vmm_destroy under pressure", prepare_pressure, call_from_pressure, 0, VMM_ERR_DEVICE_OOM,
      "limit", true },
    { "a pressure function that frees nothing", prepare_pressure_free_nothing,
      call_pressure_free_nothing, 0, VMM_ERR_DEVICE_OOM, "limit", true },
    NESTED("a visitor that stops at each item", NULL, walk_stop_early, 25),
};

NEGATIVE_GROUP(negative_callbacks, "callbacks");
