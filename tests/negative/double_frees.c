/* Blocks that are freed twice. */
#define _GNU_SOURCE
#include "negative.h"
#include "support/pool_calls.h"

#include <pthread.h>

#define NOT_LIVE "is not the start of a live block: it was freed before, or never allocated"
#define GONE     "no memory is mapped there"

static void victim_free(struct stage *stage)
{
    must_ok(vmm_free(stage->cache, stage->victim));
}

static void free_once(struct stage *stage, uint64_t bytes)
{
    stage->victim = stage_take(stage, bytes, 0);
    victim_free(stage);
}

static vmm_status free_again(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_free(stage->cache, stage->victim);
}

static void *thread_free(void *context)
{
    victim_free(context);
    return NULL;
}

static void free_by_a_thread(struct stage *stage, uint64_t bytes)
{
    pthread_t thread;
    stage->victim = stage_take(stage, bytes, 0);
    must(pthread_create(&thread, NULL, thread_free, stage) == 0);
    must(pthread_join(thread, NULL) == 0);
}

static void *thread_free_again(void *context)
{
    struct stage *stage = context;
    must_be(VMM_ERR_UNKNOWN_POINTER, vmm_free(stage->cache, stage->victim));
    must(stage_error_says(NOT_LIVE));
    return NULL;
}

/* The other thread's error is its own; the same call here gets the same error. */
static vmm_status free_again_in_a_thread(struct stage *stage, uint64_t value)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, thread_free_again, stage) == 0);
    must(pthread_join(thread, NULL) == 0);
    return free_again(stage, value);
}

/* Blocks of the same kind before and behind it are freed too, so that free memory is merged. */
static void free_among_others(struct stage *stage, uint64_t bytes)
{
    void *before = stage_take(stage, bytes, 0);
    stage->victim = stage_take(stage, bytes, 0);
    void *behind = stage_take(stage, bytes, 0);
    victim_free(stage);
    must_ok(vmm_free(stage->cache, before));
    must_ok(vmm_free(stage->cache, behind));
}

/* A larger live block covers the address, which lies inside that block. */
static void free_and_cover(struct stage *stage, uint64_t bytes)
{
    char *one = stage_take(stage, bytes, 0);
    char *two = stage_take(stage, bytes, 0);
    char *low = one < two ? one : two;
    must_ok(vmm_free(stage->cache, one));
    must_ok(vmm_free(stage->cache, two));
    stage->victim = one < two ? two : one;
    must(stage_take(stage, 2 * bytes, 0) == low);
}

static void free_and_trim(struct stage *stage, uint64_t bytes)
{
    free_once(stage, bytes);
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm_trim(stage->cache, 0, NULL));
}

/* The stream's other large block is freed first, so that all chunks of the victim are released. */
static void free_and_unmap(struct stage *stage, uint64_t bytes)
{
    struct stage_block *last = &stage->blocks[STAGE_BLOCKS - 1];
    must_ok(vmm_free(stage->cache, last->address));
    last->address = NULL;
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm_trim(stage->cache, 0, NULL));
    stage->victim = stage_take(stage, bytes, last->stream);
    victim_free(stage);
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm_trim(stage->cache, 0, NULL));
    must(stage_stats(stage).idle_bytes == 0);
}

static void free_while_used(struct stage *stage, uint64_t bytes)
{
    stage->victim = stage_take(stage, bytes, 0);
    must_ok(vmm__driver_delay(stage->driver, 20000000, stage->streams[1]));
    must_ok(vmm_record_stream(stage->cache, stage->victim, stage->streams[1]));
    victim_free(stage);
}

static void free_while_pinned(struct stage *stage, uint64_t bytes)
{
    stage->victim = stage_take(stage, bytes, 0);
    must_ok(vmm_pin(stage->cache, stage->victim));
    victim_free(stage);
}

static void free_without_caching(struct stage *stage, uint64_t bytes)
{
    stage_restart(stage, .no_caching = 1);
    free_and_trim(stage, bytes);
}

static void free_in_a_graph_pool(struct stage *stage, uint64_t is_released)
{
    vmm_pool_id id = { 4, 2 };
    must_ok(graph_pool_begin(stage->cache, id, NULL, NULL));
    free_once(stage, 70000);
    must_ok(graph_pool_end(stage->cache, id));
    if (is_released)
        must_ok(graph_pool_release(stage->cache, id));
}

/*
 * The cache cannot detect this: the address is the start of a live block, so the second free frees the new owner's
 * block. The cache stays consistent, and the owner's own free is refused.
 */
