/* Plans of views: what test_plan_random.c leaves out. Work that has not finished, chunks that wait for their mapping,
 * and places that chunks give up. */
#include "support/policy_support.h"

#include "cache/grow/evict.h"
#include "cache/grow/plan.h"

static struct plan plan_when(struct scene *scene, uint64_t bytes, enum idle_when when)
{
    struct heap *heap = &scene->lane->large;
    scene_lock(scene, heap);
    vmm__request_lanes_lock(scene->cache, &(struct request){ .heap = heap });
    struct plan plan = vmm__plan(scene->cache, heap, bytes, 0, when);
    vmm__request_lanes_unlock(scene->cache, heap);
    scene_unlock(scene, heap);
    return plan;
}

static struct plan plan_of(struct scene *scene, uint64_t bytes)
{
    return plan_when(scene, bytes, IDLE_FINISHED);
}

static struct chunk *idle_at(struct scene *scene, uint64_t granule, uint32_t count)
{
    (void)extent(scene, &scene->lane->large, granule, count, count);
    return scene_chunk(scene, granule);
}

POLICY_TEST(idle_chunks_of_others_serve_after_their_work)
{
    struct heap *other = &scene->other->large;
    struct plan plan;
    struct block *block = block_make_live(other, extent(scene, other, 20, 4, 2), 4 * GRANULE);
    (void)block_free_busy(scene, other, block);
    plan = plan_when(scene, 4 * GRANULE, IDLE_FINISHED);
    assert_int_equal(plan.new_bytes, 4 * GRANULE);
    plan = plan_when(scene, 4 * GRANULE, IDLE_FOLLOW);
    assert_int_equal(plan.new_bytes, 0);
    assert_ptr_equal(plan.chunks[0].chunk, scene_chunk(scene, 20));
    assert_ptr_equal(plan.chunks[1].chunk, scene_chunk(scene, 22));
    assert_ptr_equal(plan.chunks[0].heap, other);
    assert_int_equal(mismatches(scene->driver), 0); /* the work ends */
    plan = plan_of(scene, 4 * GRANULE);
    assert_int_equal(plan.new_bytes, 0);
}

POLICY_TEST(chunks_that_are_remap_pending_do_not_serve)
{
    struct chunk *chunk = idle_at(scene, 4, 2);
    chunk->is_mapped = false;
    struct plan plan = plan_of(scene, 2 * GRANULE);
    chunk->is_mapped = true;
    assert_int_equal(plan.count, 0);
}

/* ---- The cap of places ----------------------------------------------------------------------- */

/* A chunk of one granule with all the places that it may have, at 2, 4, 6 and so on. Later ones were used earlier. */
static struct chunk *crowd_create(struct scene *scene)
{
    struct vm *vm = &scene->cache->vm;
    struct chunk *chunk = idle_at(scene, 0, 1);
    for (uint64_t i = 0; i < PLACES_USUAL; i++) {
        uint64_t at = 2 + 2 * i;
        scene->cache->views.last_view++;
        assert_ok(vmm__views_open(&scene->lane->large));
        vmm__arena_take(&vm->arena, at, 1);
        assert_ok(vmm__place_map(vm, chunk, at));
        assert_ok(vmm__vm_access(vm, at, 1));
        vmm__views_place_add(&scene->lane->large, chunk, at, scene->cache->views.last_view);
        scene->cache->views.places[at].turn = 100 - i;
    }
    assert_ok(vmm__cache_check(scene->cache));
    return chunk;
}

enum { OLDEST = 2 * PLACES_USUAL, OLDER = OLDEST - 2 };

/* Makes the plan's chunks give up their places, as a stitch does. */
static void places_give(struct scene *scene, const struct plan *plan)
{
    scene_lock(scene, &scene->lane->large);
    for (uint32_t i = 0; i < plan->count; i++) {
        if (plan->chunks[i].gives_place)
            (void)vmm__evict(scene->cache, &scene->lane->large, plan->chunks[i].chunk, false);
    }
    scene_unlock(scene, &scene->lane->large);
}

