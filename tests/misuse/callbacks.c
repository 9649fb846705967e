/* Functions of the program that call the cache that calls them, and visitors that end early. */
#define _GNU_SOURCE
#include "misuse.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define LOCKS "called by a function that the cache calls with locks held"

enum { NEST_CALLS = 3 };

static const vmm_pool_id nested_id = { 9, 9 };

/* One nest for a process: what the functions below know of the case. */
static struct {
    struct stage *_Atomic stage; /* NULL: nothing is tried, now or any more */
    vmm_cache *other;            /* to call instead; NULL: the stage's own */
    _Atomic unsigned calls;      /* of which the first few tried all that there is */
} nest;

static int visit_on(void *context, const vmm_item *item)
{
    (void)context;
    (void)item;
    return 0;
}

#define refused(call)                                                                              \
    do {                                                                                           \
        must_be(VMM_ERR_INVALID_ARGUMENT, call);                                                   \
        must(stage_error_says(LOCKS));                                                             \
    } while (0)

static void memory_is_refused(vmm_cache *cache, const struct stage *stage)
{
    void *out = &out;
    void *block = stage->blocks[6].address;
    size_t released = 77;
    for (unsigned stream = 0; stream < STAGE_STREAMS; stream++) {
        refused(vmm_alloc(cache, 512, stage->streams[stream], &out));
        refused(vmm_alloc(cache, 9 * MIB, stage->streams[stream], &out));
    }
    must(out == &out);
    for (unsigned i = 0; i < STAGE_BLOCKS; i++)
        refused(vmm_free(cache, stage->blocks[i].address));
    refused(vmm_free(cache, &out));
    refused(vmm_use(cache, block, stage->streams[1]));
    refused(vmm_pin(cache, block));
    refused(vmm_unpin(cache, stage->blocks[2].address));
    refused(vmm_trim(cache, 0, &released));
    must(released == 77);
    refused(vmm_wait(cache));
    refused(vmm_tick(cache));
    refused(vmm_stream_end(cache, stage->streams[1]));
    refused(vmm_limit_set(cache, 1));
}

static void reports_are_refused(vmm_cache *cache, const struct stage *stage)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_item item = VMM_ITEM_INIT;
    uint64_t bytes = 77;
    refused(vmm_stats_get(cache, &stats));
    refused(vmm_stats_reset_peak(cache));
    refused(vmm_device_memory(cache, &bytes, &bytes));
    must(bytes == 77);
    refused(vmm_summary_write(cache, stderr));
    refused(vmm_log_write(cache, "again"));
    refused(vmm_walk(cache, visit_on, NULL));
    refused(vmm_find(cache, stage->blocks[6].address, &item));
    refused(vmm_watch(cache, NULL, NULL));
    refused(vmm_guard_check(cache));
    refused(vmm_misuse_write(cache, stderr));
    refused(vmm_pool_begin(cache, nested_id, NULL, NULL));
    refused(vmm_pool_end(cache, nested_id));
    refused(vmm_pool_release(cache, nested_id));
    refused(vmm_destroy(cache));
    must(vmm_block_bytes(cache, 1) == 512);
}

/* Another cache may be called as ever. */
static void other_is_called(vmm_cache *cache)
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
        other_is_called(nest.other);
    } else if (nest.calls < NEST_CALLS) {
        memory_is_refused(stage->cache, stage);
        reports_are_refused(stage->cache, stage);
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

/* ---- What makes the cache call -------------------------------------------------------------- */

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
    must_ok(vmm_watch(stage->cache, NULL, NULL));
    return VMM_OK;
}

static vmm_status from_a_walk(struct stage *stage, uint64_t uses_other)
{
    nest_begin(stage, uses_other);
    must_ok(vmm_walk(stage->cache, nested_visit, NULL));
    return nest_end(stage);
}

static void with_log(struct stage *stage, uint64_t value)
{
    (void)value;
    vmm_config config = VMM_CONFIG_INIT;
    config.log = nested_log;
    stage_restart(stage, &config);
}

/* A growth, a trim, a failure and a line of the program's. */
static vmm_status from_the_log(struct stage *stage, uint64_t uses_other)
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

static vmm_status from_a_watch(struct stage *stage, uint64_t value)
{
    static vmm_change_kind wanted;
    wanted = (vmm_change_kind)(value & 15);
    nest_begin(stage, value >> 4);
    must_ok(vmm_watch(stage->cache, nested_watch, &wanted));
    for (int i = 0; i < 40; i++) { /* this thread becomes the favourite of the pool's lock */
        void *block = stage_take(stage, i < 39 ? 300000 : 30 * MIB, 0);
        must_ok(vmm_use(stage->cache, block, stage->streams[1]));
        must_ok(vmm__driver_delay(stage->driver, 1000, stage->streams[1]));
        must_ok(vmm_free(stage->cache, block));
    }
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm_trim(stage->cache, 0, NULL));
    return nest_end(stage);
}

static vmm_status from_a_filter(struct stage *stage, uint64_t uses_other)
{
    nest_begin(stage, uses_other);
    must_ok(vmm_pool_begin(stage->cache, nested_id, nested_filter, NULL));
    must_ok(vmm_free(stage->cache, stage_take(stage, 9 * MIB, 0)));
    must_ok(vmm_pool_end(stage->cache, nested_id));
    must_ok(vmm_pool_release(stage->cache, nested_id));
    return nest_end(stage);
}

