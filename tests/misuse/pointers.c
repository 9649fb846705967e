/* Pointers that are no live block's: each is given to every call that takes one. */
#include "misuse.h"

#include <stdlib.h>

#define OUTSIDE  "it lies outside of the cache's arena"
#define NO_THERE "no memory is there, or no more"
#define NOT_LIVE "is not the start of a live block"

static int a_static;

/* The victim was set: it is refused by all calls, with these words by all but vmm_find(). */
static vmm_status all_refuse(struct stage *stage, const char *words, bool is_inside)
{
    vmm_item item = VMM_ITEM_INIT;
    vmm_status unknown = VMM_ERR_UNKNOWN_POINTER;
    must_be(unknown, vmm_use(stage->cache, stage->victim, stage->streams[1]));
    must(stage_error_says("vmm_use") && stage_error_says(words));
    must_be(unknown, vmm_use(stage->cache, stage->victim, (vmm_stream)(uintptr_t)0x5000));
    must_be(unknown, vmm_pin(stage->cache, stage->victim));
    must(stage_error_says("vmm_pin") && stage_error_says(words));
    must_be(unknown, vmm_unpin(stage->cache, stage->victim));
    must(stage_error_says("vmm_unpin") && stage_error_says(words));
    must_be(is_inside ? VMM_OK : unknown, vmm_find(stage->cache, stage->victim, &item));
    return stage->victim == NULL ? unknown : vmm_free(stage->cache, stage->victim);
}

static vmm_status refuse_outside(struct stage *stage, uint64_t value)
{
    (void)value;
    return all_refuse(stage, OUTSIDE, false);
}

static vmm_status refuse_in_void(struct stage *stage, uint64_t value)
{
    (void)value;
    return all_refuse(stage, NO_THERE, false);
}

static vmm_status refuse_past(struct stage *stage, uint64_t value)
{
    (void)value;
    return all_refuse(stage, "is not ", false);
}

static vmm_status refuse_inside(struct stage *stage, uint64_t value)
{
    (void)value;
    return all_refuse(stage, NOT_LIVE ": it is byte ", true);
}

static void at_number(struct stage *stage, uint64_t value)
{
    stage->victim = (void *)(uintptr_t)value;
}

static void on_the_stack(struct stage *stage, uint64_t value)
{
    (void)value;
    stage->victim = __builtin_frame_address(0);
}

static void on_the_heap(struct stage *stage, uint64_t value)
{
    static void *volatile memory; /* an optimizer would drop it, and a leak be found */
    (void)value;
    memory = malloc(4096);
    must(memory != NULL);
    stage->victim = memory;
}

static void static_data(struct stage *stage, uint64_t value)
{
    (void)value;
    stage->victim = &a_static;
}

static void the_program(struct stage *stage, uint64_t value)
{
    (void)value;
    stage->victim = (void *)(uintptr_t)the_program;
}

static void the_cache_itself(struct stage *stage, uint64_t value)
{
    (void)value;
    stage->victim = stage->cache;
}

/* A block of a cache of the same driver, which is gone by then or not. */
static void of_another_cache(struct stage *stage, uint64_t is_gone)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.arena_bytes = STAGE_ARENA;
    must_ok(vmm__cache_create_on(&config, stage->driver, &stage->other));
    must_ok(vmm_alloc(stage->other, 3 * MIB, NULL, &stage->victim));
    if (is_gone) {
        must_ok(vmm_destroy(stage->other));
        stage->other = NULL;
    }
}

/* So many bytes from the start of a live block; its index is above. */
enum { INDEX_SHIFT = 56 };
#define IN_BLOCK(index, offset) ((uint64_t)(index) << INDEX_SHIFT | (offset))

static void in_a_block(struct stage *stage, uint64_t value)
{
    uint64_t offset = value & ((UINT64_C(1) << INDEX_SHIFT) - 1);
    stage->victim = (char *)stage->blocks[value >> INDEX_SHIFT].address + offset;
}

