/* Rings: who disposes of which bytes of a chunk that several places share, and how they part. */
#include "support/live_support.h"

enum { PLACES = 3, LIVE_PARTS = 100 };

static uint64_t place_of(unsigned place)
{
    return 10 + 10 * place;
}

static uint64_t live_address(struct scene *scene, unsigned place)
{
    return scene_address(scene, place_of(place)) + (uint64_t)place * LIVE_PARTS * PART_BYTES;
}

/* Each place has 100 live parts of its own; the other stream's in the middle. */
static void ring_made(struct scene *scene)
{
    for (unsigned i = 0; i < PLACES; i++)
        (void)place_lived(scene, i == 1 ? &scene->other->large : &scene->pool->large, place_of(i),
                          LIVE_PARTS * i, LIVE_PARTS);
    scene_meshed(scene);
    assert_int_equal(scene->cache->memory.twins, PLACES - 1);
}

static unsigned free_parts(struct scene *scene, unsigned place)
{
    struct chunk *chunk = scene_chunk(scene, place_of(place));
    struct occupancy taken;
    vmm__occupancy_taken(vmm__ring_heap(scene->cache, chunk), chunk->first, &taken);
    return 512 - vmm__occupancy_count(&taken);
}

static unsigned owner_of(struct scene *scene)
{
    unsigned place = 0;
    while (scene_chunk(scene, place_of(place))->is_alias)
        place++;
    return place;
}

static void only_the_owner_s_place_has_free_bytes(void **state)
{
    struct scene *scene = *state;
    ring_made(scene);
    unsigned owner = owner_of(scene);
    for (unsigned i = 0; i < PLACES; i++)
        assert_int_equal(free_parts(scene, i), i == owner ? 512 - PLACES * LIVE_PARTS : 0);
    struct occupancy live;
    vmm__ring_occupancy(scene->cache, scene_chunk(scene, place_of(0)), &live);
    assert_int_equal(vmm__occupancy_count(&live), PLACES * LIVE_PARTS);
    lives_checked(scene);
}

/* Freed bytes stay with their place until the ring is settled; then the owner has them. */
static void settling_collects_what_was_freed(void **state)
{
    struct scene *scene = *state;
    ring_made(scene);
    unsigned owner = owner_of(scene);
    unsigned other = (owner + 1) % PLACES;
    live_given(scene, live_address(scene, other));
    (void)lived_at(scene, vmm__ring_heap(scene->cache, scene_chunk(scene, place_of(other))),
                   live_address(scene, other) + PART_BYTES, PART_BYTES);
    assert_int_equal(free_parts(scene, other), LIVE_PARTS - 1);
    assert_ok(vmm__driver_device_wait(scene->driver));
    assert_ok(vmm__rings_settle(scene->cache));
    assert_int_equal(free_parts(scene, other), 0);
    assert_int_equal(free_parts(scene, owner), 512 - 2 * LIVE_PARTS - 1);
    lives_checked(scene);
}

