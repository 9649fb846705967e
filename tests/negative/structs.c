/* Structs of every size: the library neither reads nor writes bytes beyond the caller's struct. */
#include "negative.h"

#include <stdlib.h>
#include <string.h>

enum { SIZES = 700, EDGE = 0x5a };

/* Allocates exactly struct_size bytes, so that a sanitizer detects an access beyond them. EDGE marks unwritten
 * bytes. */
static unsigned char *struct_create(size_t struct_size)
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

/* Requires that struct_size did not change, and that a refused struct, and all bytes beyond the library's own, did not
 * either. */
static void struct_check(unsigned char *bytes, size_t size, size_t known, vmm_status status)
{
    size_t struct_size;
    memcpy(&struct_size, bytes, sizeof struct_size);
    must(struct_size == size);
    size_t written = status != VMM_OK ? sizeof struct_size : known;
    must(is_untouched(bytes, written, size));
    free(bytes);
}

static vmm_status stats_get_all_sizes(struct stage *stage, uint64_t value)
{
    (void)value;
    for (size_t size = sizeof size; size < SIZES; size++) {
        unsigned char *bytes = struct_create(size);
        vmm_status status = vmm_stats_get(stage->cache, (vmm_stats *)bytes);
        bool is_enough = size >= sizeof size + sizeof(vmm_stat);
        must(status == (is_enough ? VMM_OK : VMM_ERR_INVALID_ARGUMENT));
        struct_check(bytes, size, sizeof(vmm_stats), status);
    }
    return VMM_OK;
}

static vmm_status items_find_all_sizes(struct stage *stage, uint64_t value)
{
    (void)value;
    for (size_t size = sizeof size; size < SIZES; size++) {
        unsigned char *bytes = struct_create(size);
        vmm_status status = vmm_find(stage->cache, stage->blocks[0].address, (vmm_item *)bytes);
        bool is_enough = size >= offsetof(vmm_item, stream);
        must(status == (is_enough ? VMM_OK : VMM_ERR_INVALID_ARGUMENT));
        struct_check(bytes, size, sizeof(vmm_item), status);
    }
    return VMM_OK;
}

static vmm_status items_find_no_block(struct stage *stage, uint64_t value)
{
    (void)value;
    for (size_t size = sizeof size; size < SIZES; size += 8) {
        unsigned char *bytes = struct_create(size);
        vmm_status status = vmm_find(stage->cache, stage, (vmm_item *)bytes);
        bool is_enough = size >= offsetof(vmm_item, stream);
        must(status == (is_enough ? VMM_ERR_UNKNOWN_POINTER : VMM_ERR_INVALID_ARGUMENT));
        struct_check(bytes, size, 0, status);
    }
    return VMM_OK;
}

static vmm_status stats_get_size(struct stage *stage, uint64_t struct_size)
{
    vmm_stats stats;
    memset(&stats, EDGE, sizeof stats);
    stats.struct_size = struct_size;
    vmm_status status = vmm_stats_get(stage->cache, &stats);
    must(is_untouched((const unsigned char *)&stats, sizeof struct_size, sizeof stats));
    return status;
}

static vmm_status item_find_size(struct stage *stage, uint64_t struct_size)
{
    vmm_item item;
    memset(&item, EDGE, sizeof item);
    item.struct_size = struct_size;
    vmm_status status = vmm_find(stage->cache, stage->blocks[0].address, &item);
    must(is_untouched((const unsigned char *)&item, sizeof struct_size, sizeof item));
    return status;
}

static const struct negative_case cases[] = {
    { "vmm_stats of each size", NULL, stats_get_all_sizes, 0, VMM_OK, NULL, false },
    { "vmm_item of each size", NULL, items_find_all_sizes, 0, VMM_OK, NULL, false },
    { "vmm_item of each size, no block", NULL, items_find_no_block, 0, VMM_OK, NULL, false },
    WRONG("vmm_stats of size 0", stats_get_size, 0,
          "struct_size is 0; set it to sizeof(vmm_stats)"),
    WRONG("vmm_stats of size 7", stats_get_size, 7, "struct_size is 7;"),
    WRONG("vmm_stats of size 8", stats_get_size, 8, "struct_size is 8;"),
    WRONG("vmm_stats of size 4097", stats_get_size, 4097, "struct_size is 4097;"),
    WRONG("vmm_stats of size SIZE_MAX", stats_get_size, SIZE_MAX, "struct_size is 1844674407"),
    WRONG("vmm_stats not initialised", stats_get_size, 0x5a5a5a5a5a5a5a5a, "struct_size is "),
    WRONG("vmm_item of size 0", item_find_size, 0, "struct_size is 0; set it to sizeof(vmm_item)"),
    WRONG("vmm_item of size 8", item_find_size, 8, "struct_size is 8;"),
    WRONG("vmm_item of size 4097", item_find_size, 4097, "struct_size is 4097;"),
    WRONG("vmm_item of size SIZE_MAX", item_find_size, SIZE_MAX, "struct_size is 1844674407"),
};

NEGATIVE_GROUP(negative_structs, "structs");
