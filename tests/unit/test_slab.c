/* Slabs: size classes, objects, and the lists of slabs. */
#include "lane/block_ref.h"
#include "support/engine_support.h"

static struct slabs *slabs_prepare(struct engine *engine)
{
    (void)engine_attach(engine, &engine->lane->small, 20, 4, 1);
    return &engine->lane->slabs;
}

static uint64_t object_take(struct slabs *slabs, uint64_t bytes, struct slab **slab)
{
    uint32_t class_index = vmm__slab_class(bytes);
    if (slabs->partial[class_index] == NULL)
        assert_ok(vmm__slab_open(slabs, class_index));
    *slab = slabs->partial[class_index];
    uint32_t object = vmm__slab_take(slabs, *slab, bytes);
    uint64_t address = vmm__slab_address(*slab, object);
    assert_int_equal(vmm__slab_object(*slab, address), object);
    return address;
}

static void object_give(struct slabs *slabs, uint64_t address)
{
    struct block *block = vmm__heap_find(slabs->heap, address);
    assert_non_null(block);
    assert_int_equal(block->state, BLOCK_SLAB);
    uint32_t object = vmm__slab_object(block->slab, address);
    assert_in_range(object, 0, SLAB_OBJECTS - 1);
    vmm__slab_give(slabs, block->slab, object);
}

TEST(every_size_has_the_smallest_class_that_fits)
{
    assert_int_equal(vmm__slab_class(0), vmm__slab_class(1));
    for (uint64_t bytes = 1; bytes <= SLAB_LARGEST_BYTES; bytes++) {
        uint32_t class_index = vmm__slab_class(bytes);
        assert_in_range(class_index, 0, SLAB_CLASSES - 1);
        assert_true(vmm__slab_object_bytes(class_index) >= bytes);
        if (class_index > 0)
            assert_true(vmm__slab_object_bytes(class_index - 1) < bytes);
    }
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        assert_int_equal(vmm__slab_object_bytes(class_index) % SLAB_STEP_BYTES, 0);
        assert_int_equal(vmm__slab_run_bytes(class_index) % SMALL_SLOT_BYTES, 0);
        assert_true(vmm__slab_run_bytes(class_index) <= 65536);
    }
}

ENGINE_TEST(objects_do_not_overlap)
{
    struct slabs *slabs = slabs_prepare(engine);
    enum { OBJECTS = 150 };
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        uint32_t bytes = vmm__slab_object_bytes(class_index);
        uint64_t addresses[OBJECTS];
        struct slab *slab;
        for (int i = 0; i < OBJECTS; i++) {
            addresses[i] = object_take(slabs, bytes, &slab);
            assert_true(addresses[i] + bytes <= vmm__block_end(slab->block));
            for (int j = 0; j < i; j++)
                assert_true(addresses[j] + bytes <= addresses[i] ||
                            addresses[i] + bytes <= addresses[j]);
        }
        engine_check(engine);
        for (int i = 0; i < OBJECTS; i++)
            object_give(slabs, addresses[(i * 7) % OBJECTS]);
        engine_check(engine);
        (void)vmm__slabs_purge(slabs);
        assert_null(slabs->all);
    }
    assert_int_equal(slabs->heap->free_bytes, 4 * GRANULE);
}

ENGINE_TEST(find_accepts_only_starts_of_live_objects)
{
    struct slabs *slabs = slabs_prepare(engine);
    struct slab *slab;
    uint64_t address = object_take(slabs, 1000, &slab);
    uint64_t start = slab->block->address;
    for (uint64_t at = start; at < vmm__block_end(slab->block); at++) {
        uint64_t object = (at - start) / slab->object_bytes;
        bool is_start = (at - start) % slab->object_bytes == 0 && object < slab->objects;
        assert_int_equal(vmm__slab_object(slab, at), is_start ? object : SLAB_OBJECTS);
        struct block_ref ref;
        assert_int_equal(vmm__block_ref_find_live(slabs->heap, at, &ref), at == address);
    }
    object_give(slabs, address);
    struct block_ref ref;
    assert_false(vmm__block_ref_find(slabs->heap, address, &ref));
}

ENGINE_TEST(last_empty_slab_of_a_class_stays)
{
    struct slabs *slabs = slabs_prepare(engine);
    struct slab *slab;
    for (int round = 0; round < 3; round++) {
        uint64_t address = object_take(slabs, 512, &slab);
        object_give(slabs, address);
        assert_ptr_equal(slabs->partial[0], slab);
    }
    uint64_t before = slabs->heap->free_bytes;
    assert_true(vmm__slabs_purge(slabs));
    assert_false(vmm__slabs_purge(slabs));
    assert_int_equal(slabs->heap->free_bytes, before + vmm__slab_run_bytes(0));
    assert_null(slabs->partial[0]);
}

ENGINE_TEST(purge_keeps_slabs_with_live_or_waiting_objects)
{
    struct slabs *slabs = slabs_prepare(engine);
    struct slab *slab;
    uint64_t address = object_take(slabs, 512, &slab);
    assert_false(vmm__slabs_purge(slabs));
    slab->waiting_bits = ~slab->free_bits & 1;
    assert_false(vmm__slabs_purge(slabs));
    object_give(slabs, address);
    assert_int_equal(slab->waiting_bits, 0);
    assert_true(vmm__slabs_purge(slabs));
}

