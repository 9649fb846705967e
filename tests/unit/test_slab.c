/* Slabs: their size classes, and those of pools, whose place follows from their addresses. */
#include "support/engine_support.h"

static struct slabs *slabs_prepare(struct engine *engine)
{
    (void)engine_attach(engine, &engine->lane->small, 20, 4, 1);
    return &engine->lane->slabs;
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

/* The slab that an address belongs to follows from the address, also after the slab was returned. */
ENGINE_TEST(slabs_of_pools_are_found_again_by_their_objects)
{
    struct slabs *slabs = slabs_prepare(engine);
    engine->lane->owner.is_pooled = true;
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        struct block *before = heap_take(slabs->heap, SMALL_SLOT_BYTES * (1 + class_index));
        struct slab *slab;
        assert_ok(vmm__slab_open(slabs, class_index, SEARCH_QUICK));
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
    engine->lane->owner.is_pooled = true;
    uint64_t start = engine_address(engine, 20);
    for (uint32_t class_index = 0; class_index < SLAB_CLASSES; class_index++) {
        uint64_t bytes = vmm__slab_need_bytes(slabs, class_index);
        for (uint64_t offset = 0; offset < 20 * SMALL_SLOT_BYTES; offset += SMALL_SLOT_BYTES) {
            assert_ok(vmm__heap_records_keep(heap, 4));
            struct block *low = offset == 0 ? NULL : vmm__heap_take_at(heap, start, offset);
            struct block *high =
                vmm__heap_take_at(heap, start + offset + bytes, 4 * GRANULE - offset - bytes);
            assert_ok(vmm__slab_open(slabs, class_index, SEARCH_QUICK));
            engine_check(engine);
            assert_true(vmm__slabs_purge(slabs));
            (void)vmm__heap_give(heap, high);
            if (low != NULL)
                (void)vmm__heap_give(heap, low);
        }
    }
}