static vmm_status free_block_of_a_new_owner(struct stage *stage, uint64_t bytes)
{
    void *first = stage_take(stage, bytes, 0);
    must_ok(vmm_free(stage->cache, first));
    must(stage_take(stage, bytes, 0) == first);
    must_ok(vmm_free(stage->cache, first));
    return vmm_free(stage->cache, first);
}

/* Several threads free the same block at once: one free succeeds, the others are refused. */
enum { RACES = 200, RACERS = 4 };

struct race {
    struct stage *stage;
    pthread_barrier_t barrier;
    void *block;
    _Atomic unsigned freed;
};

static void *racer_main(void *context)
{
    struct race *race = context;
    for (int i = 0; i < RACES; i++) {
        if (pthread_barrier_wait(&race->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            race->block = stage_take(race->stage, 20000, 0);
            race->freed = 0;
        }
        (void)pthread_barrier_wait(&race->barrier);
        vmm_status status = vmm_free(race->stage->cache, race->block);
        must(status == VMM_OK || status == VMM_ERR_UNKNOWN_POINTER);
        race->freed += status == VMM_OK;
        (void)pthread_barrier_wait(&race->barrier);
        must(race->freed == 1);
    }
    return NULL;
}

static vmm_status free_all_at_once(struct stage *stage, uint64_t value)
{
    (void)value;
    struct race race = { .stage = stage };
    pthread_t threads[RACERS];
    must(pthread_barrier_init(&race.barrier, NULL, RACERS) == 0);
    for (int i = 0; i < RACERS; i++)
        must(pthread_create(&threads[i], NULL, racer_main, &race) == 0);
    for (int i = 0; i < RACERS; i++)
        must(pthread_join(threads[i], NULL) == 0);
    must(pthread_barrier_destroy(&race.barrier) == 0);
    return vmm_free(stage->cache, race.block);
}

#define AGAIN(name, prepare, value, words)                                                         \
    {                                                                                              \
        name, prepare, free_again, value, VMM_ERR_UNKNOWN_POINTER, words, false                    \
    }

static const struct negative_case cases[] = {
    AGAIN("of no bytes", free_once, 0, NOT_LIVE),
    AGAIN("of an object", free_once, 512, NOT_LIVE),
    AGAIN("of a small block", free_once, 70000, NOT_LIVE),
    AGAIN("of a large block", free_once, 3 * MIB, NOT_LIVE),
    AGAIN("object, first by another thread", free_by_a_thread, 512, NOT_LIVE),
    AGAIN("small block, first by another thread", free_by_a_thread, 70000, NOT_LIVE),
    AGAIN("large block, first by another thread", free_by_a_thread, 3 * MIB, NOT_LIVE),
    { "by another thread, then by this one", free_once, free_again_in_a_thread, 70000,
      VMM_ERR_UNKNOWN_POINTER, NOT_LIVE, false },
    AGAIN("object among others", free_among_others, 512, NOT_LIVE),
    AGAIN("small block among others", free_among_others, 70000, NOT_LIVE),
    AGAIN("large block among others", free_among_others, 3 * MIB, NOT_LIVE),
    AGAIN("small block after a trim", free_and_trim, 70000, "vmm_free"),
    AGAIN("object after a trim", free_and_trim, 512, "vmm_free"),
    AGAIN("large block after its unmap", free_and_unmap, 24 * MIB, GONE),
    AGAIN("object that others still use", free_while_used, 512, NOT_LIVE),
    AGAIN("large block that others still use", free_while_used, 3 * MIB, NOT_LIVE),
    AGAIN("pinned block", free_while_pinned, 70000, NOT_LIVE),
    AGAIN("large block inside a later block", free_and_cover, 8 * MIB, "it is byte"),
    AGAIN("without caching", free_without_caching, 70000, GONE),
    AGAIN("in a graph pool", free_in_a_graph_pool, 0, NOT_LIVE),
    AGAIN("in a released graph pool", free_in_a_graph_pool, 1, "vmm_free"),
    { "object that has a new owner", NULL, free_block_of_a_new_owner, 512, VMM_ERR_UNKNOWN_POINTER,
      NOT_LIVE, true },
    { "large block that has a new owner", NULL, free_block_of_a_new_owner, 3 * MIB,
      VMM_ERR_UNKNOWN_POINTER, NOT_LIVE, true },
    { "by four threads at once", NULL, free_all_at_once, 0, VMM_ERR_UNKNOWN_POINTER, NOT_LIVE,
      true },
};

NEGATIVE_GROUP(negative_double_frees, "double free");