ENGINE_TEST(a_purge_of_lone_slabs_leaves_empty_ones_in_company)
{
    struct slabs *slabs = slabs_prepare(engine);
    struct slab *full, *empty;
    uint64_t address = 0;
    for (int i = 0; i < SLAB_OBJECTS; i++)
        address = object_take(slabs, 512, &full);
    object_give(slabs, object_take(slabs, 512, &empty));
    object_give(slabs, address);
    assert_ptr_equal(slabs->partial[0], full);
    vmm__slabs_purge_lone(slabs);
    assert_ptr_equal(slabs->partial[0]->next, empty);
    assert_ptr_equal(slabs->all, empty);
}

ENGINE_TEST(full_and_empty_slabs_change_lists)
{
    struct slabs *slabs = slabs_prepare(engine);
    uint64_t addresses[3 * SLAB_OBJECTS];
    struct slab *slab;
    for (int i = 0; i < 3 * SLAB_OBJECTS; i++)
        addresses[i] = object_take(slabs, 512, &slab);
    assert_null(slabs->partial[0]);
    object_give(slabs, addresses[0]);
    object_give(slabs, addresses[SLAB_OBJECTS]);
    engine_check(engine);
    assert_non_null(slabs->partial[0]->next);
    for (int i = 1; i < SLAB_OBJECTS; i++)
        object_give(slabs, addresses[i]);
    engine_check(engine);
    assert_null(slabs->partial[0]->next);
    assert_null(vmm__heap_find(slabs->heap, addresses[1]));
}

/* The slab that an address belongs to follows from the address, also after the slab was returned. */
ENGINE_TEST(slabs_of_pools_are_found_again_by_their_objects)
{
    struct slabs *slabs = slabs_prepare(engine);
    engine->lane->is_pooled = true;
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        struct block *before = heap_take(slabs->heap, SMALL_SLOT_BYTES * (1 + class_index));
        struct slab *slab;
        assert_ok(vmm__slab_open(slabs, class_index));
        uint64_t start = slabs->partial[class_index]->address;
        uint32_t objects = slabs->partial[class_index]->objects;
        assert_true(vmm__slabs_purge(slabs));
        for (uint32_t object = 0; object < objects; object++) {
            uint64_t address = start + (uint64_t)object * vmm__slab_object_bytes(class_index);
            assert_ok(vmm__slab_open_at(slabs, class_index, address, &slab));
            assert_int_equal(slab->address, start);
            assert_int_equal(vmm__slab_object(slab, address), object);
            vmm__slab_take_object(slabs, slab, object, 1);
            assert_int_equal(slab->free_bits, slab->all_bits & ~(UINT64_C(1) << object));
            engine_check(engine);
            assert_status(vmm__slab_open_at(slabs, class_index, address, &slab), VMM__NO_FIT);
            vmm__slab_give(slabs, slab, object);
            assert_true(vmm__slabs_purge(slabs));
        }
        assert_status(vmm__slab_open_at(slabs, class_index, start + 256, &slab), VMM__NOT_FOUND);
        (void)vmm__heap_give(slabs->heap, before);
    }
    assert_null(slabs->all);
    assert_int_equal(slabs->heap->free_bytes, 4 * GRANULE);
}

/* A block of that size has room for the slab, wherever it lies. */
ENGINE_TEST(the_slab_of_a_pool_fits_in_the_bytes_that_it_needs)
{
    struct slabs *slabs = &engine->lane->slabs;
    struct heap *heap = slabs->heap;
    (void)engine_attach(engine, heap, 20, 4, 1);
    engine->lane->is_pooled = true;
    uint64_t start = engine_address(engine, 20);
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        uint64_t bytes = vmm__slab_need_bytes(slabs, class_index);
        for (uint64_t offset = 0; offset < 20 * SMALL_SLOT_BYTES; offset += SMALL_SLOT_BYTES) {
            assert_ok(vmm__heap_records_keep(heap, 4));
            struct block *low = offset == 0 ? NULL : vmm__heap_take_at(heap, start, offset);
            struct block *high =
                vmm__heap_take_at(heap, start + offset + bytes, 4 * GRANULE - offset - bytes);
            assert_ok(vmm__slab_open(slabs, class_index));
            engine_check(engine);
            assert_true(vmm__slabs_purge(slabs));
            (void)vmm__heap_give(heap, high);
            if (low != NULL)
                (void)vmm__heap_give(heap, low);
        }
    }
}

/* Without host memory for the slab record or the block records, nothing changes. */
ENGINE_TEST(open_without_host_memory_changes_nothing)
{
    struct slabs *slabs = slabs_prepare(engine);
    struct slab *slab = NULL;
    uint64_t free_bytes = slabs->heap->free_bytes;
    (void)vmm__host_fail_at(1);
    assert_status(vmm__slab_open(slabs, 0), VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(1);
    assert_status(
        vmm__slab_open_at(slabs, 0, vmm__align_up(engine_address(engine, 20), 65536), &slab),
        VMM_ERR_HOST_OOM);
    (void)vmm__host_fail_at(0);
    assert_int_equal(slabs->heap->free_bytes, free_bytes);
    assert_null(slabs->all);
    engine_check(engine);
}

ENGINE_TEST(open_without_mapped_memory_changes_nothing)
{
    uint64_t host_bytes = vmm__host_outstanding();
    assert_status(vmm__slab_open(&engine->lane->slabs, 0), VMM__NO_FIT);
    assert_int_equal(vmm__host_outstanding(), host_bytes);
}