/* The end of a block with no live one behind it. */
static void one_past(struct stage *stage, uint64_t bytes)
{
    char *end = stage_take(stage, bytes, 0);
    vmm_item item = VMM_ITEM_INIT;
    while (vmm_find(stage->cache, end, &item) == VMM_OK)
        end = (char *)(uintptr_t)item.address + item.bytes;
    stage->victim = end;
}

static void far_from_memory(struct stage *stage, uint64_t granules)
{
    char *block = stage->blocks[0].address;
    stage->victim = block + granules * stage->driver->granule_bytes;
}

static void around_the_arena(struct stage *stage, uint64_t offset)
{
    stage->victim = (void *)((uintptr_t)stage->blocks[6].address + (uintptr_t)offset);
}

#define REFUSED(name, prepare, value, misuse, words)                                               \
    {                                                                                              \
        name, prepare, misuse, value, VMM_ERR_UNKNOWN_POINTER, words, false                        \
    }

static const struct misuse cases[] = {
    REFUSED("NULL, but for vmm_free()", at_number, 0, refuse_outside, "is in no live block"),
    REFUSED("1", at_number, 1, refuse_outside, OUTSIDE),
    REFUSED("the first page", at_number, 4096, refuse_outside, OUTSIDE),
    REFUSED("UINTPTR_MAX", at_number, UINTPTR_MAX, refuse_outside, OUTSIDE),
    REFUSED("512 below UINTPTR_MAX", at_number, UINTPTR_MAX - 511, refuse_outside, OUTSIDE),
    REFUSED("the middle of all addresses", at_number, UINT64_C(1) << 63, refuse_outside, OUTSIDE),
    REFUSED("the stack", on_the_stack, 0, refuse_outside, OUTSIDE),
    REFUSED("the heap", on_the_heap, 0, refuse_outside, OUTSIDE),
    REFUSED("static data", static_data, 0, refuse_outside, OUTSIDE),
    REFUSED("the program", the_program, 0, refuse_outside, OUTSIDE),
    REFUSED("the cache itself", the_cache_itself, 0, refuse_outside, OUTSIDE),
    REFUSED("another cache's block", of_another_cache, 0, refuse_outside, OUTSIDE),
    REFUSED("a destroyed cache's block", of_another_cache, 1, refuse_outside, OUTSIDE),
    REFUSED("byte 1 of an object", in_a_block, IN_BLOCK(0, 1), refuse_inside, "byte 1 of"),
    REFUSED("byte 256 of an object", in_a_block, IN_BLOCK(1, 256), refuse_inside, "byte 256 of"),
    REFUSED("byte 512 of an object", in_a_block, IN_BLOCK(2, 512), refuse_inside, "byte 512 of"),
    REFUSED("byte 4096 of a small block", in_a_block, IN_BLOCK(4, 4096), refuse_inside,
            "byte 4096 of"),
    REFUSED("byte 512 of a large block", in_a_block, IN_BLOCK(6, 512), refuse_inside,
            "byte 512 of"),
    REFUSED("a granule into a large block", in_a_block, IN_BLOCK(6, 2 * MIB), refuse_inside,
            "byte 2097152 of"),
    REFUSED("the last byte of a large block", in_a_block, IN_BLOCK(6, 3 * MIB - 1), refuse_inside,
            "byte 3145727 of"),
    REFUSED("unaligned in a small block", in_a_block, IN_BLOCK(4, 69999), refuse_inside,
            "byte 69999 of"),
    REFUSED("one past a small block", one_past, 300000, refuse_past, "is not "),
    REFUSED("one past a large block", one_past, 5 * MIB, refuse_past, "is not "),
    REFUSED("a void", far_from_memory, 999, refuse_in_void, NO_THERE),
    REFUSED("beyond the arena", around_the_arena, 4 * STAGE_ARENA, refuse_outside, OUTSIDE),
    REFUSED("before the arena", around_the_arena, -(4 * STAGE_ARENA), refuse_outside, OUTSIDE),
};

MISUSE_GROUP(misuse_pointers, "pointers");
