/*
 * Regions when host memory runs out, when two threads begin one at once, and around routes of captures.
 *
 * The linker leads the library's calls of vmm__host_alloc() to the function __wrap_ below.
 */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "base/hostmem.h"
#include "torch/regions.h"
#include "vmmcache/torch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { TRIES_MOST = 64, POOLS_MOST = 64 };

/* ---- Allocations --------------------------------------------------------------------------- */

static _Thread_local bool is_counted;
static atomic_int allocations; /* of the counted thread, so far */
static atomic_int stall_at;    /* the counted thread waits in this one while it is not 0 */
static atomic_bool is_stalled;

void *__real_vmm__host_alloc(size_t count, size_t bytes_each);
void *__wrap_vmm__host_alloc(size_t count, size_t bytes_each);
void *__wrap_vmm__host_alloc(size_t count, size_t bytes_each)
{
    int number = is_counted ? atomic_fetch_add(&allocations, 1) + 1 : 0;
    while (number != 0 && atomic_load(&stall_at) == number) {
        atomic_store(&is_stalled, true);
        (void)usleep(1000);
    }
    return __real_vmm__host_alloc(count, bytes_each);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static size_t pools_count(void)
{
    vmm_torch_pool pools[POOLS_MOST];
    size_t count;
    assert_ok(vmm_torch_pools_list(0, pools, POOLS_MOST, &count));
    assert_in_range(count, 0, POOLS_MOST);
    return count;
}

static vmm_pool *pool_of_tag(const char *tag)
{
    vmm_torch_pool pools[POOLS_MOST];
    size_t count;
    vmm_pool *found = NULL;
    assert_ok(vmm_torch_pools_list(0, pools, POOLS_MOST, &count));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(pools[i].tag, tag) != 0)
            continue;
        assert_null(found);
        found = pools[i].pool;
    }
    return found;
}

static vmm_pool *graph_pool(void)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    options.kind = VMM_POOL_GRAPH;
    assert_ok(vmm_pool_create(vmm_torch_cache(0), &options, &pool));
    return pool;
}

static void no_region_is_left(void)
{
    assert_status(vmm_torch_region_end(0), VMM_ERR_INVALID_ARGUMENT);
}

static int begin_once(void)
{
    return vmm_torch_region_begin(0, "first", 0) != VMM_OK || vmm_torch_region_end(0) != VMM_OK;
}

/* ---- Host memory ----------------------------------------------------------------------------- */

TEST(a_region_that_cannot_begin_leaves_nothing)
{
    vmm_status status = VMM_ERR_HOST_OOM;
    size_t before = pools_count();
    for (uint64_t fails = 1; status != VMM_OK; fails++) {
        assert_in_range(fails, 1, TRIES_MOST);
        (void)vmm__host_fail_at(fails);
        status = vmm_torch_region_begin(0, "scarce", 0);
        (void)vmm__host_fail_at(0);
        if (status == VMM_OK)
            break;
        assert_status(status, VMM_ERR_HOST_OOM);
        no_region_is_left();
        assert_in_range(pools_count(), before, before + 1); /* the pool of the tag may stay */
    }
    assert_non_null(pool_of_tag("scarce"));
    assert_ok(vmm_torch_region_end(0));
    no_region_is_left();
}

