/* Stitching: if the driver or the host refuses a step, or the plan is out of date, nothing is lost. */
#include "support/policy_support.h"

#include "cache/grow/stitch.h"

/* Which row a plan extends. */
enum shape { NEW_ROW, TO_THE_RIGHT, TO_THE_LEFT, SHAPES };

/* The live blocks of a layout. */
static struct block *live[2];
static unsigned live_count;

static void live_at(struct heap *heap, uint64_t address)
{
    assert_ok(vmm__heap_records_keep(heap, 2));
    live[live_count] = vmm__heap_cut(heap, address, GRANULE);
    live[live_count++]->state = BLOCK_LIVE;
    vmm__views_note(heap, address, GRANULE);
}

/* Of granules. */
enum { REQUEST = 13 };

static void row_create(struct scene *scene, enum shape shape)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 0, 4, 4);
    (void)extent(scene, heap, 6, 4, 4);
    assert_ok(scene_grow(scene, heap, 8 * GRANULE, GROW_VIEW));
    uint64_t first = vmm__min(scene_chunk(scene, 0)->place, scene_chunk(scene, 6)->place);
    const struct chunk *end = scene_chunk(scene, shape == TO_THE_LEFT ? first + 4 : first);
    live_at(heap, scene_address(scene, shape == TO_THE_LEFT ? end->first + 3 : end->first));
}

/* The request needs new memory in each shape, and all idle memory, also of the other stream. */
static void layout_create(struct scene *scene, enum shape shape)
{
    struct heap *heap = &scene->lane->large;
    live_count = 0;
    if (shape != NEW_ROW)
        row_create(scene, shape);
    (void)extent(scene, heap, 12, 3, 3);
    live_at(heap, scene_address(scene, shape == TO_THE_RIGHT ? 14 : 12)); /* a head, or a tail */
    if (shape == NEW_ROW)
        (void)extent(scene, heap, 16, 3, 3);
    (void)extent(scene, &scene->other->large, 20, 1, 1);
    (void)extent(scene, &scene->other->large, 22, 1, 1);
    if (shape == NEW_ROW)
        (void)extent(scene, heap, 24, 1, 1);
    assert_ok(vmm__cache_check(scene->cache));
}

/* What a stitch that fails must leave as it was. */
struct state {
    uint64_t mapped_bytes;
    uint64_t reserved_bytes;
    uint64_t taken_granules;
    uint64_t free_bytes; /* of both heaps */
    uint64_t view_chunks;
    uint64_t run_bytes;
};

static struct state state_of(const struct scene *scene)
{
    const struct vm *vm = &scene->cache->vm;
    return (struct state){
        .mapped_bytes = scene->driver->mapped_bytes,
        .reserved_bytes = scene_reserved_bytes(scene),
        .taken_granules = vm->arena.granules - vm->arena.free_granules,
        .free_bytes = scene->lane->large.free_bytes + scene->other->large.free_bytes,
        .view_chunks = scene->lane->large.view_chunks,
        .run_bytes = largest_run_bytes(&scene->lane->large),
    };
}

static vmm_status plan_and_stitch(struct scene *scene, uint64_t fail_call, uint64_t fail_alloc,
                                  vmm_status failure, bool for_ever, struct plan *out)
{
    struct heap *heap = &scene->lane->large;
    scene_lock(scene, heap);
    vmm__request_lanes_lock(scene->cache, &(struct request){ .heap = heap });
    *out = vmm__plan(scene->cache, heap, REQUEST * GRANULE, 0, IDLE_FINISHED);
    vmm__sim_fail_at(scene->driver, fail_call, failure, for_ever);
    (void)vmm__host_fail_at(fail_alloc);
    vmm_status status = vmm__stitch_transfer(scene->cache, heap, IDLE_FINISHED, out);
    if (status == VMM_OK)
        status = vmm__stitch(scene->cache, heap, REQUEST * GRANULE, out);
    (void)vmm__host_fail_at(0);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    vmm__request_lanes_unlock(scene->cache, heap);
    scene_unlock(scene, heap);
    (void)vmm__limbo_drain(&scene->cache->vm, NULL);
    assert_ok(vmm__cache_check(scene->cache));
    return status;
}

static vmm_status stitch(struct scene *scene)
{
    struct plan plan;
    return plan_and_stitch(scene, 0, 0, VMM_OK, false, &plan);
}

/* Takes the block that the request is for, uses it and frees it. */
static void row_use(struct scene *scene)
{
    struct heap *heap = &scene->lane->large;
    struct block *block = view_take(heap, REQUEST * GRANULE);
    memory_fill(scene->driver, block->address, block->node.size, 3, STREAM(1));
    memory_check(scene->driver, block->address, block->node.size, 3, STREAM(1));
    (void)vmm__heap_give(heap, block);
    assert_ok(vmm__cache_check(scene->cache));
}

/* What may have changed: chunks of other heaps are the heap's own, and new memory is idle. */
static void assert_nothing_lost(const struct scene *scene, const struct state *before)
{
    struct state after = state_of(scene);
    uint64_t new_bytes = after.reserved_bytes - before->reserved_bytes;
    assert_true(after.reserved_bytes >= before->reserved_bytes);
    assert_int_equal(after.mapped_bytes, before->mapped_bytes + new_bytes);
    assert_int_equal(after.taken_granules, before->taken_granules + new_bytes / GRANULE);
    assert_int_equal(after.free_bytes, before->free_bytes + new_bytes);
    assert_int_equal(after.view_chunks, before->view_chunks);
    assert_int_equal(after.run_bytes, before->run_bytes);
}

