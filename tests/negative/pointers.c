/* Pointers that are not the start of a live block: every call that takes a pointer refuses each of them. */
#include "negative.h"

#include <stdlib.h>

#define OUTSIDE  "it lies outside of the cache's arena"
#define UNMAPPED "no memory is mapped there"
#define NOT_LIVE "is not the start of a live block"

static int a_static;

static int part_refuse(void *context, const vmm_part *part)
{
    (void)context;
    must(part == NULL);
    return 0;
}

/* Requires that all calls refuse the victim, and that all errors except vmm_find()'s contain these words. */
static vmm_status refuse_all(struct stage *stage, const char *words, bool is_inside)
{
    vmm_item item = VMM_ITEM_INIT;
    vmm_status unknown = VMM_ERR_UNKNOWN_POINTER;
    must_be(unknown, vmm_record_stream(stage->cache, stage->victim, stage->streams[1]));
    must(stage_error_says("vmm_record_stream") && stage_error_says(words));
    must_be(unknown, vmm_record_stream(stage->cache, stage->victim, (vmm_stream)(uintptr_t)0x5000));
    must_be(unknown, vmm_pin(stage->cache, stage->victim));
    must(stage_error_says("vmm_pin") && stage_error_says(words));
    must_be(unknown, vmm_unpin(stage->cache, stage->victim));
    must(stage_error_says("vmm_unpin") && stage_error_says(words));
    must_be(unknown, vmm_name(stage->cache, stage->victim, "name"));
    must(stage_error_says("vmm_name"));
    must_be(unknown, vmm_parts_walk(stage->cache, stage->victim, part_refuse, NULL));
    must(stage_error_says("vmm_parts_walk") && stage_error_says(words));
    must_be(unknown, vmm_dmabuf_export(stage->cache, stage->victim, 0, 4096, &a_static));
    must(stage_error_says("vmm_dmabuf_export") && stage_error_says(words));
    must_be(unknown, vmm_commit(stage->cache, stage->victim, 0, 2 * MIB));
    must(stage_error_says("vmm_commit") && stage_error_says("vmm_reserve()"));
    must_be(unknown, vmm_decommit(stage->cache, stage->victim, 0, 2 * MIB));
    must(stage_error_says("vmm_decommit") && stage_error_says("vmm_reserve()"));
    void *out = &a_static;
    must_be(stage->victim == NULL ? VMM_ERR_INVALID_ARGUMENT : unknown,
            vmm_resize(stage->cache, stage->victim, MIB, &out));
    must(stage_error_says("vmm_resize") && out == &a_static);
    must_be(is_inside ? VMM_OK : unknown, vmm_find(stage->cache, stage->victim, &item));
    must(is_inside || stage_error_says("is in no live block"));
    return stage->victim == NULL ? unknown : vmm_free(stage->cache, stage->victim);
}

static vmm_status refuse_outside(struct stage *stage, uint64_t value)
{
    (void)value;
    return refuse_all(stage, OUTSIDE, false);
}

static vmm_status refuse_in_gap(struct stage *stage, uint64_t value)
{
    (void)value;
    return refuse_all(stage, UNMAPPED, false);
}

static vmm_status refuse_past(struct stage *stage, uint64_t value)
{
    (void)value;
    return refuse_all(stage, "is not ", false);
}

static vmm_status refuse_inside(struct stage *stage, uint64_t value)
{
    (void)value;
    return refuse_all(stage, NOT_LIVE ": it is byte ", true);
}

static void set_number(struct stage *stage, uint64_t value)
{
    stage->victim = (void *)(uintptr_t)value;
}

static void set_stack(struct stage *stage, uint64_t value)
{
    (void)value;
    stage->victim = __builtin_frame_address(0);
}

static void set_heap(struct stage *stage, uint64_t value)
{
    static void
        *volatile memory; /* volatile keeps the store; static keeps the memory reachable for leak checks */
    (void)value;
    memory = malloc(4096);
    must(memory != NULL);
    stage->victim = memory;
}

static void set_static(struct stage *stage, uint64_t value)
{
    (void)value;
    stage->victim = &a_static;
}

static void set_function(struct stage *stage, uint64_t value)
{
    (void)value;
    stage->victim = (void *)(uintptr_t)set_function;
}

static void set_cache(struct stage *stage, uint64_t value)
{
    (void)value;
    stage->victim = stage->cache;
}

/* A block of another cache on the same driver, which is destroyed first or not. */
static void set_other_cache(struct stage *stage, uint64_t is_stale)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.arena_bytes = STAGE_ARENA;
    must_ok(vmm__cache_create_on(&config, stage->driver, &stage->other));
    must_ok(vmm_alloc(stage->other, 3 * MIB, NULL, &stage->victim));
    if (is_stale) {
        must_ok(vmm_destroy(stage->other));
        stage->other = NULL;
    }
}

