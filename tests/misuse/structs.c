/* Structs of every size: what a caller does not have is neither read nor written. */
#include "misuse.h"

#include <stdlib.h>
#include <string.h>

enum { SIZES = 700, EDGE = 0x5a };

/* Exactly as many bytes as it says, so that a sanitizer sees each one too many; others see the edge. */
static unsigned char *exact_struct(size_t struct_size)
{
    unsigned char *bytes = malloc(struct_size);
    must(bytes != NULL);
    memset(bytes, EDGE, struct_size);
    memcpy(bytes, &struct_size, sizeof struct_size);
    return bytes;
}

static bool is_untouched(const unsigned char *bytes, size_t from, size_t to)
{
    while (from < to && bytes[from] == EDGE)
        from++;
    return from >= to;
}

/* A size stays as it was; so do all bytes of a refused struct, and those that the library does not know. */
static void struct_check(unsigned char *bytes, size_t size, size_t known, vmm_status status)
{
    size_t struct_size;
    memcpy(&struct_size, bytes, sizeof struct_size);
    must(struct_size == size);
    size_t written = status != VMM_OK ? sizeof struct_size : known;
    must(is_untouched(bytes, written, size));
    free(bytes);
}

static vmm_status stats_of_all_sizes(struct stage *stage, uint64_t value)
{
    (void)value;
    for (size_t size = sizeof size; size < SIZES; size++) {
        unsigned char *bytes = exact_struct(size);
        vmm_status status = vmm_stats_get(stage->cache, (vmm_stats *)bytes);
        bool is_enough = size >= sizeof size + sizeof(vmm_figure);
        must(status == (is_enough ? VMM_OK : VMM_ERR_INVALID_ARGUMENT));
        struct_check(bytes, size, sizeof(vmm_stats), status);
    }
    return VMM_OK;
}

static vmm_status items_of_all_sizes(struct stage *stage, uint64_t value)
{
    (void)value;
    for (size_t size = sizeof size; size < SIZES; size++) {
        unsigned char *bytes = exact_struct(size);
        vmm_status status = vmm_find(stage->cache, stage->blocks[0].address, (vmm_item *)bytes);
        bool is_enough = size >= offsetof(vmm_item, stream);
        must(status == (is_enough ? VMM_OK : VMM_ERR_INVALID_ARGUMENT));
        struct_check(bytes, size, sizeof(vmm_item), status);
    }
    return VMM_OK;
}

static vmm_status items_of_no_block(struct stage *stage, uint64_t value)
{
    (void)value;
    for (size_t size = sizeof size; size < SIZES; size += 8) {
        unsigned char *bytes = exact_struct(size);
        vmm_status status = vmm_find(stage->cache, stage, (vmm_item *)bytes);
        bool is_enough = size >= offsetof(vmm_item, stream);
        must(status == (is_enough ? VMM_ERR_UNKNOWN_POINTER : VMM_ERR_INVALID_ARGUMENT));
        struct_check(bytes, size, 0, status);
    }
    return VMM_OK;
}

static vmm_status stats_sized(struct stage *stage, uint64_t struct_size)
{
    vmm_stats stats;
    memset(&stats, EDGE, sizeof stats);
    stats.struct_size = struct_size;
    vmm_status status = vmm_stats_get(stage->cache, &stats);
    must(is_untouched((const unsigned char *)&stats, sizeof struct_size, sizeof stats));
    return status;
}

static vmm_status item_sized(struct stage *stage, uint64_t struct_size)
{
    vmm_item item;
    memset(&item, EDGE, sizeof item);
    item.struct_size = struct_size;
    vmm_status status = vmm_find(stage->cache, stage->blocks[0].address, &item);
    must(is_untouched((const unsigned char *)&item, sizeof struct_size, sizeof item));
    return status;
}

#define WRONG(name, misuse, value, words)                                                          \
    {                                                                                              \
        name, NULL, misuse, value, VMM_ERR_INVALID_ARGUMENT, words, false                          \
    }

static const struct misuse cases[] = {
    { "vmm_stats of each size", NULL, stats_of_all_sizes, 0, VMM_OK, NULL, false },
    { "vmm_item of each size", NULL, items_of_all_sizes, 0, VMM_OK, NULL, false },
    { "vmm_item of each size, no block", NULL, items_of_no_block, 0, VMM_OK, NULL, false },
    WRONG("vmm_stats of no size", stats_sized, 0, "struct_size is 0; set it to sizeof(vmm_stats)"),
    WRONG("vmm_stats of size 8", stats_sized, 8, "struct_size is 8;"),
    WRONG("vmm_stats of size 4097", stats_sized, 4097, "struct_size is 4097;"),
    WRONG("vmm_stats of size SIZE_MAX", stats_sized, SIZE_MAX, "struct_size is 1844674407"),
    WRONG("vmm_stats nobody filled", stats_sized, 0x5a5a5a5a5a5a5a5a, "struct_size is "),
    WRONG("vmm_item of no size", item_sized, 0, "struct_size is 0; set it to sizeof(vmm_item)"),
    WRONG("vmm_item of size 8", item_sized, 8, "struct_size is 8;"),
    WRONG("vmm_item of size 4097", item_sized, 4097, "struct_size is 4097;"),
    WRONG("vmm_item of size SIZE_MAX", item_sized, SIZE_MAX, "struct_size is 1844674407"),
};

MISUSE_GROUP(misuse_structs, "structs");