static void settling_needs_records_or_changes_nothing(void **state)
{
    struct scene *scene = *state;
    ring_made(scene);
    unsigned other = (owner_of(scene) + 1) % PLACES;
    struct heap *heap = vmm__ring_heap(scene->cache, scene_chunk(scene, place_of(other)));
    live_given(scene, live_address(scene, other));
    (void)territory(scene, heap, 50, 1, 1);
    for (uint64_t at = 0; heap->store.spare_count > 1; at++)
        (void)lived_at(scene, heap, scene_address(scene, 50) + at * PART_BYTES, PART_BYTES);
    unsigned before = free_parts(scene, other);
    (void)vmm__host_fail_at(1);
    assert_status(vmm__rings_settle(scene->cache), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_int_equal(free_parts(scene, other), before);
    assert_ok(vmm__cache_check(scene->cache));
    assert_ok(vmm__rings_settle(scene->cache));
    assert_ok(vmm__cache_check(scene->cache));
    assert_int_equal(free_parts(scene, other), 0);
}

/* In every order; bytes of the one that stays alone are all its own again. */
static void places_without_live_bytes_part(void **state)
{
    struct scene *scene = *state;
    for (unsigned last = 0; last < PLACES; last++) {
        ring_made(scene);
        for (unsigned i = 1; i < PLACES; i++) {
            unsigned place = (last + i) % PLACES;
            live_given(scene, live_address(scene, place));
            vmm__rings_part_locked(scene->cache);
            assert_ok(vmm__limbo_drain(&scene->cache->memory, NULL));
            assert_int_equal(scene->cache->memory.twins, PLACES - 1 - i);
            assert_null(scene_chunk(scene, place_of(place)));
            assert_int_equal(scene_reserved(scene), GRANULE);
            lives_checked(scene);
        }
        assert_int_equal(free_parts(scene, last), 512 - LIVE_PARTS);
        live_given(scene, live_address(scene, last));
        assert_ok(vmm_trim(scene->cache, 0, NULL));
        assert_int_equal(scene_reserved(scene), 0);
        live_count = 0;
    }
}

static void a_place_in_use_does_not_part(void **state)
{
    struct scene *scene = *state;
    ring_made(scene);
    unsigned place = (owner_of(scene) + 1) % PLACES;
    struct heap *heap = vmm__ring_heap(scene->cache, scene_chunk(scene, place_of(place)));
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
    sim_filled(scene->driver, live_address(scene, place), LIVE_PARTS * PART_BYTES, 3,
               heap->pool->stream);
    live_given(scene, live_address(scene, place));
    vmm__rings_part_locked(scene->cache);
    assert_int_equal(scene->cache->memory.twins, PLACES - 1);
    assert_int_equal(sim_mismatches(scene->driver), 0); /* the work is done */
    vmm__sim_lag_set(scene->driver, 0);
    vmm__rings_part_locked(scene->cache);
    assert_int_equal(scene->cache->memory.twins, PLACES - 2);
    assert_ok(vmm__limbo_drain(&scene->cache->memory, NULL));
}

static void one_pinned_place_pins_the_ring(void **state)
{
    struct scene *scene = *state;
    ring_made(scene);
    struct chunk *first = scene_chunk(scene, place_of(0));
    assert_false(vmm__ring_is_pinned(scene->cache, first));
    struct heap *heap = vmm__ring_heap(scene->cache, scene_chunk(scene, place_of(2)));
    live_pinned(heap, vmm__heap_cover(heap, live_address(scene, 2)));
    assert_true(vmm__ring_is_pinned(scene->cache, first));
}

/* A live block over bytes that another place has, and free bytes that two places have. */
static void damage_is_found(void **state)
{
    struct scene *scene = *state;
    ring_made(scene);
    unsigned owner = owner_of(scene);
    unsigned other = (owner + 1) % PLACES;
    struct heap *heap = vmm__ring_heap(scene->cache, scene_chunk(scene, place_of(other)));
    uint64_t offset = live_address(scene, owner) - scene_address(scene, place_of(owner));
    struct block *lent = vmm__heap_cover(heap, scene_address(scene, place_of(other)) + offset);
    assert_int_equal(lent->state, BLOCK_LENT);
    lent->state = BLOCK_LIVE;
    assert_status(vmm__rings_check(scene->cache), VMM_ERR_INTERNAL);
    lent->state = BLOCK_LENT;
    assert_ok(vmm__rings_check(scene->cache));
    vmm__heap_unlend(heap, place_of(other), 0);
    assert_status(vmm__rings_check(scene->cache), VMM_ERR_INTERNAL);
    assert_ok(vmm__rings_settle(scene->cache));
    assert_ok(vmm__rings_check(scene->cache));
}

static uint64_t hurried_clock(void *context)
{
    uint64_t *ns = context;
    return *ns += 1000;
}

static void places_without_live_bytes_decay(void **state)
{
    struct scene *scene = *state;
    uint64_t ns = 0;
    (void)place_lived(scene, &scene->pool->large, 2, 0, 60);
    (void)place_lived(scene, &scene->other->large, 4, 60, 60);
    scene_meshed(scene);
    assert_int_equal(scene->cache->memory.twins, 1);
    live_given(scene, scene_address(scene, 2));
    live_given(scene, scene_address(scene, 4) + 60 * PART_BYTES);
    scene->cache->decay.clock = hurried_clock;
    scene->cache->decay.clock_context = &ns;
    scene->cache->decay.period_ns = 500;
    for (int i = 0; i < 6; i++)
        assert_ok(vmm_tick(scene->cache));
    scene->cache->decay.period_ns = 0;
    assert_int_equal(scene_reserved(scene), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LIVE_TEST(only_the_owner_s_place_has_free_bytes),
        LIVE_TEST(settling_collects_what_was_freed),
        LIVE_TEST(settling_needs_records_or_changes_nothing),
        LIVE_TEST(places_without_live_bytes_part),
        LIVE_TEST(a_place_in_use_does_not_part),
        LIVE_TEST(one_pinned_place_pins_the_ring),
        LIVE_TEST(damage_is_found),
        LIVE_TEST(places_without_live_bytes_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
