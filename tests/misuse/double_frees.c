/* Blocks that are given back twice. */
#define _GNU_SOURCE
#include "misuse.h"

#include <pthread.h>

#define NOT_LIVE "is not the start of a live block: it was freed before, or never handed out"
#define GONE     "no memory is there, or no more"

static void victim_free(struct stage *stage)
{
    must_ok(vmm_free(stage->cache, stage->victim));
}

static void freed_once(struct stage *stage, uint64_t bytes)
{
    stage->victim = stage_take(stage, bytes, 0);
    victim_free(stage);
}

static vmm_status free_again(struct stage *stage, uint64_t value)
{
    (void)value;
    return vmm_free(stage->cache, stage->victim);
}

static void *thread_frees(void *context)
{
    victim_free(context);
    return NULL;
}

static void freed_by_a_thread(struct stage *stage, uint64_t bytes)
{
    pthread_t thread;
    stage->victim = stage_take(stage, bytes, 0);
    must(pthread_create(&thread, NULL, thread_frees, stage) == 0);
    must(pthread_join(thread, NULL) == 0);
}

static void *thread_frees_again(void *context)
{
    struct stage *stage = context;
    must_be(VMM_ERR_UNKNOWN_POINTER, vmm_free(stage->cache, stage->victim));
    must(stage_error_says(NOT_LIVE));
    return NULL;
}

/* Its own error is the thread's; this one's then is the same. */
static vmm_status free_again_in_a_thread(struct stage *stage, uint64_t value)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, thread_frees_again, stage) == 0);
    must(pthread_join(thread, NULL) == 0);
    return free_again(stage, value);
}

/* Others of its kind are freed between, before and behind it: what is free has joined. */
static void freed_among_others(struct stage *stage, uint64_t bytes)
{
    void *before = stage_take(stage, bytes, 0);
    stage->victim = stage_take(stage, bytes, 0);
    void *behind = stage_take(stage, bytes, 0);
    victim_free(stage);
    must_ok(vmm_free(stage->cache, before));
    must_ok(vmm_free(stage->cache, behind));
}

/* A larger block lies over it by now: it is a place inside of that. */
static void freed_and_covered(struct stage *stage, uint64_t bytes)
{
    char *one = stage_take(stage, bytes, 0);
    char *two = stage_take(stage, bytes, 0);
    char *low = one < two ? one : two;
    must_ok(vmm_free(stage->cache, one));
    must_ok(vmm_free(stage->cache, two));
    stage->victim = one < two ? two : one;
    must(stage_take(stage, 2 * bytes, 0) == low);
}

static void freed_and_trimmed(struct stage *stage, uint64_t bytes)
{
    freed_once(stage, bytes);
    must_ok(vmm_wait(stage->cache));
    must_ok(vmm_trim(stage->cache, 0, NULL));
}

/* The stream's other large block goes first, so that all chunks of the victim go back. */
static void freed_and_unmapped(struct stage *stage, uint64_t bytes)
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

static void freed_while_used(struct stage *stage, uint64_t bytes)
{
    stage->victim = stage_take(stage, bytes, 0);
    must_ok(vmm__driver_delay(stage->driver, 20000000, stage->streams[1]));
    must_ok(vmm_use(stage->cache, stage->victim, stage->streams[1]));
    victim_free(stage);
}

static void freed_while_pinned(struct stage *stage, uint64_t bytes)
{
    stage->victim = stage_take(stage, bytes, 0);
    must_ok(vmm_pin(stage->cache, stage->victim));
    victim_free(stage);
}

static void freed_without_caching(struct stage *stage, uint64_t bytes)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.no_caching = 1;
    stage_restart(stage, &config);
    freed_once(stage, bytes);
}

static void freed_in_a_private_pool(struct stage *stage, uint64_t is_released)
{
    vmm_pool_id id = { 4, 2 };
    must_ok(vmm_pool_begin(stage->cache, id, NULL, NULL));
    freed_once(stage, 70000);
    must_ok(vmm_pool_end(stage->cache, id));
    if (is_released)
        must_ok(vmm_pool_release(stage->cache, id));
}

/*
 * Nobody can tell: the address is a live block's, whose new owner loses it. The cache stays whole, and the
 * owner's own free is refused in turn.
 */
static vmm_status free_what_is_another_s(struct stage *stage, uint64_t bytes)
{
    void *first = stage_take(stage, bytes, 0);
    must_ok(vmm_free(stage->cache, first));
    must(stage_take(stage, bytes, 0) == first);
    must_ok(vmm_free(stage->cache, first));
    return vmm_free(stage->cache, first);
}

/* Every pair of threads that free the same block: one has it, the other is refused. */
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

static const struct misuse cases[] = {
    AGAIN("of no bytes", freed_once, 0, NOT_LIVE),
    AGAIN("of an object", freed_once, 512, NOT_LIVE),
    AGAIN("of a small block", freed_once, 70000, NOT_LIVE),
    AGAIN("of a large block", freed_once, 3 * MIB, NOT_LIVE),
    AGAIN("object, first by another thread", freed_by_a_thread, 512, NOT_LIVE),
    AGAIN("small block, first by another thread", freed_by_a_thread, 70000, NOT_LIVE),
    AGAIN("large block, first by another thread", freed_by_a_thread, 3 * MIB, NOT_LIVE),
    { "by another thread, and by this", freed_once, free_again_in_a_thread, 70000,
      VMM_ERR_UNKNOWN_POINTER, NOT_LIVE, false },
    AGAIN("object among others", freed_among_others, 512, NOT_LIVE),
    AGAIN("small block among others", freed_among_others, 70000, NOT_LIVE),
    AGAIN("large block among others", freed_among_others, 3 * MIB, NOT_LIVE),
    AGAIN("small block after a trim", freed_and_trimmed, 70000, "vmm_free"),
    AGAIN("object after a trim", freed_and_trimmed, 512, "vmm_free"),
    AGAIN("large block that was unmapped", freed_and_unmapped, 24 * MIB, GONE),
    AGAIN("object that others still use", freed_while_used, 512, NOT_LIVE),
    AGAIN("large block that others still use", freed_while_used, 3 * MIB, NOT_LIVE),
    AGAIN("pinned block", freed_while_pinned, 70000, NOT_LIVE),
    AGAIN("large block that lies in another by now", freed_and_covered, 8 * MIB, "it is byte"),
    AGAIN("without caching", freed_without_caching, 70000, GONE),
    AGAIN("in a private pool", freed_in_a_private_pool, 0, NOT_LIVE),
    AGAIN("in a private pool that is released", freed_in_a_private_pool, 1, "vmm_free"),
    { "object that is another's by now", NULL, free_what_is_another_s, 512, VMM_ERR_UNKNOWN_POINTER,
      NOT_LIVE, true },
    { "large block that is another's by now", NULL, free_what_is_another_s, 3 * MIB,
      VMM_ERR_UNKNOWN_POINTER, NOT_LIVE, true },
    { "by four threads at once", NULL, free_all_at_once, 0, VMM_ERR_UNKNOWN_POINTER, NOT_LIVE,
      true },
};

MISUSE_GROUP(misuse_double_frees, "double free");
