/* Seats: threads that come without one, and what they may do in functions that are called with locks held. */
#define _GNU_SOURCE
#include "support/sim_support.h"

#include "cache_on.h"
#include "policy/cache.h"

#include <pthread.h>

enum { PAIRS = 100 };

/* A thread whose first call calls the program, which calls the cache. */
struct newcomer {
    vmm_cache *cache, *beside; /* beside: used by the function before; NULL: nothing is */
    void *block;
    uintptr_t before, identity;
    vmm_status taking, giving;
};

static void pairs_run(vmm_cache *cache)
{
    void *block;
    for (int i = 0; i < PAIRS; i++) {
        assert_ok(vmm_alloc(cache, 4096, STREAM(1), &block));
        assert_ok(vmm_free(cache, block));
    }
}

static void listen(void *context, const char *line)
{
    struct newcomer *newcomer = context;
    void *block;
    if (strcmp(line, "now") != 0)
        return;
    if (newcomer->beside != NULL)
        pairs_run(newcomer->beside);
    newcomer->taking = vmm_alloc(newcomer->cache, 4096, STREAM(1), &block);
    newcomer->giving = vmm_free(newcomer->cache, newcomer->block);
}

static void *former_main(void *context)
{
    struct newcomer *newcomer = context;
    newcomer->before = vmm__thread_self();
    pairs_run(newcomer->cache);
    return NULL;
}

static void *newcomer_main(void *context)
{
    struct newcomer *newcomer = context;
    newcomer->identity = vmm__thread_self();
    (void)vmm_log_write(newcomer->cache, "now");
    return NULL;
}

static void thread_run(void *(*function)(void *context), struct newcomer *newcomer)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, newcomer), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void newcomer_open(struct driver *driver, struct newcomer *newcomer)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.log = listen;
    config.log_context = newcomer;
    assert_ok(vmm__cache_create_on(&config, driver, &newcomer->cache));
    assert_ok(vmm_alloc(newcomer->cache, 4096, STREAM(1), &newcomer->block));
}

/* The block is live still if the function was refused. */
static void newcomer_close(struct newcomer *newcomer)
{
    assert_int_equal(newcomer->taking, VMM_ERR_INVALID_ARGUMENT);
    assert_int_equal(newcomer->giving, VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_free(newcomer->cache, newcomer->block));
    assert_ok(vmm__cache_check(newcomer->cache));
    assert_ok(vmm_destroy(newcomer->cache));
}

static void an_heir_of_the_favourite_enters_nothing_in_a_function_with_locks_held(void **state)
{
    struct newcomer newcomer = { 0 };
    newcomer_open(*state, &newcomer);
    thread_run(former_main, &newcomer);
    thread_run(newcomer_main, &newcomer);
    assert_int_equal(newcomer.before, newcomer.identity);
    newcomer_close(&newcomer);
}

static void use_of_another_cache_gives_no_seat_in_a_function_with_locks_held(void **state)
{
    struct newcomer newcomer = { 0 };
    newcomer_open(*state, &newcomer);
    assert_ok(vmm__cache_create_on(NULL, *state, &newcomer.beside));
    thread_run(newcomer_main, &newcomer);
    assert_ok(vmm_destroy(newcomer.beside));
    newcomer_close(&newcomer);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SIM_TEST(an_heir_of_the_favourite_enters_nothing_in_a_function_with_locks_held),
        SIM_TEST(use_of_another_cache_gives_no_seat_in_a_function_with_locks_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