/* Plans for two granules; returns whether the chunk is of use, in a new row or at the end of one that it is in. */
static bool crowd_serves(struct scene *scene)
{
    struct plan plan = plan_of(scene, 2 * GRANULE);
    bool serves = plan.new_bytes == GRANULE;
    assert_true(serves || plan.new_bytes == 2 * GRANULE);
    places_give(scene, &plan);
    return serves;
}

/* The same when the chunk has as many places as it may have at most. */
static bool crowd_serves_at_bound(struct scene *scene, struct chunk *chunk)
{
    uint32_t places = chunk->places;
    chunk->places = PLACES_MOST;
    bool serves = crowd_serves(scene);
    chunk->places = places;
    return serves;
}

/* A plan only says which chunks give up a place: other streams' locks are held while it is made. */
POLICY_TEST(a_plan_evicts_nothing_itself)
{
    struct chunk *chunk = crowd_create(scene);
    struct plan plan = plan_of(scene, 2 * GRANULE);
    assert_int_equal(plan.count, 1);
    assert_true(plan.chunks[0].gives_place);
    assert_int_equal(chunk->places, PLACES_USUAL);
}

POLICY_TEST(the_cap_evicts_the_place_used_the_longest_ago)
{
    struct chunk *chunk = crowd_create(scene);
    assert_true(crowd_serves(scene));
    assert_int_equal(chunk->places, PLACES_USUAL - 1);
    assert_null(scene_chunk(scene, OLDEST));
    assert_int_equal(scene->cache->counts.evictions, 1);
    assert_true(crowd_serves(scene)); /* below the cap nothing is evicted */
    assert_int_equal(chunk->places, PLACES_USUAL - 1);
    assert_int_equal(scene->cache->counts.evictions, 1);
}

/* Maps a chunk at a granule, as a place of a view that was used at `turn`. */
static void place_at(struct scene *scene, struct chunk *chunk, uint64_t granule, uint64_t view,
                     uint64_t turn)
{
    struct vm *vm = &scene->cache->vm;
    vmm__arena_take(&vm->arena, granule, 1);
    assert_ok(vmm__place_map(vm, chunk, granule));
    assert_ok(vmm__vm_access(vm, granule, 1));
    vmm__views_place_add(&scene->lane->large, chunk, granule, view);
    scene->cache->views.places[granule].turn = turn;
}

/* A chunk whose older place, at 21, is between places of two other chunks, at 20 and 22. */
struct old_row {
    struct chunk *chunk;
    struct chunk *left;
    struct chunk *right;
};

static struct old_row old_row_create(struct scene *scene)
{
    struct old_row row = { idle_at(scene, 0, 1), idle_at(scene, 4, 1), idle_at(scene, 8, 1) };
    scene->cache->views.last_view = 2;
    assert_ok(vmm__views_open(&scene->lane->large));
    place_at(scene, row.left, 20, 1, 5);
    place_at(scene, row.chunk, 21, 1, 5);
    place_at(scene, row.right, 22, 1, 5);
    place_at(scene, row.chunk, 30, 2, 6);
    assert_ok(vmm__cache_check(scene->cache));
    return row;
}

static void old_row_evict(struct scene *scene, const struct old_row *row)
{
    struct heap *heap = &scene->lane->large;
    scene_lock(scene, heap);
    assert_true(vmm__evict_may(scene->cache, heap, row->chunk));
    assert_true(vmm__evict(scene->cache, heap, row->chunk, false));
    scene_unlock(scene, heap);
}