static void with_clock(struct stage *stage, uint64_t has_thread)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.clock = nested_clock;
    config.decay_ms = has_thread ? 4 : 1000;
    config.decay_thread = has_thread != 0;
    stage_restart(stage, &config);
}

static vmm_status from_the_clock(struct stage *stage, uint64_t value)
{
    (void)value;
    nest_begin(stage, 0);
    must_ok(vmm_tick(stage->cache));
    for (int i = 0; i < 200; i++)
        must_ok(vmm_free(stage->cache, stage_take(stage, 70000, 0)));
    return nest_end(stage);
}

/* vmm_destroy() by the thread that it would wait for. */
static vmm_status from_the_thread(struct stage *stage, uint64_t value)
{
    (void)value;
    nest_begin(stage, 0);
    while (nest.calls < NEST_CALLS)
        (void)usleep(1000);
    return nest_end(stage);
}

/* ---- Pressure: may call all but one ------------------------------------------------------------- */

static void *hoard;

static int under_pressure(void *context, size_t bytes)
{
    const struct stage *stage = context;
    vmm_stats stats = VMM_STATS_INIT;
    void *block;
    (void)bytes;
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_destroy(stage->cache));
    must(stage_error_says("vmm_destroy: called by a function that the cache calls"));
    must_ok(vmm_alloc(stage->cache, 512, NULL, &block));
    must_ok(vmm_use(stage->cache, block, stage->streams[1]));
    must_ok(vmm_free(stage->cache, block));
    must_be(VMM_ERR_DEVICE_OOM, vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &block));
    must_ok(vmm_trim(stage->cache, 0, NULL));
    must_ok(vmm_walk(stage->cache, visit_on, NULL));
    must_ok(vmm_stats_get(stage->cache, &stats));
    if (hoard == NULL)
        return 0;
    must_ok(vmm_free(stage->cache, hoard));
    hoard = NULL;
    return 1;
}

static void with_pressure(struct stage *stage, uint64_t value)
{
    (void)value;
    vmm_config config = VMM_CONFIG_INIT;
    config.pressure = under_pressure;
    config.pressure_context = stage;
    stage_restart(stage, &config);
    hoard = stage_take(stage, 64 * MIB, 0);
}

static vmm_status from_pressure(struct stage *stage, uint64_t value)
{
    void *block = stage;
    (void)value;
    must_ok(vmm_alloc(stage->cache, 60 * MIB, NULL, &block));
    must(hoard == NULL);
    must_ok(vmm_free(stage->cache, block));
    return vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &block);
}

static int liar(void *context, size_t bytes)
{
    (void)context;
    (void)bytes;
    nest.calls++;
    return 1;
}

static void with_liar(struct stage *stage, uint64_t value)
{
    (void)value;
    vmm_config config = VMM_CONFIG_INIT;
    config.pressure = liar;
    stage_restart(stage, &config);
}

/* It says each time that it freed something: it is believed 64 times. */
static vmm_status from_a_liar(struct stage *stage, uint64_t value)
{
    void *block = stage;
    (void)value;
    vmm_status status = vmm_alloc(stage->cache, STAGE_LIMIT, NULL, &block);
    must(nest.calls == 64);
    return status;
}

/* ---- Visitors ----------------------------------------------------------------------------------- */

static int ends_after(void *context, const vmm_item *item)
{
    uint64_t *left = context;
    (void)item;
    return (*left)-- == 0 ? -1 : 0;
}

static vmm_status walk_that_ends(struct stage *stage, uint64_t items)
{
    for (uint64_t i = 0; i <= items; i++) {
        uint64_t left = i;
        must_ok(vmm_walk(stage->cache, ends_after, &left));
        must(left == UINT64_MAX);
    }
    return VMM_OK;
}

#define NESTED(name, prepare, misuse, value)                                                       \
    {                                                                                              \
        name, prepare, misuse, value, VMM_OK, NULL, true                                           \
    }

static const struct misuse cases[] = {
    NESTED("all calls from a visitor", NULL, from_a_walk, 0),
    NESTED("all calls from the log", with_log, from_the_log, 0),
    NESTED("all calls as memory comes", NULL, from_a_watch, VMM_CHANGE_MAP),
    NESTED("all calls as memory goes", NULL, from_a_watch, VMM_CHANGE_UNMAP),
    NESTED("all calls as a block waits", NULL, from_a_watch, VMM_CHANGE_WAIT),
    NESTED("all calls as a block comes free", NULL, from_a_watch, VMM_CHANGE_FREE),
    NESTED("all calls from a filter", NULL, from_a_filter, 0),
    NESTED("all calls from the clock", with_clock, from_the_clock, 0),
    NESTED("all calls from the thread's clock", with_clock, from_the_thread, 1),
    NESTED("another cache from a visitor", NULL, from_a_walk, 1),
    NESTED("another cache from the log", with_log, from_the_log, 1),
    NESTED("another cache as memory comes", NULL, from_a_watch, 16 | VMM_CHANGE_MAP),
    NESTED("another cache as a block waits", NULL, from_a_watch, 16 | VMM_CHANGE_WAIT),
    NESTED("another cache from a filter", NULL, from_a_filter, 1),
    { "vmm_destroy under pressure", with_pressure, from_pressure, 0, VMM_ERR_DEVICE_OOM, "limit",
      true },
    { "pressure that lies", with_liar, from_a_liar, 0, VMM_ERR_DEVICE_OOM, "limit", true },
    NESTED("a visitor that ends at each item", NULL, walk_that_ends, 25),
};

MISUSE_GROUP(misuse_callbacks, "callbacks");