/* Encodes a byte offset from the start of a live block, and the index of the block in the top bits. */
enum { INDEX_SHIFT = 56 };
#define IN_BLOCK(index, offset) ((uint64_t)(index) << INDEX_SHIFT | (offset))

static void set_inside_block(struct stage *stage, uint64_t value)
{
    uint64_t offset = value & ((UINT64_C(1) << INDEX_SHIFT) - 1);
    stage->victim = (char *)stage->blocks[value >> INDEX_SHIFT].address + offset;
}

/* The end of a block that has no live block behind it. */
static void set_past_block(struct stage *stage, uint64_t bytes)
{
    char *end = stage_take(stage, bytes, 0);
    vmm_item item = VMM_ITEM_INIT;
    while (vmm_find(stage->cache, end, &item) == VMM_OK)
        end = (char *)(uintptr_t)item.address + item.bytes;
    stage->victim = end;
}

static void set_gap(struct stage *stage, uint64_t granules)
{
    char *block = stage->blocks[0].address;
    stage->victim = block + granules * stage->driver->granule_bytes;
}

static void set_outside_arena(struct stage *stage, uint64_t offset)
{
    stage->victim = (void *)((uintptr_t)stage->blocks[6].address + (uintptr_t)offset);
}

#define REFUSED(name, prepare, value, call, words)                                                 \
    {                                                                                              \
        name, prepare, call, value, VMM_ERR_UNKNOWN_POINTER, words, false                          \
    }

static const struct negative_case cases[] = {
    REFUSED("NULL, except for vmm_free()", set_number, 0, refuse_outside, "is in no live block"),
    REFUSED("1", set_number, 1, refuse_outside, OUTSIDE),
    REFUSED("the first page", set_number, 4096, refuse_outside, OUTSIDE),
    REFUSED("UINTPTR_MAX", set_number, UINTPTR_MAX, refuse_outside, OUTSIDE),
    REFUSED("512 below UINTPTR_MAX", set_number, UINTPTR_MAX - 511, refuse_outside, OUTSIDE),
    REFUSED("the middle of all addresses", set_number, UINT64_C(1) << 63, refuse_outside, OUTSIDE),
    REFUSED("the stack", set_stack, 0, refuse_outside, OUTSIDE),
    REFUSED("the heap", set_heap, 0, refuse_outside, OUTSIDE),
    REFUSED("static data", set_static, 0, refuse_outside, OUTSIDE),
    REFUSED("the program", set_function, 0, refuse_outside, OUTSIDE),
    REFUSED("the cache itself", set_cache, 0, refuse_outside, OUTSIDE),
    REFUSED("another cache's block", set_other_cache, 0, refuse_outside, OUTSIDE),
    REFUSED("a destroyed cache's block", set_other_cache, 1, refuse_outside, OUTSIDE),
    REFUSED("byte 1 of an object", set_inside_block, IN_BLOCK(0, 1), refuse_inside, "byte 1 of"),
    REFUSED("byte 256 of an object", set_inside_block, IN_BLOCK(1, 256), refuse_inside,
            "byte 256 of"),
    REFUSED("byte 512 of an object", set_inside_block, IN_BLOCK(2, 512), refuse_inside,
            "byte 512 of"),
    REFUSED("byte 4096 of a small block", set_inside_block, IN_BLOCK(4, 4096), refuse_inside,
            "byte 4096 of"),
    REFUSED("byte 512 of a large block", set_inside_block, IN_BLOCK(6, 512), refuse_inside,
            "byte 512 of"),
    REFUSED("a granule into a large block", set_inside_block, IN_BLOCK(6, 2 * MIB), refuse_inside,
            "byte 2097152 of"),
    REFUSED("the last byte of a large block", set_inside_block, IN_BLOCK(6, 3 * MIB - 1),
            refuse_inside, "byte 3145727 of"),
    REFUSED("unaligned in a small block", set_inside_block, IN_BLOCK(4, 69999), refuse_inside,
            "byte 69999 of"),
    REFUSED("one past a small block", set_past_block, 300000, refuse_past, "is not "),
    REFUSED("one past a large block", set_past_block, 5 * MIB, refuse_past, "is not "),
    REFUSED("a gap", set_gap, 99, refuse_in_gap, UNMAPPED),
    REFUSED("beyond the arena", set_outside_arena, 4 * STAGE_ARENA, refuse_outside, OUTSIDE),
    REFUSED("before the arena", set_outside_arena, -(4 * STAGE_ARENA), refuse_outside, OUTSIDE),
};

NEGATIVE_GROUP(negative_pointers, "pointers");