POLICY_TEST(a_row_is_evicted_as_a_whole)
{
    struct old_row row = old_row_create(scene);
    old_row_evict(scene, &row);
    assert_int_equal(row.chunk->places, 1);
    assert_int_equal(row.left->places, 0);
    assert_int_equal(row.right->places, 0);
    assert_ptr_equal(scene_chunk(scene, 30), row.chunk);
    assert_int_equal(scene->cache->counts.evictions, 3);
    assert_ok(vmm__cache_check(scene->cache));
}

POLICY_TEST(places_in_use_stay_when_their_row_is_evicted)
{
    struct old_row row = old_row_create(scene);
    scene->cache->views.places[22].users = 1;
    old_row_evict(scene, &row);
    scene->cache->views.places[22].users = 0;
    assert_int_equal(row.chunk->places, 1);
    assert_int_equal(row.left->places, 0);
    assert_int_equal(row.right->places, 1);
    assert_int_equal(scene->cache->counts.evictions, 2);
    assert_ok(vmm__cache_check(scene->cache));
}

POLICY_TEST(a_place_in_use_is_not_evicted)
{
    struct chunk *chunk = crowd_create(scene);
    scene->cache->views.places[OLDEST].users = 1;
    assert_true(crowd_serves(scene));
    scene->cache->views.places[OLDEST].users = 0;
    assert_ptr_equal(scene_chunk(scene, OLDEST), chunk);
    assert_null(scene_chunk(scene, OLDER));
}

POLICY_TEST(without_an_unused_place_the_chunk_serves_up_to_the_bound)
{
    struct chunk *chunk = crowd_create(scene);
    for (uint64_t at = 2; at <= OLDEST; at += 2)
        scene->cache->views.places[at].users = 1;
    assert_true(crowd_serves(scene));
    assert_false(crowd_serves_at_bound(scene, chunk));
    for (uint64_t at = 2; at <= OLDEST; at += 2)
        scene->cache->views.places[at].users = 0;
    assert_int_equal(chunk->places, PLACES_USUAL);
}

POLICY_TEST(at_the_bound_a_chunk_gives_a_place_for_the_new_one)
{
    struct chunk *chunk = crowd_create(scene);
    chunk->places = PLACES_MOST;
    struct plan plan = plan_of(scene, 2 * GRANULE);
    chunk->places = PLACES_USUAL;
    assert_int_equal(plan.new_bytes, GRANULE);
    assert_true(plan.chunks[0].gives_place);
}

POLICY_TEST(a_place_with_unfinished_work_is_not_evicted)
{
    struct chunk *chunk = crowd_create(scene);
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    memory_fill(scene->driver, scene_address(scene, OLDEST), GRANULE, 1, STREAM(1));
    scene->cache->views.places[OLDEST].epoch = vmm__clock_now(scene->lane->clock);
    assert_true(crowd_serves(scene));
    assert_false(crowd_serves_at_bound(scene, chunk));
    assert_int_equal(chunk->places, PLACES_USUAL);
    assert_int_equal(mismatches(scene->driver), 0); /* the work ends */
    assert_true(crowd_serves(scene));
    assert_null(scene_chunk(scene, OLDEST));
}

POLICY_TEST(a_retained_pool_keeps_its_places)
{
    struct chunk *chunk = crowd_create(scene);
    scene->lane->owner.pool->uses++;
    assert_true(crowd_serves(scene));
    assert_false(crowd_serves_at_bound(scene, chunk));
    scene->lane->owner.pool->uses--;
    assert_int_equal(chunk->places, PLACES_USUAL);
}

POLICY_TEST(a_place_that_the_driver_keeps_is_tried_again)
{
    struct chunk *chunk = crowd_create(scene);
    vmm__sim_fail_at(scene->driver, 1, VMM_ERR_DRIVER, true);
    assert_true(crowd_serves(scene));
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    assert_ok(vmm__cache_check(scene->cache));
    assert_int_equal(chunk->places, PLACES_USUAL);
    assert_true(crowd_serves(scene));
    assert_int_equal(chunk->places, PLACES_USUAL - 1);
}