/* Each driver call of each shape is refused once. Returns how many there are. */
static unsigned calls_refuse(struct scene *scene, enum shape shape, vmm_status failure)
{
    for (uint64_t call = 1;; call++) {
        struct plan plan;
        layout_create(scene, shape);
        struct state before = state_of(scene);
        vmm_status status = plan_and_stitch(scene, call, 0, failure, false, &plan);
        bool is_over = status == VMM_OK;
        if (!is_over) {
            assert_int_equal(status, failure);
            assert_nothing_lost(scene, &before);
            assert_ok(stitch(scene));
        }
        row_use(scene);
        scene_renew(scene);
        if (is_over)
            return (unsigned)call - 1;
    }
}

POLICY_TEST(a_refused_call_loses_nothing)
{
    for (enum shape shape = NEW_ROW; shape < SHAPES; shape++) {
        unsigned calls = calls_refuse(scene, shape, VMM_ERR_DRIVER);
        assert_true(calls >= 8); /* create, map, access; four places; access */
        assert_int_equal(calls_refuse(scene, shape, VMM_ERR_DEVICE_OOM), calls);
    }
}

POLICY_TEST(a_refused_host_allocation_loses_nothing)
{
    unsigned refused = 0;
    for (enum shape shape = NEW_ROW; shape < SHAPES; shape++) {
        for (uint64_t number = 1; number <= 6; number++) {
            struct plan plan;
            layout_create(scene, shape);
            struct state before = state_of(scene);
            vmm_status status = plan_and_stitch(scene, 0, number, VMM_OK, false, &plan);
            if (status != VMM_OK) {
                assert_int_equal(status, VMM_ERR_HOST_OOM);
                assert_nothing_lost(scene, &before);
                assert_ok(stitch(scene));
                refused++;
            }
            row_use(scene);
            scene_renew(scene);
        }
    }
    assert_true(refused > 0);
}

/* Frees the live blocks and trims: nothing may stay mapped. */
static void all_release(struct scene *scene)
{
    while (live_count > 0)
        (void)vmm__heap_give(&scene->lane->large, live[--live_count]);
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    assert_int_equal(scene_reserved_bytes(scene), 0);
    assert_int_equal(scene->driver->mapped_bytes, 0);
    assert_int_equal(scene->cache->vm.arena.free_granules, SCENE_GRANULES);
    assert_ok(vmm__cache_check(scene->cache));
}

/* All calls from one on are refused, so that the undo is refused too: places stay mapped, in no row, until their chunks
 * are released. */
POLICY_TEST(a_refused_undo_strands_places_that_are_unmapped_later)
{
    unsigned stranded = 0;
    for (enum shape shape = NEW_ROW; shape < SHAPES; shape++) {
        for (uint64_t call = 1; call <= 14; call++) {
            struct plan plan;
            layout_create(scene, shape);
            struct state before = state_of(scene);
            vmm_status status = plan_and_stitch(scene, call, 0, VMM_ERR_DRIVER, true, &plan);
            struct state after = state_of(scene);
            assert_int_equal(after.run_bytes,
                             status == VMM_OK ? REQUEST * GRANULE : before.run_bytes);
            uint64_t new_bytes = after.reserved_bytes - before.reserved_bytes;
            stranded += status != VMM_OK && after.mapped_bytes > before.mapped_bytes + new_bytes;
            assert_ok(vmm_trim(scene->cache, 0, NULL)); /* stranded places use up addresses */
            assert_ok(vmm__cache_check(scene->cache));
            assert_ok(stitch(scene));
            row_use(scene);
            all_release(scene);
            scene_renew(scene);
        }
    }
    assert_true(stranded >= 3);
}

/* The plan goes out of date: the other stream's memory is busy when it is needed. */
POLICY_TEST(a_chunk_that_is_busy_again_ends_the_stitch)
{
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 12, 3, 3);
    struct heap *other = &scene->other->large;
    struct block *block = block_make_live(other, extent(scene, other, 20, 2, 2), 2 * GRANULE);
    block = vmm__heap_give(other, block);
    scene_lock(scene, heap);
    vmm__request_lanes_lock(scene->cache, &(struct request){ .heap = heap });
    struct plan plan = vmm__plan(scene->cache, heap, 5 * GRANULE, 0, IDLE_FINISHED);
    assert_int_equal(plan.count, 2);
    assert_ok(vmm__heap_take_edge(other, block, block->address, 2 * GRANULE, &block));
    (void)block_free_busy(scene, other, block);
    struct state before = state_of(scene);
    assert_status(vmm__stitch_transfer(scene->cache, heap, IDLE_FINISHED, &plan), VMM__NO_FIT);
    vmm__request_lanes_unlock(scene->cache, heap);
    scene_unlock(scene, heap);
    assert_nothing_lost(scene, &before);
    assert_int_equal(other->free_bytes, 2 * GRANULE);
}

/* Without addresses for the row nothing is created. */
POLICY_TEST(a_row_without_addresses_is_refused)
{
    struct arena *arena = &scene->cache->vm.arena;
    struct heap *heap = &scene->lane->large;
    (void)extent(scene, heap, 4, 3, 3);
    (void)extent(scene, heap, 12, 3, 3);
    (void)extent(scene, heap, 20, 3, 3);
    vmm__arena_take(arena, 24, 40);
    struct state before = state_of(scene);
    scene_lock(scene, heap);
    struct plan plan = vmm__plan(scene->cache, heap, REQUEST * GRANULE, 0, IDLE_FINISHED);
    assert_int_equal(plan.count, 3);
    assert_status(vmm__stitch(scene->cache, heap, REQUEST * GRANULE, &plan), VMM_ERR_ADDRESS_SPACE);
    scene_unlock(scene, heap);
    assert_nothing_lost(scene, &before);
    vmm__arena_give(arena, 24, 40);
    assert_ok(vmm__cache_check(scene->cache));
    assert_ok(stitch(scene));
    row_use(scene);
}