TEST(a_pool_that_cannot_be_listed_is_an_error)
{
    vmm_pool *pool = graph_pool();
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    size_t before = pools_count();
    options.user_id = (vmm_pool_id){ 0, 9 };
    (void)vmm__host_fail_at(1);
    vmm_status status = vmm__torch_region_note(0, pool, &options);
    (void)vmm__host_fail_at(0);
    assert_status(status, VMM_ERR_HOST_OOM);
    assert_int_equal(pools_count(), before);
    assert_ok(vmm_pool_destroy(pool, 0));
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *region_thread(void *tag)
{
    is_counted = true;
    vmm_status status = vmm_torch_region_begin(0, tag, 0);
    if (status == VMM_OK)
        status = vmm_torch_region_end(0);
    return status == VMM_OK ? tag : NULL;
}

static void region_begin_in_thread(pthread_t *thread, char *tag)
{
    atomic_store(&allocations, 0);
    atomic_store(&is_stalled, false);
    assert_int_equal(pthread_create(thread, NULL, region_thread, tag), 0);
}

static void region_ended_in_thread(pthread_t thread)
{
    void *result;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
}

/* The last allocation of a region is its own record, the one before is that of its pool in the list. */
TEST(threads_that_begin_a_region_at_once_share_its_pool)
{
    pthread_t thread;
    char first[] = "counted";
    char second[] = "contended";
    region_begin_in_thread(&thread, first);
    region_ended_in_thread(thread);
    atomic_store(&stall_at, atomic_load(&allocations) - 1);
    region_begin_in_thread(&thread, second);
    while (!atomic_load(&is_stalled))
        (void)usleep(1000);
    assert_ok(vmm_torch_region_begin(0, "contended", 0));
    vmm_pool *pool = pool_of_tag("contended");
    atomic_store(&stall_at, 0);
    region_ended_in_thread(thread);
    assert_ptr_equal(pool_of_tag("contended"), pool);
    assert_ok(vmm_torch_region_end(0));
}

/* ---- Routes ---------------------------------------------------------------------------------- */

TEST(the_end_of_a_region_ends_routes_that_a_capture_left)
{
    vmm_pool *pool = graph_pool();
    assert_ok(vmm__torch_region_cover(0, pool)); /* no region: nothing to do */
    no_region_is_left();
    assert_ok(vmm_torch_region_begin(0, "routed", 0));
    assert_ok(vmm__torch_region_cover(0, pool));
    assert_ok(vmm__torch_region_cover(0, pool));
    assert_status(vmm_torch_region_end(1), VMM_ERR_INVALID_ARGUMENT);
    assert_ok(vmm_torch_region_end(0));
    no_region_is_left();
    vmm__torch_region_uncover(pool); /* it has gone with the region */
    assert_ok(vmm_pool_destroy(pool, 0));
}

TEST(only_the_innermost_route_is_uncovered)
{
    vmm_pool *pool = graph_pool();
    vmm_pool *other = graph_pool();
    assert_ok(vmm_torch_region_begin(0, "routed", 0));
    vmm__torch_region_uncover(pool);
    assert_ok(vmm__torch_region_cover(0, pool));
    vmm__torch_region_uncover(other);
    assert_ok(vmm_torch_region_begin(0, "inner", 0));
    vmm__torch_region_uncover(pool); /* a region lies above it */
    assert_ok(vmm_torch_region_end(0));
    (void)vmm__host_fail_at(1);
    vmm_status status = vmm__torch_region_cover(0, other);
    (void)vmm__host_fail_at(0);
    assert_status(status, VMM_ERR_HOST_OOM);
    vmm__torch_region_uncover(pool);
    assert_ok(vmm_torch_region_end(0));
    no_region_is_left();
    assert_ok(vmm_pool_destroy(pool, 0));
    assert_ok(vmm_pool_destroy(other, 0));
}

TEST(a_pool_that_is_awake_is_not_deferred)
{
    vmm_pool *pool = graph_pool();
    assert_false(vmm__torch_region_defer(pool));
    assert_ok(vmm_pool_sleep(&pool, 1, NULL, NULL));
    assert_false(vmm__torch_region_defer(pool)); /* nor one that is in no list */
    assert_ok(vmm_pool_wake(&pool, 1, NULL, NULL));
    assert_ok(vmm_pool_destroy(pool, 0));
}

int main(void)
{
    vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM);
    if (vmm_torch_configure(&config) != VMM_OK || begin_once() != 0)
        return 1;
    return tests_run(NULL, NULL);
}
